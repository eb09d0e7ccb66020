"""Objects that speak for themselves: `state_dict` / `load_state_dict`, or `get_state` / `set_state`."""

from typing import Any

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.leaves import Tree

STEP = "state"


class SpeaksForItself(ExactAdapter):
    """What both pairs of methods share: the returned state is captured like any other value."""

    kind: Kind = "live"
    has_identity = True
    getter = ""
    setter = ""

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The tree of what the getter returns."""
        return {STEP: walk.capture(getattr(obj, self.getter)(), STEP)}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Compares with what the target's getter returns now."""
        if not isinstance(tree, dict) or tree.keys() != {STEP}:
            return [walk.finding("another kind of state", type(obj).__name__, "Build it as the run did.")]
        return walk.check(getattr(obj, self.getter)(), tree[STEP], STEP)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Hands the saved state to the setter."""
        state = walk.restore(getattr(obj, self.getter)(), tree[STEP], STEP)
        getattr(obj, self.setter)(state)
        walk.spoke(obj)
        return obj


class StateDict(SpeaksForItself):
    """`state_dict()` and `load_state_dict(state)`."""

    id = "state-dict"
    getter = "state_dict"
    setter = "load_state_dict"


class GetState(SpeaksForItself):
    """`get_state()` and `set_state(state)`."""

    id = "get-state"
    getter = "get_state"
    setter = "set_state"
