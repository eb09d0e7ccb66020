"""Where the user's source assigns a variable, and what to add so that a run keeps it."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from perdure.memory.frames import is_users, tree_of
from perdure.memory.values import DATA, ITERATOR, TENSOR

MOST = 3
"""Places that are told of one variable."""

_Target = tuple[str, bool]
"""A name, and whether it is an attribute's."""


def where_assigned(place: str, files: Mapping[str, str]) -> tuple[str, ...]:
    """The last lines that assign or change what stands at a place, as `train.py:17`; none if no source tells.

    Args:
        place: an access path.
        files: the source file of each frame and module that was looked at.
    """
    root, _, variable = place.partition(": ")
    name = _last_name(variable or root)
    is_attribute = "." in variable or not variable
    own = files.get(root)
    searched = [own] if own and not is_attribute else sorted({own, *files.values()} - {None}, key=str)
    is_bound = variable.endswith(">")  # by a closure, wherever that was made
    is_attribute = is_attribute and not is_bound
    searched = sorted({own, *files.values()} - {None}, key=str) if is_bound else searched
    function = root.removeprefix("frame ") if root.startswith("frame ") and not (is_attribute or is_bound) else None
    found = [
        (file, line)
        for file in searched
        if file is not None and (file == own or is_users(file))
        for line in _lines(file, (name, is_attribute), function)
    ]
    return tuple(f"{Path(file).name}:{line}" for file, line in found[-MOST:])


def _last_name(variable: str) -> str:
    """`self.eps` -> eps; `parts[3].<seed>` -> seed; `component agent.lr` -> lr."""
    last = variable.rpartition(".")[2] or variable
    return last.partition("[")[0].partition("(")[0].strip("<>").rpartition(" ")[2]


def _lines(file: str, target: _Target, function: str | None) -> list[int]:
    tree = tree_of(file)
    if tree is None:
        return []
    return sorted({line for scope in _scopes(tree, function) for line in _assignments(scope, target)})


def _scopes(tree: ast.Module, function: str | None) -> Iterator[ast.AST]:
    """The functions of a name; everything, if there is none."""
    if function is None:
        yield tree
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function:
            yield node


def _assignments(scope: ast.AST, target: _Target) -> Iterator[int]:
    for node in ast.walk(scope):
        stored: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            stored = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
            stored = [node.target]
        elif isinstance(node, ast.Call):  # `returns.append(x)`, `scheduler.step()`, `next(stream)`
            stored = [node.func.value] if isinstance(node.func, ast.Attribute) else _given_to_next(node)
        if any(_names(each, target) for each in stored):
            yield node.lineno if isinstance(node, ast.stmt | ast.expr) else 0


def _given_to_next(call: ast.Call) -> list[ast.expr]:
    return call.args[:1] if isinstance(call.func, ast.Name) and call.func.id == "next" else []


def _names(node: ast.expr, target: _Target) -> bool:
    """Whether something that is stored to is the variable, one of its items, or a tuple with it."""
    name, is_attribute = target
    if isinstance(node, ast.Tuple | ast.List):
        return any(_names(part, target) for part in node.elts)
    if isinstance(node, ast.Subscript | ast.Starred):
        return _names(node.value, target)
    if isinstance(node, ast.Attribute):
        return is_attribute and node.attr == name
    return isinstance(node, ast.Name) and node.id == name and not is_attribute


def advice_for(place: str, *, kind: str, is_value: bool) -> str:
    """The line to add.

    Args:
        place: the access path of what is missing.
        kind: of its first part that differs: `DATA`, `LIVE`, `TENSOR` or `ITERATOR`.
        is_value: whether it is one value as a whole.
    """
    root, _, variable = place.partition(": ")
    if not variable:
        return f"Put {_last_name(root)!r} into the class's state_dict() and load_state_dict(), or hand it in by itself."
    if kind == ITERATOR:
        return f"An iterator cannot be saved: count what {variable} has given, hand the count in, and begin there."
    name = _last_name(variable)
    if variable.endswith(">"):
        return f"{name} is bound by a closure: keep it in an object with state_dict() and load_state_dict() instead."
    variable = variable.partition("[")[0] if variable.endswith("]") and "." not in variable else variable
    keyword = name.lower().strip("_") or "state"
    if kind in (DATA, TENSOR) and is_value:  # a value comes back as a new one
        line = f"restore(..., {keyword}={variable}), boundary(..., {keyword}={variable})"
        return f"Hand it in: {line}, and assign what restore returns."
    if is_value:
        return f"Hand it in: restore(..., {keyword}={variable})."
    methods = "a class of your own needs state_dict() and load_state_dict()"
    return f"Hand it in: restore(..., {keyword}={variable}); {methods}."
