"""Functions, classes, dtypes and modules: no state, but their names, and what closures bind, must not change."""

from typing import Any

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.walk import Walk
from perdure.contract.facts import facts_of
from perdure.contract.naming import name_of
from perdure.errors import Finding
from perdure.tree.leaves import Tree


class Fact(ExactAdapter):
    """Kept from the target; its name is noted and compared at a restore."""

    id = "fact"
    kind: Kind = "fact"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """No state; the walk's facts get the name, and what a closure binds: hyper-parameters live there."""
        for below, text in facts_of(obj):
            walk.fact(text, *below)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Something else than a fact was saved here."""
        if tree is None:
            return []
        return [walk.finding("state", name_of(obj), "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target's own."""
        return obj
