"""Gymnasium environments of this process, their wrappers, vector environments and spaces, restored in place.

An environment is what its attributes hold. They are restored into one that was built the same way, whatever it did
since: it need not have been reset. Plain Python objects count by what they hold. What is none and has no adapter (an
engine written in C) is refused when it is captured, never left out.
"""

import time
from typing import Any

import gymnasium
import numpy as np

from perdure.adapters.adapter import Kind
from perdure.adapters.containers import Children, Container
from perdure.adapters.gymnasium_attributes import note_choices, note_space, refuse_hidden_state, state_of
from perdure.adapters.gymnasium_display import is_display
from perdure.adapters.gymnasium_slots import check_slot, restore_slot
from perdure.adapters.gymnasium_versions import STATISTICS_OF_SINGLE, STATISTICS_OF_VECTORS, WRAPPERS
from perdure.adapters.state_methods import STEP, GetState, SpeaksForItself, StateDict
from perdure.adapters.walk import Walk
from perdure.contract.naming import name_of
from perdure.errors import CaptureError, Finding, UnknownObjectError
from perdure.tree.diff import summary
from perdure.tree.leaves import PLAIN_TYPES, Tree
from perdure.tree.paths import format_path

CLASS = "class"
"""Beside the attributes, of which none can have this name."""


class ByAttributes(Container):
    """An object that is the attributes it holds."""

    kind: Kind = "live"
    has_identity = True
    takes_objects = True

    def attributes(self, obj: Any) -> Children:
        """What is captured, by name, sorted."""
        return state_of(obj)

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The class, and a dict of the attributes' trees."""
        return {CLASS: name_of(type(obj)), **{name: walk.capture(v, name) for name, v in self.attributes(obj).items()}}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The class must be the same, and the attributes; those that an environment sets as it goes may be missing."""
        finding = _other_class(obj, tree, walk)
        if finding is not None:
            return [finding]
        attributes = self.attributes(obj)
        findings = []
        for name in sorted((attributes.keys() | tree.keys()) - {CLASS}):
            if name in tree:
                findings += check_slot(attributes.get(name), tree[name], name, walk)
            elif not is_display(attributes[name]):
                advice = "Build it as the run did, and hand it in before it has been used."
                findings.append(walk.finding("no such attribute", type(attributes[name]).__name__, advice, name))
        return findings

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the attributes that are values, and restores the others in place."""
        attributes = self.attributes(obj)
        for name in sorted((attributes.keys() | tree.keys()) - {CLASS}):
            if name in tree:
                restored = restore_slot(attributes.get(name), tree[name], name, walk)
                if name not in attributes or restored is not attributes[name]:
                    vars(obj)[name] = restored
            elif not is_display(attributes[name]):  # only when what was before is put back
                del vars(obj)[name]
        return obj


class RunningStatistics(ByAttributes):
    """`gymnasium.wrappers.utils.RunningMeanStd`: mean, variance and count."""

    id = "gymnasium-running-statistics"


class Space(ByAttributes):
    """Spaces: their random number generators are state, everything else about them is a fact."""

    id = "gymnasium-space"

    def attributes(self, obj: Any) -> Children:
        """The generator, None before the first sample, and the spaces inside."""
        parts = {name: value for name, value in sorted(vars(obj).items()) if _holds_spaces(value)}
        return {"_np_random": vars(obj).get("_np_random"), **parts}

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The generators; what the space contains is a fact."""
        note_space(obj, walk)
        return super().capture(obj, walk)


class Env(ByAttributes):
    """Single and vector environments, and wrappers of both."""

    id = "gymnasium-env"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Its attributes, or what the class says of itself; how it was built is told by facts.

        Raises:
            CaptureError: it holds something that cannot be captured exactly; the message names it.
        """
        _refuse_processes(obj, walk)
        note_choices(obj, walk)
        own = _own_methods(obj)
        if own is not None:
            inner = {"env": walk.capture(obj.env, "env")} if _is_wrapper(obj) else {}
            spaces = {name: walk.capture(space, name) for name, space in _own_spaces(obj).items()}
            return {CLASS: name_of(type(obj)), **inner, **spaces, **own.capture(obj, walk)}
        refuse_hidden_state(obj, self.attributes(obj), walk)
        try:
            return super().capture(obj, walk)
        except UnknownObjectError as error:
            if _MEANING in str(error):  # an environment further inside has said it
                raise
            raise UnknownObjectError(f"{error} {_MEANING}") from error

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Same class, same wrappers in the same order, attributes that fit."""
        own = _own_methods(obj)
        if own is None:
            return super().check(obj, tree, walk)
        finding = _other_class(obj, tree, walk)
        if finding is not None:
            return [finding]
        inner = walk.check(obj.env, tree["env"], "env") if _is_wrapper(obj) else []
        if STEP not in tree:  # the class did not speak for itself in the run
            return inner + own.check(obj, None, walk)
        spaces = self.check_children(_own_spaces(obj), _without(tree, CLASS, "env", STEP), walk)
        return inner + spaces + own.check(obj, {STEP: tree[STEP]}, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place. What wrappers know of real time starts anew."""
        own = _own_methods(obj)
        if own is None:
            super().restore(obj, tree, walk)
            restart_clock(obj)
            return obj
        if _is_wrapper(obj):
            walk.restore(obj.env, tree["env"], "env")
        self.restore_children(_own_spaces(obj), _without(tree, CLASS, "env", STEP), walk)
        return own.restore(obj, {STEP: tree[STEP]}, walk)


def _other_class(obj: Any, tree: Tree, walk: Walk) -> Finding | None:
    saved = tree.get(CLASS) if isinstance(tree, dict) else None
    if saved == name_of(type(obj)):
        return None
    advice = "Build the environment as the run did: the same classes and wrappers, in the same order."
    return walk.finding(str(saved or summary(tree)), name_of(type(obj)), advice)


def _without(tree: dict[str, Tree], *names: str) -> dict[str, Tree]:
    return {name: part for name, part in tree.items() if name not in names}


def _is_wrapper(obj: Any) -> bool:
    return isinstance(obj, WRAPPERS)


def _own_methods(obj: Any) -> SpeaksForItself | None:
    """How a class speaks for itself. Not the object: a wrapper forwards what it does not know."""
    for adapter in (StateDict(), GetState()):
        if all(callable(getattr(type(obj), name, None)) for name in (adapter.getter, adapter.setter)):
            return adapter
    return None


def _own_spaces(obj: Any) -> Children:
    """Spaces of what speaks for itself: scripts draw actions from them, and its state tells nothing of that."""
    return {name: value for name, value in state_of(obj).items() if isinstance(value, gymnasium.Space)}


def _holds_spaces(value: Any) -> bool:
    if type(value) in PLAIN_TYPES or type(value) is np.ndarray:  # most are: this runs at every boundary
        return False
    if isinstance(value, dict):
        return any(map(_holds_spaces, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_spaces, value))
    return isinstance(value, gymnasium.Space)


def _refuse_processes(obj: Any, walk: Walk) -> None:
    if isinstance(obj, gymnasium.vector.AsyncVectorEnv):
        raise CaptureError(
            f"{format_path(walk.path)}: Gymnasium's AsyncVectorEnv steps its environments in other processes, where "
            'their state cannot be reached. Build them with perdure.gym.make_vec(factories, mode="async"), or step '
            "them in this process with a SyncVectorEnv."
        )


_MEANING = (
    "Part of this environment's state would be missing from every checkpoint, and no resume could be exact. Where the "
    "same seed and the same actions always lead to the same state, wrap the environment in perdure.gym.Recorded(env)."
)


def restart_clock(obj: Any) -> None:
    """Lets what a wrapper knows of real time begin anew."""
    now = time.perf_counter()
    if not isinstance(obj, (*STATISTICS_OF_SINGLE, *STATISTICS_OF_VECTORS)):
        return
    if isinstance(obj, STATISTICS_OF_VECTORS) or "episode_start_times" in vars(obj):  # in 0.29 for both
        obj.episode_start_times = np.full(obj.num_envs, now)
    else:
        obj.episode_start_time = now
    if "time_queue" in vars(obj):
        obj.time_queue.clear()
