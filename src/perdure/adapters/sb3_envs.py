"""Vector environments of Stable-Baselines3, their wrappers, and its `Monitor`, restored in place.

Durations and files of logs are no state, as for Gymnasium's own wrappers. Neither is `buf_infos` of a `DummyVecEnv`:
every step writes all of it before anybody reads it.
"""

import atexit
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import stable_baselines3

from perdure.adapters import remote
from perdure.adapters.containers import Children
from perdure.adapters.gymnasium_attributes import CHOSEN, RENDERING, refuse_hidden_state, state_of
from perdure.adapters.gymnasium_envs import ByAttributes, Env
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError, Finding, WorkerDiedError
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

_NO_STATE = frozenset({"actions", "buf_infos", "class_attributes", "closed", "results_writer", "t_start", "waiting"})
_PROCESSES = frozenset({"processes", "remotes", "work_remotes"})
_CHOSEN_HERE = ("clip_obs", "clip_reward", "epsilon", "gamma", "info_keywords", "n_stack", "norm_obs_keys")
"""Arguments of wrappers that Stable-Baselines3 keeps as attributes: compared, not restored."""


class Statistics(ByAttributes):
    """`RunningMeanStd`: mean, variance and count."""

    id = "sb3-running-statistics"


class StackedObservations(ByAttributes):
    """Frames; their layout is compared."""

    id = "sb3-stacked-observations"

    def attributes(self, obj: Any) -> Children:
        """The frames of one space, or the stacks of several, and the spaces."""
        return {name: value for name, value in super().attributes(obj).items() if name not in _LAYOUT}

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The frames; how they are laid out is told by facts."""
        for name in _LAYOUT & vars(obj).keys():
            walk.fact(repr(vars(obj)[name]), name)
        return super().capture(obj, walk)


_LAYOUT = frozenset({"channels_first", "n_stack", "repeat_axis", "stack_dimension", "stacked_shape"})


class VecEnv(Env):
    """Vector environments whose environments live in this process, and wrappers of all of them."""

    id = "sb3-vec-env"
    walks_after = 1  # policies share its spaces, and are exported without it

    def attributes(self, obj: Any) -> Children:
        """Whatever is state; the buffers of observations without their keys, of which one may be None."""
        skipped = CHOSEN | RENDERING | _NO_STATE | _PROCESSES | frozenset(_CHOSEN_HERE)
        attributes = {name: value for name, value in sorted(vars(obj).items()) if name not in skipped}
        if "buf_obs" in attributes:
            attributes["buf_obs"] = list(attributes["buf_obs"].values())
        return attributes

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Its attributes; how it was built is told by facts.

        Raises:
            CaptureError: it holds something that cannot be captured exactly; the message names it.
        """
        walk.facts[(walk.path[0], "stable_baselines3")] = stable_baselines3.__version__
        for name in _CHOSEN_HERE:
            if name in vars(obj):
                walk.fact(repr(vars(obj)[name]), name)
        refuse_hidden_state(obj, self.attributes(obj), walk)
        return ByAttributes.capture(self, obj, walk)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Same class, same wrappers in the same order, attributes that fit."""
        return ByAttributes.check(self, obj, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place."""
        buffers = vars(obj).get("buf_obs")
        ByAttributes.restore(self, obj, tree, walk)
        if buffers is not None:
            buffers.update(zip(buffers, obj.buf_obs, strict=True))
            obj.buf_obs = buffers
        return obj


class SubprocVecEnv(VecEnv):
    """Environments in other processes, each inside a `perdure.gym.Snapshot`, which captures and restores it there."""

    id = "sb3-subproc-vec-env"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The attributes, and the environments' trees.

        Raises:
            CaptureError: an environment is not inside a `Snapshot`, or cannot be captured.
            WorkerDiedError: a worker is dead.
        """
        self._refuse_without_snapshot(obj, walk)
        tree = super().capture(obj, walk)
        replies = self._ask(obj, walk, "capture", [None] * obj.num_envs)
        return {**tree, "envs": [remote.taken(reply, walk).tree for reply in replies]}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """All environments are checked, before any is changed."""
        envs, rest = _apart(tree)
        findings = super().check(obj, rest, walk)
        if findings and envs is None:
            return findings
        if envs is None or len(envs) != obj.num_envs:
            saved = "none" if envs is None else f"list of {len(envs)}"
            advice = "Build as many environments as the run had."
            return [*findings, walk.finding(saved, f"list of {obj.num_envs}", advice, "envs")]
        replies = self._ask(obj, walk, "check", envs)
        return findings + [finding for reply in replies for finding in remote.taken(reply, walk).findings]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place, in the workers too."""
        envs, rest = _apart(tree)
        super().restore(obj, rest, walk)
        for index, reply in enumerate(self._ask(obj, walk, "restore", envs or ())):
            if reply.problem is not None:
                raise remote.not_restored(reply, (*walk.path, "envs", index))
        return obj

    def _ask(self, obj: Any, walk: Walk, verb: remote.Verb, trees: Sequence[Tree]) -> list[remote.Reply]:
        with _told_of_deaths(obj):
            asked = [remote.request(verb, walk, tree, "envs", index) for index, tree in enumerate(trees)]
            return [obj.env_method("answer_perdure", one, indices=index)[0] for index, one in enumerate(asked)]

    def _refuse_without_snapshot(self, obj: Any, walk: Walk) -> None:
        """A worker would die of a method that is not there, so that its presence is asked for first."""
        _end_at_exit(obj)
        with _told_of_deaths(obj):
            is_there = obj.has_attr("answer_perdure")
            outermost = set(obj.env_method("class_name")) if is_there else set()
        if outermost != {"Snapshot"}:
            raise CaptureError(
                f"{format_path(walk.path)}: a SubprocVecEnv steps its environments in other processes, where their "
                "state cannot be reached. Make perdure.gym.Snapshot the outermost wrapper of each: "
                "make_vec_env(…, vec_env_cls=SubprocVecEnv, wrapper_class=perdure.gym.Snapshot)."
            )


_ended_at_exit: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Vectors whose workers a program that leaves without `close` ends; the list of such programs is a process's."""


def _end_at_exit(obj: Any) -> None:
    """Inside a `Snapshot`, workers let SIGTERM pass, with which Python ends them at its own end, and waits for them."""
    if obj not in _ended_at_exit:
        _ended_at_exit.add(obj)
        atexit.register(_kill, tuple(obj.processes), os.getpid())  # later than Python's own, hence called before


def _kill(processes: Sequence[Any], pid: int) -> None:
    for process in processes if os.getpid() == pid else ():
        process.kill()


def _apart(tree: Tree) -> tuple[list[Tree] | None, Tree]:
    """The environments' trees, if there are some, and the rest."""
    if not isinstance(tree, dict) or not isinstance(tree.get("envs"), list):
        return None, tree
    return tree["envs"], {name: part for name, part in tree.items() if name != "envs"}


@contextmanager
def _told_of_deaths(obj: Any) -> Iterator[None]:
    for index, process in enumerate(obj.processes):
        # Forked workers hold each other's pipes open: reading from a dead one would wait for ever.
        if not process.is_alive():
            raise WorkerDiedError(index, process.exitcode)
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        for index, process in enumerate(obj.processes):
            process.join(1.0 / obj.num_envs)  # the pipe breaks a moment before the exit code is known
            if not process.is_alive():
                raise WorkerDiedError(index, process.exitcode) from error
        raise


_LISTS: dict[str, Callable[[list[Any]], np.ndarray]] = {
    "episode_lengths": lambda items: np.array(items, np.int64),
    "episode_returns": lambda items: np.array(items, np.float64),
    "rewards": lambda items: np.array(items, np.float64),
}
"""Lists of `Monitor` that grow with the training: each is saved as one array, not as a leaf an item."""


class Monitor(Env):
    """`Monitor`, a wrapper of single environments. Its `episode_times` begin empty, for they are durations."""

    id = "sb3-monitor"

    def attributes(self, obj: Any) -> Children:
        """What it counts, without durations and the file it writes to."""
        skipped = {"episode_times", "results_writer", "t_start"}
        attributes = {name: value for name, value in state_of(obj).items() if name not in skipped}
        return {name: _LISTS[name](value) if name in _LISTS else value for name, value in attributes.items()}

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place."""
        super().restore(obj, tree, walk)
        for name in _LISTS.keys() & vars(obj).keys():
            if isinstance(vars(obj)[name], np.ndarray):
                vars(obj)[name] = vars(obj)[name].tolist()
        obj.episode_times = []
        return obj
