"""The adapter of `perdure.Ring`."""

from typing import Any

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.row_checks import check_rows
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree

ROWS = "rows"
ENVIRONMENTS = "num_envs"


class Ring(ExactAdapter):
    """Its rows, which are written once, and how many environments a row holds."""

    id = "ring"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The rows, borrowed."""
        return {ROWS: obj.rows(), ENVIRONMENTS: obj.num_envs}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same capacity, columns and environments."""
        saved = tree if isinstance(tree, dict) else {}
        findings = check_rows(obj.rows(), saved.get(ROWS), walk, ROWS, capacity="capacity")
        if not findings and saved.get(ENVIRONMENTS) != obj.num_envs:
            kinds = (f"{saved.get(ENVIRONMENTS)} environments a row", f"{obj.num_envs}")
            return [walk.finding(*kinds, "Build the ring with the run's num_envs.", ENVIRONMENTS)]
        return findings

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place, without memory of its own beyond what the rows were read into."""
        obj.restore(tree[ROWS])
        return obj


TREE = "tree"
LARGEST = "max_priority"
ALPHA = "alpha"


class PrioritizedRing(Ring):
    """The same, and the sum tree with each of its sums: added up anew, they would differ in their last bits."""

    id = "prioritized-ring"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The rows and the tree, borrowed, and the greatest priority."""
        walk.fact(repr(obj.alpha), ALPHA)
        return {**super().capture(obj, walk), TREE: Array(obj.tree), LARGEST: obj.max_priority}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Made by such a ring of the same size; the exponent is a fact."""
        if not isinstance(tree, dict) or tree.keys() != {ROWS, ENVIRONMENTS, TREE, LARGEST}:
            return [walk.finding(summary(tree), repr(obj), "Build the ring as the run did.")]
        return super().check(obj, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place."""
        super().restore(obj, tree, walk)
        obj.tree[:] = tree[TREE].value
        obj.max_priority = tree[LARGEST]
        return obj
