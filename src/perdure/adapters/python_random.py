"""Python's `random.Random`, restored in place."""

from typing import Any

import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree

PARTS = {"version", "words", "gauss_next"}


class Random(ExactAdapter):
    """The Mersenne Twister of the standard library, with its cached Gaussian."""

    id = "python-random"
    kind: Kind = "live"
    is_rng = True
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """State version, the 624 words with their position, and the cached Gaussian."""
        version, words, gauss_next = obj.getstate()
        return {"version": version, "words": Array(np.array(words, np.uint32)), "gauss_next": gauss_next}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Another kind of state is a finding."""
        if isinstance(tree, dict) and tree.keys() == PARTS:
            return []
        return [walk.finding(summary(tree), "a random.Random", "Hand in a random.Random, as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the state in place."""
        obj.setstate((tree["version"], tuple(tree["words"].value.tolist()), tree["gauss_next"]))
        return obj
