"""`perdure.gym.LevelPool`: its position and generator are state, its levels are facts."""

from typing import Any

from perdure.adapters.state_methods import StateDict
from perdure.adapters.walk import Walk
from perdure.tree.leaves import Tree


class LevelPool(StateDict):
    """A stream of levels, which are compared by content."""

    id = "perdure-level-pool"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Position and generator; mode, seeds and each level are facts."""
        walk.fact(obj.mode, "mode")
        walk.fact(repr(obj.seeds), "seeds")
        walk.fact(f"{len(obj)} levels", "levels")
        for index, content in enumerate(obj.contents):
            walk.fact(content, "levels", index)
        return super().capture(obj, walk)
