"""The adapter of components that a run leaves out of its checkpoints."""

from typing import Any

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.omitted import ADAPTER
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree


class Omission(ExactAdapter):
    """Nothing of it is state; whoever requires an exact run is told.

    It is walked before all others: one that holds the very object, as an algorithm holds its replay buffer, refers to
    this place and does not save it all the same.
    """

    id = ADAPTER
    kind: Kind = "live"
    walks_after = -1

    def fidelity(self, obj: Any) -> tuple[str, str]:
        """What follows depends on it, and it is not there any more."""
        return "statistical", "left out of checkpoints by Run(omit=…)"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Nothing."""
        walk.meet(obj.component)
        return None

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The run must have left it out from its beginning."""
        walk.meet(obj.component)
        if walk.made_here == self.id:
            return []
        kinds = (summary(tree), "left out by Run(omit=…)")
        return [walk.finding(*kinds, "The run saved it: take it out of omit, or start a new run.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """As it is."""
        return obj
