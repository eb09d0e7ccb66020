"""Environments that are replayed since their last reset: what the recording of one is, as a tree."""

from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.gymnasium_attributes import note_choices, note_space
from perdure.adapters.gymnasium_generators import generators_of, states_of
from perdure.adapters.walk import Walk
from perdure.contract.naming import name_of
from perdure.errors import CaptureError, Finding, RestoreError
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree
from perdure.tree.paths import format_path


@dataclass
class Recording:
    """What happened since the last reset."""

    before: dict[str, Tree] | None = None
    """States of the environment's generators before that reset; None before the first one."""
    seed: int | None = None
    """Of that reset."""
    options: Any = None
    """Of that reset."""
    actions: list[Any] = field(default_factory=list)
    """One for each step."""
    outcomes: list[int] = field(default_factory=list)
    """For each step a CRC-32 of reward, terminated and truncated."""
    last: str = ""
    """A digest of the last observation, as the reset or the last step returned it."""


class RecordedEnv(ExactAdapter):
    """`perdure.gym.Recorded`."""

    id = "gymnasium-recorded"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The recording, and the states of all generators now; how the layers were built is told by facts.

        Raises:
            CaptureError: there are more steps than the limit.
        """
        recording: Recording = obj.recording
        if obj.steps_since_reset > obj.replay_limit_steps:
            raise CaptureError(
                f"{format_path(walk.path)}: {obj.steps_since_reset:,} steps since the last reset, more than "
                f"replay_limit_steps={obj.replay_limit_steps:,}, so that no checkpoint can be exact. Let episodes end "
                "sooner (gymnasium.wrappers.TimeLimit), or give perdure.gym.Recorded a higher limit."
            )
        for space in ("observation_space", "action_space"):  # what a policy is compared with
            walk.at(space, lambda space=space: note_space(getattr(obj, space), walk))
        return {
            "layers": walk.at("env", lambda: _note_layers(obj.env, walk)),
            "before": recording.before,
            "seed": recording.seed,
            "options": walk.capture(recording.options, "options"),
            "actions": _packed(recording.actions, walk),
            "outcomes": Array(np.array(recording.outcomes, np.uint32), immutable=True),
            "last": recording.last,
            "now": states_of(generators_of(obj.env)),
        }

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same layers."""
        advice = "Build the environment as the run did: the same classes and wrappers, in the same order."
        if not isinstance(tree, dict) or "layers" not in tree:
            return [walk.finding(summary(tree), "a perdure.gym.Recorded", advice)]
        found = [name_of(type(layer)) for layer in _layers(obj.env)]
        return [] if tree["layers"] == found else [walk.finding(str(tree["layers"]), str(found), advice)]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Resets and replays.

        Raises:
            RestoreError: the replay gives something else than the run saw; the message names the step.
        """
        recording = Recording(
            before=tree["before"],
            seed=tree["seed"],
            options=walk.rebuild_at(tree["options"], "options"),
            actions=_unpacked(tree["actions"], walk),
            outcomes=tree["outcomes"].value.tolist(),
            last=tree["last"],
        )
        try:
            obj.replay(replace(recording), tree["now"])
        except RestoreError as error:
            raise RestoreError(f"{format_path(walk.path)}: {error}") from error
        return obj

    def fidelity(self, obj: Any) -> tuple[str, str]:
        """Replayed."""
        return "exact-replay", "its engine is opaque: a resume resets it and repeats the actions since"


def _layers(env: Any) -> list[Any]:
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _note_layers(env: Any, walk: Walk) -> list[str]:
    """Notes how each layer was built, at the place that it would have without the recorder; returns the classes."""
    note_choices(env, walk)
    inner = walk.at("env", lambda: _note_layers(env.env, walk)) if isinstance(env, gymnasium.Wrapper) else []
    return [name_of(type(env)), *inner]


def _packed(actions: list[Any], walk: Walk) -> Tree:
    """One array where all actions are numbers or arrays of one kind, else a list of trees."""
    kinds = {
        (type(action), getattr(action, "dtype", None), np.shape(action)) for action in actions if _is_number(action)
    }
    if len(kinds) != 1 or not all(map(_is_number, actions)):
        return [walk.capture(action, at) for at, action in enumerate(actions)]
    ((kind, _, _),) = kinds
    name = "int" if kind is int else "array" if kind is np.ndarray else "scalar"
    return {"kind": name, "values": Array(np.array(actions), immutable=True)}


def _is_number(action: Any) -> bool:
    return type(action) in (int, np.ndarray) or isinstance(action, np.generic)


def _unpacked(tree: Tree, walk: Walk) -> list[Any]:
    if isinstance(tree, list):
        return [
            walk.at("actions", lambda at=at, action=action: walk.rebuild_at(action, at))
            for at, action in enumerate(tree)
        ]
    values = tree["values"].value
    if tree["kind"] == "int":
        return values.tolist()
    return [np.array(value) for value in values] if tree["kind"] == "array" else list(values)
