"""Functions, classes, dtypes and modules: no state, but their names, and what closures bind, must not change."""

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.walk import Walk
from perdure.contract.facts import facts_in, facts_of
from perdure.contract.naming import name_of
from perdure.errors import Finding
from perdure.tree.leaves import Tree


class Own(ExactAdapter):
    """Loggers: they hold nothing that a training depends on, and a resume keeps its own."""

    id = "own"
    kind: Kind = "fact"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Nothing."""

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Something else was saved here."""
        return [] if tree is None else [walk.finding("state", type(obj).__name__, "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target's own."""
        return obj


class Fact(ExactAdapter):
    """Kept from the target; its name is noted and compared at a restore."""

    id = "fact"
    kind: Kind = "fact"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """No state; the walk's facts get the name, and what a closure binds: hyper-parameters live there."""
        for below, text in facts_of(obj):
            walk.fact(text, *below)
        for name, value in _kept_by(obj):
            for below, text in facts_in(value):
                walk.fact(text, name, *below)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Something else than a fact was saved here."""
        if tree is None:
            return []
        return [walk.finding("state", name_of(obj), "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target's own."""
        return obj


def _kept_by(function: Any) -> Iterator[tuple[str, Any]]:
    """What a lambda or an inner function keeps: values of its defaults (`lambda r, scale=0.1: …`), its attributes."""
    if not isinstance(function, FunctionType) or ("<locals>" not in function.__qualname__ and not _is_lambda(function)):
        return
    code, defaults = function.__code__, function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    yield from zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    yield from ((name, value) for name, value in vars(function).items() if not name.startswith("__"))


def _is_lambda(function: FunctionType) -> bool:
    return function.__name__ == "<lambda>"
