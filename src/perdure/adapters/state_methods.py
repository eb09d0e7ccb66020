"""Objects that speak for themselves: `state_dict` / `load_state_dict`, or `get_state` / `set_state`."""

from typing import Any

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError, Finding, PerdureError, RestoreError
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

STEP = "state"


class SpeaksForItself(ExactAdapter):
    """What both pairs of methods share: the returned state is captured like any other value."""

    kind: Kind = "live"
    has_identity = True
    getter = ""
    setter = ""

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The tree of what the getter returns.

        Raises:
            CaptureError: it raised.
        """
        return {STEP: walk.capture(self._asked(obj, walk), STEP)}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Compares with what the target's getter returns now."""
        if not isinstance(tree, dict) or tree.keys() != {STEP}:
            return [walk.finding("another kind of state", type(obj).__name__, "Build it as the run did.")]
        return walk.check(self._asked(obj, walk), tree[STEP], STEP)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Hands the saved state to the setter.

        Raises:
            RestoreError: it raised.
        """
        state = walk.restore(self._asked(obj, walk), tree[STEP], STEP)
        try:
            getattr(obj, self.setter)(state)
        except PerdureError:
            raise
        except Exception as error:
            raise RestoreError(f"{format_path(walk.path)}: {_raised(obj, self.setter, error)}") from error
        walk.spoke(obj)
        return obj

    def _asked(self, obj: Any, walk: Walk) -> Any:
        """What the getter returns. Whatever a user's class raises, the message names the object's place."""
        try:
            return getattr(obj, self.getter)()
        except PerdureError:
            raise
        except Exception as error:
            problem = _raised(obj, self.getter, error)
            raise CaptureError(f"{format_path(walk.path)}: {problem}. It is asked whenever state is saved.") from error


def _raised(obj: Any, method: str, error: Exception) -> str:
    return f"{type(obj).__qualname__}.{method}() raised {type(error).__name__}: {str(error).rstrip('.')}"


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
