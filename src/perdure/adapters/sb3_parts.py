"""Parts of Stable-Baselines3's algorithms and policies: schedules, action noise, distributions, callbacks."""

from types import MethodType
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from perdure.adapters.containers import Children
from perdure.adapters.torch_attributes import ByAttributes
from perdure.adapters.torch_schedulers import Callable, opened
from perdure.adapters.walk import Walk
from perdure.tree.leaves import Tree


class Part(ByAttributes):
    """An object that is the attributes it holds (`TanhBijector`, action noises)."""

    id = "sb3-part"


class Schedule(Part):
    """`FloatSchedule`, `ConstantSchedule`, `LinearSchedule`: numbers are settings, a function is a fact."""

    id = "sb3-schedule"

    def attributes(self, obj: Any) -> Children:
        """All; a callable object of a user's class by what it holds."""
        return {name: opened_schedule(value) for name, value in super().attributes(obj).items()}

    def put(self, obj: Any, name: str, value: Any) -> None:
        """Sets a number."""
        if not isinstance(value, Callable):
            vars(obj)[name] = value


def opened_schedule(value: Any) -> Any:
    """A callable object of a user's class, to be captured by its attributes; anything else as it is."""
    module = getattr(type(value), "__module__", None) or ""
    return value if module.partition(".")[0] in ("stable_baselines3", "torch") else opened(value)


class Distribution(Part):
    """`Distribution` of actions: what each forward pass computes anew is no state, gSDE's noise matrices are.

    They come back without the graph behind them, through which nothing is ever differentiated.
    """

    id = "sb3-distribution"

    def attributes(self, obj: Any) -> Children:
        """By name, sorted."""
        found = {name: value for name, value in super().attributes(obj).items() if name not in _COMPUTED}
        return {name: value.detach() if name in _NOISE else value for name, value in found.items()}

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place."""
        super().restore(obj, tree, walk)
        for name in _NOISE & vars(obj).keys():
            vars(obj)[name] = vars(obj)[name].detach()
        return obj


_COMPUTED = frozenset({"_latent_sde", "distribution", "gaussian_actions", "weights_dist"})
_NOISE = frozenset({"exploration_mat", "exploration_matrices"})


class Callback(Part):
    """`BaseCallback`: its counters, its best score, its evaluation environment, the callbacks inside.

    The model is the run's own, `locals` and `globals` are those of the loop, the parent is where it stands, and where
    files go is no state.
    """

    id = "sb3-callback"

    def attributes(self, obj: BaseCallback) -> Children:
        """By name, sorted; no methods of the callback around it or its own, which would lead back there."""
        found = {name: value for name, value in super().attributes(obj).items() if name not in _OF_NO_MATTER}
        return {name: value for name, value in found.items() if not _leads_back(value, obj)}

    def capture(self, obj: BaseCallback, walk: Walk) -> Tree:
        """A dict of the attributes' trees."""
        for name, value in vars(obj).items():
            if name not in _OF_NO_MATTER and _leads_back(value, obj):
                walk.fact(f"method {value.__func__.__qualname__}", name)
        return super().capture(obj, walk)


def _leads_back(value: Any, obj: BaseCallback) -> bool:
    return isinstance(value, MethodType) and (value.__self__ is obj or value.__self__ is obj.parent)


_OF_NO_MATTER = frozenset(
    {
        *("globals", "locals", "model", "num_timesteps", "parent"),
        *("best_model_save_path", "log_path", "name_prefix", "render", "save_path", "verbose", "warn"),
    }
)
