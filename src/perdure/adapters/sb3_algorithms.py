"""Algorithms of Stable-Baselines3: every attribute is state or a setting, those of subclasses and users too.

Left out, by name, is what a resume must not bring back: wall-clock time, what is printed and where, the device, and the
total of steps, which `learn` is told again and the run's horizon compares.
"""

from collections import deque
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from perdure.adapters.containers import Children
from perdure.adapters.resolve import dotted_name
from perdure.adapters.sb3_parts import Part, opened_schedule
from perdure.adapters.torch_attributes import note_class
from perdure.adapters.torch_schedulers import Callable
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

BETWEEN = "between rollouts"
"""Beside the attributes of an algorithm: what its loop holds from one rollout to the next."""

_CARRIED = ("_last_episode_starts", "_last_obs", "_last_original_obs", "ep_info_buffer", "ep_success_buffer")
_TIME = "t"
"""In the infos of episodes: seconds since the environment was made."""

_NO_STATE = frozenset(
    {
        "_custom_logger",
        "_num_timesteps_at_start",  # for frames per second alone
        "_total_timesteps",
        "device",
        "start_time",
        "tensorboard_log",
        "verbose",
        *_CARRIED,
    }
)


class Carried:
    """What the loop of an algorithm holds between two rollouts: no setting, for it was drawn or counted."""

    __slots__ = ("algorithm",)

    def __init__(self, algorithm: BaseAlgorithm) -> None:
        """Of `algorithm`."""
        self.algorithm = algorithm


class CarriedAdapter(Part):
    """Observations, where episodes began, the last episodes' returns. The seconds they took are no state."""

    id = "sb3-between-rollouts"
    has_identity = False
    holds_settings = False

    def attributes(self, obj: Any) -> Children:
        """By name, sorted."""
        held = vars(obj.algorithm)
        return {name: _without_time(held[name]) for name in _CARRIED if name in held}

    def attribute_trees(self, obj: Any, walk: Walk) -> dict[str, Tree]:
        """Their trees."""
        return {name: walk.capture(value, name) for name, value in self.attributes(obj).items()}

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of their trees."""
        return self.attribute_trees(obj, walk)

    def put(self, obj: Any, name: str, value: Any) -> None:
        """Sets one; nobody knows how long restored episodes took."""
        if name == "ep_info_buffer" and isinstance(value, deque):
            for info in value:
                info.setdefault(_TIME, float("nan"))
        vars(obj.algorithm)[name] = value

    def remove(self, obj: Any, name: str) -> None:
        """Deletes one that was not there before."""
        del vars(obj.algorithm)[name]


def _without_time(value: Any) -> Any:
    if not isinstance(value, deque):
        return value
    return deque(map(_one_without_time, value), value.maxlen)


def _one_without_time(item: Any) -> Any:
    return {key: part for key, part in item.items() if key != _TIME} if type(item) is dict else item


class Algorithm(Part):
    """`BaseAlgorithm`: walked after the components that it refers to (policy, environments, replay buffer)."""

    id = "sb3-algorithm"
    walks_after = 3

    def attributes(self, obj: Any) -> Children:
        """All that are state or settings, but for networks inside the policy."""
        skipped = _NO_STATE | _inside_policy(obj).keys()
        found = {name: opened_schedule(value) for name, value in sorted(vars(obj).items()) if name not in skipped}
        return {BETWEEN: Carried(obj), **found}

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the attributes' trees; which networks of the policy it knows by name is told by facts."""
        for name, inner in _inside_policy(obj).items():
            walk.fact(f"policy.{inner}", name)
        return super().capture(obj, walk)

    def put(self, obj: Any, name: str, value: Any) -> None:
        """Sets an attribute that is a value, not what stands for one that was restored elsewhere."""
        if not isinstance(value, Callable | Carried):
            vars(obj)[name] = value


def _inside_policy(obj: BaseAlgorithm) -> dict[str, str]:
    """Attributes that are parts of the policy (`q_net_target`), with their names there."""
    names = {id(module): name for name, module in obj.policy.named_modules() if name}
    return {attribute: names[id(value)] for attribute, value in vars(obj).items() if id(value) in names}


class Logger(Part):
    """`Logger`: what is recorded and not yet dumped. Where it goes is no state."""

    id = "sb3-logger"
    holds_settings = False

    def attributes(self, obj: Any) -> Children:
        """The records, as plain dicts."""
        return {name: dict(vars(obj)[name]) for name in ("name_to_count", "name_to_excluded", "name_to_value")}

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of them."""
        return {name: walk.capture(value, name) for name, value in self.attributes(obj).items()}

    def put(self, obj: Any, name: str, value: Any) -> None:
        """Fills the logger's own table."""
        table = vars(obj)[name]
        table.clear()
        table.update(value)


class Buffer(Part):
    """`BaseBuffer`: all it holds."""

    id = "sb3-buffer"


class Rollouts(Part):
    """`RolloutBuffer`, those of sb3-contrib too: nothing of what they collect is state, for each rollout resets them.

    Of a user's subclass, whose `reset` may keep something, all is.
    """

    id = "sb3-rollout-buffer"

    def attributes(self, obj: Any) -> Children:
        """Sizes and spaces; what a subclass has."""
        found = super().attributes(obj)
        is_own = type(obj) in (RolloutBuffer, DictRolloutBuffer) or dotted_name(type(obj)) in _CONTRIBUTED
        return {name: value for name, value in found.items() if not (is_own and name in _RESET)}


_CONTRIBUTED = frozenset(
    {
        "sb3_contrib.common.maskable.buffers.MaskableDictRolloutBuffer",
        "sb3_contrib.common.maskable.buffers.MaskableRolloutBuffer",
        "sb3_contrib.common.recurrent.buffers.RecurrentDictRolloutBuffer",
        "sb3_contrib.common.recurrent.buffers.RecurrentRolloutBuffer",
    }
)
"""By name, for sb3-contrib need not be installed."""
_RESET = frozenset(
    {
        *("actions", "advantages", "episode_starts", "log_probs", "observations", "returns", "rewards", "values"),
        *("full", "generator_ready", "pos"),
        *("action_masks", "cell_states_pi", "cell_states_vf", "hidden_states_pi", "hidden_states_vf"),
        *("pad", "pad_and_flatten", "seq_end_indices", "seq_start_indices"),  # at each batch
    }
)
"""What these buffers make anew in `reset`, or before they read it."""


class Hindsight(Part):
    """`HerReplayBuffer`, which is refused."""

    id = "sb3-her-replay-buffer"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Nothing.

        Raises:
            CaptureError: always.
        """
        note_class(obj, walk)
        raise CaptureError(
            f"{format_path(walk.path)}: a HerReplayBuffer keeps the infos of steps and asks the environments for "
            "rewards, which perdure does not save yet. Use ReplayBuffer or DictReplayBuffer, or hand in an adapter of "
            "your own: Run(adapters=[(HerReplayBuffer, …)])."
        )
