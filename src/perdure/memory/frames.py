"""Whose code it is, and where a loop begins: frames, modules and source text."""

import ast
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

OWN = str(Path(__file__).parents[1])
"""Where perdure is."""

_LIBRARIES = tuple(
    {str(Path(path)) for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib")}
    | {str(Path(path)) for name, path in sysconfig.get_paths().items() if name in ("purelib", "platlib")}
)


@dataclass(frozen=True)
class Loop:
    """A loop of a function, which calls `boundary` once a turn."""

    file: str
    """The function's file."""
    function: str
    """Its name."""
    first_line: int
    """Where the function begins."""
    line: int
    """Where the first statement of the loop's body begins: each turn comes by there."""
    last_line: int
    """Where it ends, or where its own body begins: Python may begin a statement of several lines with any of them."""

    def is_in(self, code: CodeType) -> bool:
        """Whether this is the function."""
        return (code.co_filename, code.co_name, code.co_firstlineno) == (self.file, self.function, self.first_line)

    def is_at(self, line: int) -> bool:
        """Whether a turn begins at this line."""
        return self.line <= line <= self.last_line


def is_users(file: str | None) -> bool:
    """Whether a file is neither Python's, nor an installed package's, nor perdure's."""
    if not file or file.startswith("<"):
        return False
    path = str(Path(file).absolute())
    return not path.startswith((OWN, *_LIBRARIES)) and "site-packages" not in path


def users_modules() -> dict[str, ModuleType]:
    """The user's modules by name; the script's by the name of its file."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        if name == "__mp_main__":  # the script once more
            continue
        if type(module) is ModuleType and is_users(vars(module).get("__file__")):
            found[Path(vars(module)["__file__"]).stem if name == "__main__" else name] = module
    return found


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it, but perdure's innermost ones."""
    while frame is not None and _is_of_run(frame):
        frame = frame.f_back
    while frame is not None:
        yield frame
        frame = frame.f_back


def looked_at(frame: FrameType | None) -> dict[str, FrameType]:
    """The frames whose variables a look takes in, by name: the one that calls the run, and the user's around it."""
    found: dict[str, FrameType] = {}
    for at, each in enumerate(callers(frame)):
        code = each.f_code
        if code.co_name != "<module>" and (at == 0 or is_users(code.co_filename)):
            found.setdefault(code.co_name, each)
    return found


def _is_of_run(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith((str(Path(OWN) / "runs"), str(Path(OWN) / "memory")))


def loop_around(frame: FrameType | None, staying: Sequence[FrameType] | None = None) -> Loop | None:
    """The innermost loop in which a frame, or else one of its callers, stands; None: there is none with a source.

    Args:
        frame: whose.
        staying: frames that were there a boundary earlier; others do not count: the loop over a list of callbacks, of
            which one calls `boundary`, is another one at each boundary. None: all count.
    """
    kept = None if staying is None else {id(each) for each in staying}
    for each in callers(frame):
        code = each.f_code
        if kept is not None and id(each) not in kept:
            continue
        lines = _begin_of_loop(code.co_filename, each.f_lineno, is_module=code.co_name == "<module>")
        if lines is not None:
            return Loop(code.co_filename, code.co_name, code.co_firstlineno, *lines)
    return None


def _begin_of_loop(file: str, line: int, *, is_module: bool) -> tuple[int, int] | None:
    tree = tree_of(file)
    if tree is None:
        return None
    around = [node for node in ast.walk(tree) if _spans(node, line)]
    functions = [node.lineno for node in around if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    begins = 0 if is_module else max(functions, default=0)
    loops = [node for node in around if isinstance(node, ast.For | ast.AsyncFor | ast.While) and node.lineno >= begins]
    inner = max(loops, key=lambda loop: loop.lineno, default=None)
    if inner is None:
        return None
    statement = next((each for each in inner.body if _runs(each)), inner.body[0])
    first, last = statement.lineno, _end_of_head(statement)
    return (first, first) if first <= line <= last else (first, last)  # boundary's own lines come by after it, too


def _runs(statement: ast.stmt) -> bool:
    """Whether Python comes by a statement when it runs: not by a text, or a declaration."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    is_declared = isinstance(statement, ast.AnnAssign) and statement.value is None
    return not (is_text or is_declared or isinstance(statement, ast.Global | ast.Nonlocal))


def _end_of_head(statement: ast.stmt) -> int:
    """The last line of a statement; of one with a body, the last one before that."""
    cases = getattr(statement, "cases", None)
    body = [case.pattern for case in cases] if cases else getattr(statement, "body", None)
    if body:
        return max(statement.lineno, body[0].lineno - 1)
    return statement.end_lineno or statement.lineno


def _spans(node: Any, line: int) -> bool:
    return isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)


@lru_cache(maxsize=64)
def tree_of(file: str) -> ast.Module | None:
    """The syntax tree of a file; None: it cannot be read."""
    try:
        return ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
