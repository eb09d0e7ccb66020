"""Gymnasium's environments that are reset at each checkpoint: their wrappers and spaces are captured, they are not.

Whatever a `reset(seed=…)` decides needs no saving, so that an engine may be opaque. What outlives a reset does: running
statistics of wrappers, counts of episodes, the generators of spaces. It is captured like any other state.
"""

from typing import Any

import gymnasium

from perdure.adapters import remote
from perdure.adapters.containers import Children
from perdure.adapters.gymnasium_attributes import note_choices, refuse_hidden_state, state_of
from perdure.adapters.gymnasium_envs import CLASS, ByAttributes, restart_clock
from perdure.adapters.gymnasium_versions import WRAPPERS
from perdure.adapters.resettable import Resettable as Marked
from perdure.adapters.walk import Walk
from perdure.contract.naming import name_of
from perdure.errors import CaptureError, Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

_SPACES = ("action_space", "observation_space", "single_action_space", "single_observation_space")
_ON_CADENCE = "on_cadence"


class Resettable(ByAttributes):
    """A wrapper's attributes, and below it another of these; of everything else the spaces."""

    id = "gymnasium-resettable"
    has_identity = False

    def fidelity(self, obj: Any) -> tuple[str, str]:
        """Exact among runs that reset at the same checkpoints."""
        return "boundary-reset", "the environments are reset at each checkpoint"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The class, what outlives a reset, and whether the checkpoint stands on the cadence.

        Raises:
            CaptureError: a wrapper holds something that cannot be captured, or wrappers cannot be reached.
        """
        envs = obj.envs
        _refuse_unknown(envs, walk)
        note_choices(envs, walk)
        flag = {} if obj.on_cadence is None else {_ON_CADENCE: obj.on_cadence}
        attributes = _attributes(envs)
        if _is_wrapper(envs):
            refuse_hidden_state(envs, attributes, walk)
        tree = {CLASS: name_of(type(envs)), **flag, **{name: walk.capture(v, name) for name, v in attributes.items()}}
        if not _asks(envs):
            return tree
        asked = [
            (remote.request("capture", walk, None, "envs", index, view="resettable"), None)
            for index in range(envs.num_envs)
        ]
        return {**tree, "envs": [remote.taken(reply, walk).tree for reply, _ in envs.ask(asked)]}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Same classes and wrappers, in the same order, and attributes that fit."""
        saved = tree.get(CLASS) if isinstance(tree, dict) else None
        if saved != name_of(type(obj.envs)):
            advice = "Build the environment as the run did: the same classes and wrappers, in the same order."
            return [walk.finding(str(saved or summary(tree)), name_of(type(obj.envs)), advice)]
        elsewhere = tree["envs"] if _asks(obj.envs) else []
        if elsewhere and len(elsewhere) != obj.envs.num_envs:
            counts = (f"list of {len(elsewhere)}", f"list of {obj.envs.num_envs}")
            return [walk.finding(*counts, "Build as many environments as the run had.", "envs")]
        findings = self.check_children(_attributes(obj.envs), _without(tree, obj.envs), walk)
        asked = [
            (remote.request("check", walk, part, "envs", index, view="resettable"), None)
            for index, part in enumerate(elsewhere)
        ]
        replies = obj.envs.ask(asked) if asked else []
        return findings + [finding for reply, _ in replies for finding in remote.taken(reply, walk).findings]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place. The reset is up to the run."""
        envs = obj.envs
        for name, value in _attributes(envs).items():
            restored = walk.restore(value, tree[name], name)
            if restored is not value and not _is_marked(value):
                vars(envs)[name] = restored
        restart_clock(envs)
        obj.on_cadence = tree.get(_ON_CADENCE)
        if _asks(envs):
            asked = [
                (remote.request("restore", walk, part, "envs", index, view="resettable"), None)
                for index, part in enumerate(tree["envs"])
            ]
            for index, (reply, _) in enumerate(envs.ask(asked)):
                if reply.problem is not None:
                    raise remote.not_restored(reply, (*walk.path, "envs", index))
        return obj


def _attributes(envs: Any) -> Children:
    """What outlives a reset, by name."""
    if _is_wrapper(envs):
        return {name: Marked(value) if name == "env" else value for name, value in state_of(envs).items()}
    spaces = {name: getattr(envs, name) for name in _SPACES if hasattr(envs, name)}
    if isinstance(envs, gymnasium.vector.SyncVectorEnv):
        return {**spaces, "envs": [Marked(env) for env in envs.envs]}
    return spaces


def _is_marked(value: Any) -> bool:
    return isinstance(value, Marked) or (isinstance(value, list) and any(isinstance(item, Marked) for item in value))


def _without(tree: dict[str, Tree], envs: Any) -> dict[str, Tree]:
    skipped = {CLASS, _ON_CADENCE, *(("envs",) if _asks(envs) else ())}
    return {name: part for name, part in tree.items() if name not in skipped}


def _is_wrapper(envs: Any) -> bool:
    return isinstance(envs, WRAPPERS)


def _asks(envs: Any) -> bool:
    """Whether the environments live in workers of `perdure.gym`."""
    return isinstance(envs, gymnasium.vector.AsyncVectorEnv) and hasattr(envs, "ask")


def _refuse_unknown(envs: Any, walk: Walk) -> None:
    place = format_path(walk.path)
    if not isinstance(envs, gymnasium.Env | gymnasium.vector.VectorEnv):
        raise CaptureError(
            f"{place}: boundary-reset knows environments of Gymnasium, not a {type(envs).__qualname__}: what its "
            "wrappers count would be lost. Wrap it in a gymnasium.Env; of Stable-Baselines3's vectors, make one of "
            "perdure.gym.make_vec."
        )
    if isinstance(envs, gymnasium.vector.AsyncVectorEnv) and not _asks(envs):
        raise CaptureError(
            f"{place}: what wrappers count in the processes of Gymnasium's AsyncVectorEnv cannot be reached. Build it "
            'with perdure.gym.make_vec(factories, mode="async").'
        )
