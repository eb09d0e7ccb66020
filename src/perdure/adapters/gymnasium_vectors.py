"""The vector environments of `perdure.gym`: one tree, whether the environments live here or in processes of their own.

A checkpoint of one fits the other: which environments, which of them wait for their reset, the observations of the last
step, and the spaces of the batch.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import iterate

from perdure.adapters import remote
from perdure.adapters.containers import Children
from perdure.adapters.gymnasium_attributes import note_choices, state_of
from perdure.adapters.gymnasium_envs import CLASS, ByAttributes
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree
from perdure.tree.paths import Step

_NAME = "perdure.gym vector environment"
_PARTS = ("envs", "pending", "observations")
_INTERNALS = frozenset(
    {"_autoreset_envs", "_env_obs", "_observations", "_rewards", "_terminations", "_truncations", "envs"}
    | {"_state", "context", "daemon", "error_queue", "observations", "parent_pipes", "processes", "shared_memory"}
    | {"closed", "max_concurrency", "worker"}
)
"""Attributes of Gymnasium's own that the parts above stand for, or that say how processes were started."""

_ADVICE = "Build as many environments as the run had, with perdure.gym.make_vec."


class _Vector(ByAttributes):
    """What both share: attributes beside the environments, the pending resets and the observations."""

    id = "perdure-gym-vector"

    def attributes(self, obj: Any) -> Children:
        """Whatever else the object holds: the spaces of the batch, and what a script has set."""
        internals = _INTERNALS | getattr(type(obj), "INTERNALS", frozenset())
        return {name: value for name, value in state_of(obj).items() if name not in internals}

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The parts, and a dict of the attributes' trees.

        Raises:
            CaptureError: an environment cannot be captured.
        """
        note_choices(obj, walk)
        envs, pending = self.capture_envs(obj, walk)
        attributes = {name: walk.capture(value, name) for name, value in self.attributes(obj).items()}
        observations = walk.capture(self.observations(obj), "observations")
        return {CLASS: _NAME, "envs": envs, "pending": pending, "observations": observations, **attributes}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """As many environments, each of which fits, and attributes that do."""
        if not isinstance(tree, dict) or tree.get(CLASS) != _NAME:
            advice = "Build the environments with perdure.gym.make_vec where the run did, and not where it did not."
            saved = tree.get(CLASS) if isinstance(tree, dict) else None
            return [walk.finding(str(saved or summary(tree)), _NAME, advice)]
        if len(tree["envs"]) != obj.num_envs:
            saved, here = (f"list of {count}" for count in (len(tree["envs"]), obj.num_envs))
            return [walk.finding(saved, here, _ADVICE, "envs")]
        attributes = {name: part for name, part in tree.items() if name not in (CLASS, *_PARTS)}
        findings = self.check_envs(obj, tree["envs"], walk)
        findings += self.check_children(self.attributes(obj), attributes, walk)
        return findings + walk.check(self.observations(obj), tree["observations"], "observations")

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place, the buffer of the observations too: whoever holds it sees them."""
        for name, value in self.attributes(obj).items():
            restored = walk.restore(value, tree[name], name)
            if restored is not value:
                vars(obj)[name] = restored
        held = self.observations(obj)
        restored = _filled(held, tree["observations"], walk, "observations")
        if restored is not held:
            self.set_observations(obj, restored)
        self.restore_envs(obj, tree["envs"], tree["pending"], walk)
        return obj

    def observations(self, obj: Any) -> Any:
        """The buffer of the last step's observations."""
        raise NotImplementedError

    def set_observations(self, obj: Any, observations: Any) -> None:
        """Puts another one in its place."""
        raise NotImplementedError

    def capture_envs(self, obj: Any, walk: Walk) -> tuple[Tree, list[bool]]:
        """The environments' trees, and which of them have ended and were not reset since."""
        raise NotImplementedError

    def check_envs(self, obj: Any, trees: Sequence[Tree], walk: Walk) -> list[Finding]:
        """Why the trees do not fit."""
        raise NotImplementedError

    def restore_envs(self, obj: Any, trees: Sequence[Tree], pending: Sequence[bool], walk: Walk) -> None:
        """Restores the environments; the observations are there already."""
        raise NotImplementedError


class InThisProcess(_Vector):
    """`perdure.gym.SyncVectorEnv`."""

    def observations(self, obj: Any) -> Any:
        """Gymnasium's buffer."""
        return obj._observations

    def set_observations(self, obj: Any, observations: Any) -> None:
        """Replaces it."""
        obj._observations = observations

    def capture_envs(self, obj: Any, walk: Walk) -> tuple[Tree, list[bool]]:
        """Walks them here."""
        return walk.capture(obj.envs, "envs"), obj._autoreset_envs.tolist()

    def check_envs(self, obj: Any, trees: Sequence[Tree], walk: Walk) -> list[Finding]:
        """Checks them here."""
        return walk.check(obj.envs, trees, "envs")

    def restore_envs(self, obj: Any, trees: Sequence[Tree], pending: Sequence[bool], walk: Walk) -> None:
        """Restores them here. The batch is made of single observations at a reset by mask."""
        walk.restore(obj.envs, trees, "envs")
        obj._autoreset_envs = np.array(pending, np.bool_)
        obj._env_obs = [copy.deepcopy(row) for row in iterate(obj.observation_space, obj._observations)]


class InOtherProcesses(_Vector):
    """`perdure.gym.AsyncVectorEnv`: each worker captures, checks and restores its own environment."""

    def observations(self, obj: Any) -> Any:
        """Gymnasium's buffer, which workers write to if memory is shared."""
        return obj.observations

    def set_observations(self, obj: Any, observations: Any) -> None:
        """Replaces it; not where memory is shared, for workers write to that."""
        obj.observations = observations

    def capture_envs(self, obj: Any, walk: Walk) -> tuple[Tree, list[bool]]:
        """All at the same time."""
        replies = obj.ask([(remote.request("capture", walk, None, "envs", i), None) for i in range(obj.num_envs)])
        return [remote.taken(reply, walk).tree for reply, _ in replies], [pending for _, pending in replies]

    def check_envs(self, obj: Any, trees: Sequence[Tree], walk: Walk) -> list[Finding]:
        """All of them, before any is changed."""
        replies = obj.ask([(remote.request("check", walk, tree, "envs", i), None) for i, tree in enumerate(trees)])
        return [finding for reply, _ in replies for finding in remote.taken(reply, walk).findings]

    def restore_envs(self, obj: Any, trees: Sequence[Tree], pending: Sequence[bool], walk: Walk) -> None:
        """All at the same time; each is told whether its reset is pending, and its last observation."""
        rows = iterate(obj.observation_space, obj.observations)
        asked = [
            (remote.request("restore", walk, tree, "envs", i), (flag, row))
            for i, (tree, flag, row) in enumerate(zip(trees, pending, rows, strict=True))
        ]
        for index, (reply, _) in enumerate(obj.ask(asked)):
            if reply.problem is not None:
                raise remote.not_restored(reply, (*walk.path, "envs", index))


def _filled(held: Any, tree: Tree, walk: Walk, *below: Step) -> Any:
    """The observations, in the arrays that hold them; other ones where an observation is no array."""
    if not _is_of_arrays(held):
        return walk.restore(held, tree, *below)
    if isinstance(held, np.ndarray):
        held[...] = tree.value
    else:
        for step, part in held.items() if isinstance(held, dict) else enumerate(held):
            _filled(part, tree[step], walk, *below, step)
    return walk.stands(held, *below)


def _is_of_arrays(held: Any) -> bool:
    if isinstance(held, dict | tuple):
        return all(map(_is_of_arrays, held.values() if isinstance(held, dict) else held))
    return isinstance(held, np.ndarray)
