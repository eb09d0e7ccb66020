"""PyTorch's learning-rate schedulers and gradient scalers."""

from collections import Counter
from collections.abc import Callable as AnyCallable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from torch.amp import GradScaler
from torch.amp.grad_scaler import OptState

from perdure.adapters.containers import Children
from perdure.adapters.state_methods import StateDict
from perdure.adapters.torch_attributes import ByAttributes
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type)


class Callable:
    """A callable object that a scheduler asks for its factor (`LambdaLR(optimizer, Warmup(100))`)."""

    __slots__ = ("function",)

    def __init__(self, function: AnyCallable[..., Any]) -> None:
        """Of `function`."""
        self.function = function


class CallableAdapter(ByAttributes):
    """Its attributes are state, as in the scheduler's own `state_dict`."""

    id = "torch-schedule"
    has_identity = False

    def subject(self, obj: Any) -> Any:
        """The callable object."""
        return obj.function

    def attributes(self, obj: Any) -> Children:
        """What it holds."""
        return dict(sorted(vars(obj.function).items()))

    def put(self, obj: Any, name: str, value: Any) -> None:
        """Sets an attribute that is a value."""
        vars(obj.function)[name] = value

    def remove(self, obj: Any, name: str) -> None:
        """Takes away what was not there before."""
        del vars(obj.function)[name]


class Scheduler(ByAttributes):
    """`LRScheduler` and its subclasses, `ReduceLROnPlateau` among them.

    Functions that it was given are facts, the optimizer is the run's own, everything else is state.
    """

    id = "torch-scheduler"
    walks_after = 2

    def attributes(self, obj: Any) -> Children:
        """All attributes; callable objects among its functions by what they hold."""
        found = {}
        for name, value in sorted(vars(obj).items()):
            found[name] = [opened(each) for each in value] if name == "lr_lambdas" else opened(value)
            if isinstance(value, Counter):  # MultiStepLR's milestones
                found[name] = dict(value)
        return found

    def put(self, obj: Any, name: str, value: Any) -> None:
        """Sets an attribute, but not what stands for its functions, which were restored in place."""
        before = vars(obj).get(name)
        if name != "lr_lambdas" and not isinstance(value, Callable):
            vars(obj)[name] = Counter(value) if isinstance(before, Counter) else value


def opened(value: Any) -> Any:
    """A callable object of a user's class, to be captured by its attributes."""
    known = isinstance(value, _FUNCTIONS) or not callable(value) or hasattr(type(value), "load_state_dict")
    return value if known or not hasattr(value, "__dict__") or hasattr(value, "__wrapped__") else Callable(value)


class Scaler(StateDict):
    """`GradScaler` of any device: scale and growth tracker are state, what was chosen is compared."""

    id = "torch-grad-scaler"
    holds_settings = True

    def capture(self, obj: GradScaler, walk: Walk) -> Tree:
        """What its `state_dict` holds.

        Raises:
            CaptureError: it stands between `step` and `update`.
        """
        states = [each["stage"] for each in obj._per_optimizer_states.values()]
        if any(stage is not OptState.READY for stage in states):
            problem = "the GradScaler stands between unscale_ or step and update. Call update() before the boundary."
            raise CaptureError(f"{format_path(walk.path)}: {problem}")
        return super().capture(obj, walk)
