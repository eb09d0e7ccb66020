"""The adapter of `perdure.Ring`."""

from typing import Any

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.row_checks import check_rows
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.leaves import Tree

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
