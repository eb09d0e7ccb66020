"""The layers of perdure import downwards only, and frameworks stay in the files that are loaded for them.

The rules are data below; `violations` reads source text and never imports it. The last tests feed it made-up
sources, because a checker that finds nothing proves nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"

FACE = "perdure"  # the top-level package itself: the public names
_TO_CHECKPOINT = frozenset({"tree", "format", "contract", "store", "adapters"})
_TO_SINKS = _TO_CHECKPOINT | {"checkpoint"}
_TO_RUNS = _TO_SINKS | {"sinks", "memory"}
_TO_PROOF = _TO_RUNS | {"runs"}
_CORE = _TO_PROOF | {"proof", "interop"}
_LIKE_A_USER = frozenset({FACE, "adapters", "sinks"})
_ALL = _CORE | {FACE, "testing", "gym", "nnx", "torch", "sb3", "cli"}

# layer -> the other layers it may import; everyone may import `errors`.
ALLOWED: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "tree": frozenset(),
    "format": frozenset({"tree"}),
    "contract": frozenset({"tree", "format"}),
    "adapters": frozenset({"tree", "format", "contract"}),
    "store": frozenset(),
    "checkpoint": _TO_CHECKPOINT,
    "sinks": frozenset({"store", "checkpoint"}),
    "memory": _TO_SINKS,
    "runs": _TO_RUNS,
    "proof": _TO_PROOF,
    "interop": _TO_PROOF,
    FACE: _CORE,
    "testing": _CORE | {FACE},
    "gym": _LIKE_A_USER,
    "nnx": _LIKE_A_USER | {"gym"},
    "torch": _LIKE_A_USER | {"gym"},
    "sb3": _LIKE_A_USER,
    "cli": _ALL,
}

REASONS: dict[str, str] = {
    "errors": "every layer raises these errors, so they can depend on none of them",
    "tree": "a snapshot is a value, and a value knows nothing of files, frameworks or runs",
    "format": "the format is pure functions between values and bytes, testable without a run or a disk",
    "contract": "comparing contracts is pure: values in, findings out; files count by their digest",
    "adapters": "an adapter turns live objects into values and contract facts, and knows nothing of where they go",
    "store": "a store moves bytes under names and knows no manifest, so that another store can replace it",
    "checkpoint": "the verbs join the layers below and know nothing of a run's history",
    "sinks": "a sink is told all it needs, so that a user's own can take its place",
    "memory": "a look at a process tells what stands there, and knows nothing of a run's directory",
    "runs": "a run is built on checkpoints; what examines or drives runs comes above it",
    "proof": "proofs and audits look at runs from outside",
    "interop": "import and export look at runs from outside",
    FACE: "`import perdure` must load neither a framework nor a family of trainers",
    "testing": "the conformance suites serve users of any framework, so they may need none",
    "gym": "it stands where a user's script stands, so that whatever it can do users can do",
    "nnx": "it stands where a user's script stands, so that whatever it can do users can do",
    "torch": "it stands where a user's script stands, so that whatever it can do users can do",
    "sb3": "it stands where a user's script stands, so that whatever it can do users can do",
    "cli": "it is the top",
}

_PHYSICS = frozenset({"brax", "mujoco", "mujoco_playground"})
_BUFFERS = frozenset({"flashbax", "tensordict", "torchrl"})
_TRAINING = frozenset({"ale_py", "gymnax", "gymnasium", "torch", "stable_baselines3"}) | _BUFFERS
_LOGGING = frozenset({"tensorboard", "wandb"})
FRAMEWORKS = _PHYSICS | _TRAINING | _LOGGING | {"jax", "jaxlib", "flax", "optax", "orbax", "tensorstore"}
FRAMEWORK_LAYERS = frozenset({"adapters", "sinks", "interop", "gym", "nnx", "torch", "sb3"})

# A framework's own files in `adapters` and `sinks`, and the frameworks that each may import.
ADAPTER_FILES: dict[str, frozenset[str]] = {
    "jax_*": frozenset({"jax", "jaxlib", "optax"}),
    "nnx_*": frozenset({"jax", "jaxlib", "flax", "optax"}),
    "torch_*": frozenset({"torch"}),
    "gymnasium_*": frozenset({"gymnasium"}),
    "mujoco_*": frozenset({"gymnasium", "mujoco"}),
    "ale_*": frozenset({"ale_py"}),
    "sb3_*": frozenset({"stable_baselines3"}),
    "flashbax_*": frozenset({"jax", "flashbax"}),
    "torchrl_*": frozenset({"torch", "torchrl", "tensordict"}),
}
SINK_FILES: dict[str, frozenset[str]] = {
    "tensorboard_*": frozenset({"tensorboard"}),
    "torch_*": frozenset({"torch"}),
    "wandb_*": frozenset({"wandb"}),
}
OWN_FILES = {"perdure.adapters": ADAPTER_FILES, "perdure.sinks": SINK_FILES}

# Like the adapter files above, loaded only for a framework's sake: they may import it at module level.
LAZY_LAYERS = frozenset({"nnx", "gym", "torch", "sb3"})

LAZY_REASON = (
    "`import perdure` and `perdure show` load no framework and answer in under 0.3 s; import it inside the "
    "function that needs it, or for types under `if TYPE_CHECKING:`"
)


@dataclass(frozen=True)
class Import:
    """One import as the source states it."""

    target: str
    """Dotted name of the imported module."""
    line: int
    """Line number, from 1."""
    when: Literal["loading", "calling", "typing"]
    """While the module loads, when a function is called, or never (`if TYPE_CHECKING:`)."""


class ImportFinder(ast.NodeVisitor):
    """Collects every import of a module, those in functions and `import_module("…")` calls included."""

    def __init__(self, known: frozenset[str]) -> None:
        self.known = known
        self.found: list[Import] = []
        self._when: Literal["loading", "calling", "typing"] = "loading"

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            self._add("." * node.level + (node.module or ""), node)
            return
        for alias in node.names:
            submodule = f"{node.module}.{alias.name}"
            self._add(submodule if submodule in self.known else node.module or "", node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in {"import_module", "__import__"} and node.args and isinstance(node.args[0], ast.Constant):
            self._add(str(node.args[0].value), node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if not ast.unparse(node.test).endswith("TYPE_CHECKING") or isinstance(node.test, ast.UnaryOp):
            self.generic_visit(node)
            return
        self._visit_all(node.body, "typing")
        self._visit_all(node.orelse, self._when)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_all([*node.decorator_list, node.args], self._when)
        self._visit_all(node.body, "typing" if self._when == "typing" else "calling")

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_all([node.args], self._when)
        self._visit_all([node.body], "typing" if self._when == "typing" else "calling")

    def _visit_all(self, nodes: Iterable[ast.AST], when: Literal["loading", "calling", "typing"]) -> None:
        before, self._when = self._when, when
        for node in nodes:
            self.visit(node)
        self._when = before

    def _add(self, target: str, node: ast.stmt | ast.expr) -> None:
        self.found.append(Import(target, node.lineno, self._when))


def imports_of(source: str, known: frozenset[str]) -> list[Import]:
    finder = ImportFinder(known)
    finder.visit(ast.parse(source))
    return finder.found


def layer_of(module: str) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return FACE
    return "cli" if parts[1] == "__main__" else parts[1]


def is_lazy(module: str) -> bool:
    return layer_of(module) in LAZY_LAYERS or bool(own_frameworks(module))


def own_frameworks(module: str) -> frozenset[str]:
    """The frameworks that a file of adapters or sinks is for; none for any other module."""
    parent, _, name = module.rpartition(".")
    matches = (own for pattern, own in OWN_FILES.get(parent, {}).items() if fnmatchcase(name.lstrip("_"), pattern))
    return frozenset().union(*matches)


def violations(module: str, source: str, known: frozenset[str]) -> Iterator[str]:
    """What breaks a rule in the source of `module`; `known` are the names of all modules there are."""
    layer = layer_of(module)
    if layer not in ALLOWED:
        yield f"{module}: the layer {layer!r} is unknown. Add it to ALLOWED and REASONS, or move the module."
        return
    for found in imports_of(source, known):
        for problem in (_layer_problem, _framework_problem, _loading_problem):
            message = problem(module, layer, found)
            if message:
                yield f"{module}:{found.line}: {message}"


def _layer_problem(module: str, layer: str, found: Import) -> str | None:
    if found.target.startswith("."):
        return f"imports {found.target!r}. Write absolute imports: a module then says which layer it uses."
    if found.target.split(".")[0] != "perdure":
        return None
    target = layer_of(found.target)
    if target in {layer, "errors"} or target in ALLOWED[layer]:
        return None
    permitted = ", ".join(sorted(ALLOWED[layer] | {"errors"} - {layer}))
    return f"{layer} imports {found.target}, but may import {permitted} only. Reason: {REASONS[layer]}."


def _framework_problem(module: str, layer: str, found: Import) -> str | None:
    framework = found.target.split(".")[0]
    if framework not in FRAMEWORKS or found.when == "typing":
        return None
    if layer not in FRAMEWORK_LAYERS:
        where = ", ".join(sorted(FRAMEWORK_LAYERS))
        return f"{layer} imports {framework}, which only {where} may. Reason: {REASONS[layer]}."
    own_files = OWN_FILES.get(f"perdure.{layer}")
    if own_files is not None and framework not in own_frameworks(module):
        return (
            f"imports {framework}, which only its own files in {layer} may (of {', '.join(own_files)}). "
            f"Reason: whoever has no {framework} must still reach everything else there."
        )
    return None


def _loading_problem(module: str, layer: str, found: Import) -> str | None:
    if found.when != "loading" or is_lazy(module):
        return None
    if is_lazy(found.target):
        return f"imports {found.target} at module level, which loads a framework. Reason: {LAZY_REASON}."
    if found.target.split(".")[0] in FRAMEWORKS:
        return f"imports {found.target} at module level. Reason: {LAZY_REASON}."
    return None


def modules_under(root: Path) -> dict[str, Path]:
    def name_of(file: Path) -> str:
        parts = file.relative_to(root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    return {name_of(file): file for file in sorted((root / "perdure").rglob("*.py"))}


def test_every_import_goes_downwards():
    modules = modules_under(SOURCE)
    known = frozenset(modules)
    found = [text for name, file in modules.items() for text in violations(name, file.read_text("utf-8"), known)]

    assert modules, f"no modules under {SOURCE}"
    assert not found, "\n" + "\n".join(found)


def test_every_layer_has_a_reason_and_the_table_has_no_cycle():
    assert ALLOWED.keys() == REASONS.keys()

    def reaches(layer: str, seen: tuple[str, ...] = ()) -> None:
        assert layer not in seen, f"cycle: {' -> '.join((*seen, layer))}"
        for below in ALLOWED[layer] - {layer}:
            reaches(below, (*seen, layer))

    for layer in ALLOWED:
        reaches(layer)


KNOWN = frozenset(
    {
        "perdure",
        "perdure.adapters",
        "perdure.adapters.jax_keys",
        "perdure.adapters.walk",
        "perdure.cli.train",
        "perdure.errors",
        "perdure.nnx",
        "perdure.runs",
        "perdure.runs.log",
        "perdure.sinks",
        "perdure.sinks.wandb_run",
        "perdure.store",
        "perdure.tree",
    }
)


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("perdure.tree.leaf", "import perdure.store", "tree imports perdure.store"),
        ("perdure.tree.leaf", "from perdure import store", "tree imports perdure.store"),
        ("perdure.tree.leaf", "from perdure.runs import log", "tree imports perdure.runs.log"),
        ("perdure.tree.leaf", "def f():\n    from perdure.store import open_local", "leaf:2: tree imports"),
        ("perdure.tree.leaf", "if TYPE_CHECKING:\n    import perdure.store", "leaf:2: tree imports"),
        ("perdure.tree.leaf", "import_module('perdure.store')", "a snapshot is a value"),
        ("perdure.runs.run", "from perdure import Run", "runs imports perdure, but may import"),
        ("perdure.nnx.ppo", "from perdure.runs import Run", "nnx imports perdure.runs"),
        ("perdure", "def f():\n    import perdure.nnx", "perdure imports perdure.nnx"),
        ("perdure.store.local", "from . import memory", "Write absolute imports"),
        ("perdure.store.local", "def f():\n    import jax.numpy as jnp", "store imports jax, which only"),
        ("perdure.cli.show", "def f():\n    import jax", "cli imports jax, which only"),
        ("perdure.adapters.walk", "def f():\n    import jax", "own files in adapters may"),
        ("perdure.sinks.csv_file", "def f():\n    import wandb", "own files in sinks may"),
        ("perdure.sinks.tensorboard_files", "import torch", "own files in sinks may"),
        ("perdure.sinks.sink", "from perdure.runs import log", "sinks imports perdure.runs.log"),
        ("perdure.sinks", "from perdure.sinks import wandb_run", "wandb_run at module level"),
        ("perdure.adapters.jax_keys", "import torch", "own files in adapters may"),
        ("perdure.interop.kinds.nnx_ppo", "import flax", "imports flax at module level"),
        (
            "perdure.interop.kinds.nnx_ppo",
            "import orbax.checkpoint",
            "imports orbax.checkpoint at module level",
        ),
        ("perdure.runs.run", "def f():\n    from perdure.interop import nnx_ppo", "runs imports perdure.interop"),
        (
            "perdure.interop.kinds.nnx_ppo",
            "try:\n    import flax\nexcept ImportError: ...",
            "flax at module level",
        ),
        ("perdure.interop.kinds.nnx_ppo", "class A:\n    import flax", "imports flax at module level"),
        ("perdure.adapters", "from perdure.adapters import jax_keys", "jax_keys at module level"),
        ("perdure.cli.train", "import perdure.nnx", "imports perdure.nnx at module level"),
        (
            "perdure.interop.kinds.nnx_ppo",
            "if not TYPE_CHECKING:\n    import flax",
            "imports flax at module level",
        ),
        (
            "perdure.interop.kinds.nnx_ppo",
            "if TYPE_CHECKING: ...\nelse:\n    import flax",
            "nnx_ppo:3: imports flax",
        ),
        ("perdure.utils", "", "the layer 'utils' is unknown"),
    ],
)
def test_a_violation_is_found_and_explained(module: str, source: str, message: str):
    found = list(violations(module, source, KNOWN))

    assert len(found) == 1, found
    assert message in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("perdure.tree.leaf", "import numpy\nfrom perdure.errors import PerdureError\nimport perdure.tree"),
        ("perdure.store.local", "if TYPE_CHECKING:\n    import jax"),
        ("perdure.store.local", "if typing.TYPE_CHECKING:\n    import jax"),
        ("perdure.interop.kinds.nnx_ppo", "def f():\n    import flax"),
        ("perdure.adapters", "def f():\n    from perdure.adapters import jax_keys"),
        ("perdure.adapters", "from perdure.adapters.walk import jax_keys"),
        ("perdure.adapters.jax_keys", "import jax\nfrom perdure.tree import Leaf"),
        ("perdure.sinks.tensorboard_files", "import tensorboard"),
        ("perdure.sinks.wandb", "def f():\n    from perdure.sinks import wandb_run"),
        ("perdure.nnx.ppo", "import jax\nfrom perdure import Run\nfrom perdure.adapters import resolve"),
        ("perdure.cli.train", "def f():\n    from perdure.nnx import train_ppo"),
        ("perdure.__main__", "from perdure.cli.main import main"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str):
    assert list(violations(module, source, KNOWN)) == []
