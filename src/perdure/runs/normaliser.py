"""What a policy's observations were normalised by: statistics out of the run's environments, as they stood."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perdure.errors import DamagedError
from perdure.runs.environments import main_environment_name
from perdure.tree.leaves import Array, Tree
from perdure.tree.snapshot import Component, Snapshot

NAME = "observation_normaliser"
"""The component of a policy that holds it."""

ADAPTER = "observation-normaliser"

GYMNASIUM = "class gymnasium:NormalizeObservation"
SB3 = "class stable_baselines3:VecNormalize"

_WHOLE = ""
"""Stands for the key of an observation that has none."""


@dataclass(frozen=True)
class Statistics:
    """Of one observation, or of one part of a dict of them; arrays of its shape."""

    mean: np.ndarray
    variance: np.ndarray
    count: float
    """How many observations were seen, and the little that the wrapper begins with."""


@dataclass(frozen=True)
class Normaliser:
    """Normalises observations as the run's own wrapper did at its last boundary; its statistics do not change.

    The numbers are the wrapper's, bit for bit: those of `NormalizeObservation` of Gymnasium, of one environment or of a
    vector, or of `VecNormalize` of Stable-Baselines3.
    """

    wrapper: str
    """The class of the wrapper."""
    statistics: Mapping[str, Statistics]
    """By key, of observations that are dicts; else under the empty key."""
    epsilon: float
    """Added to the variance."""
    clip: float | None
    """Greatest absolute value; None: any."""

    def __call__(self, observation: Any) -> Any:
        """Of one observation, or a batch: arrays of the observation's shape, behind any leading axes."""
        if _WHOLE in self.statistics:
            return self._normalised(observation, self.statistics[_WHOLE])
        return {
            key: self._normalised(part, self.statistics[key]) if key in self.statistics else part
            for key, part in observation.items()
        }

    def _normalised(self, observation: Any, by: Statistics) -> np.ndarray:
        values = (observation - by.mean) / np.sqrt(by.variance + self.epsilon)
        if self.clip is not None:
            values = np.clip(values, -self.clip, self.clip)
        # Gymnasium gives what its statistics are: float32 since 1.0, float64 before.
        return values.astype(np.float32 if self.wrapper == SB3 else by.mean.dtype)


@dataclass(frozen=True)
class Found:
    """What the environments of a run normalise by."""

    normaliser: Normaliser | None
    """Of all of them."""
    problem: str | None = None
    """Why there is none, though they normalise."""


def with_normaliser(policy: Snapshot, environments: Snapshot) -> tuple[Snapshot, str | None]:
    """The policy with what its observations are normalised by, if they are.

    Args:
        policy: its components.
        environments: those of the run, whole.

    Returns:
        The policy, and what to tell: why the statistics are not in it.
    """
    found = found_in(environments)
    if found.normaliser is None:
        return policy, found.problem
    if NAME in policy.components:
        return policy, f"{NAME!r} is a component of the run's own, and the name of it"
    components = {**policy.components, NAME: Component(ADAPTER, _to_tree(found.normaliser))}
    return Snapshot(dict(sorted(components.items())), policy.env_steps, policy.updates, policy.boundary), None


def found_in(environments: Snapshot) -> Found:
    """What the environments that a run trains in normalise observations by; nothing, most often."""
    name = main_environment_name(environments.components)
    if name is None:
        return Found(None)
    nodes = list(_normalising(environments.components[name].tree))
    if not nodes:
        return Found(None)
    if any(count > 1 for _, _, count in nodes):
        each = max(count for _, _, count in nodes)
        return Found(None, f"each of {each} environments has statistics of its own, and which are the policy's is open")
    if len(nodes) > 1:
        return Found(None, f"{len(nodes)} normalisers stand around one another")
    path, node, _ = nodes[0]
    return _of(environments, name, path, node)


def _of(environments: Snapshot, name: str, path: str, node: Mapping[str, Any]) -> Found:
    facts = environments.components[name].facts
    is_sb3 = node["class"] == SB3
    rms = environments.resolve(node["obs_rms"])
    parts = {_WHOLE: rms} if "mean" in rms else rms
    statistics = {key: _statistics(environments, environments.resolve(part)) for key, part in parts.items()}
    epsilon = float(facts[f"{path}epsilon"]) if is_sb3 else float(node["epsilon"])
    clip = float(facts[f"{path}clip_obs"]) if is_sb3 else None
    return Found(Normaliser(node["class"], statistics, epsilon, clip))


def _statistics(environments: Snapshot, part: Mapping[str, Any]) -> Statistics:
    mean, variance, count = (environments.resolve(part[key]) for key in ("mean", "var", "count"))
    return Statistics(
        mean.value.copy(), variance.value.copy(), float(count.value if isinstance(count, Array) else count)
    )


def _normalising(tree: Tree, path: str = "", count: int = 1) -> Iterator[tuple[str, dict[str, Any], int]]:
    """The wrappers that normalise observations: place, node, and among how many environments they stand."""
    while isinstance(tree, dict):
        if tree.get("class") == GYMNASIUM or (tree.get("class") == SB3 and tree.get("norm_obs") is True):
            yield path, tree, count
        inner = tree.get("envs")
        if isinstance(inner, list):
            for index, env in enumerate(inner):
                yield from _normalising(env, f"{path}envs/{index}/", count * len(inner))
            return
        step = "env" if "env" in tree else "venv"
        tree, path = tree.get(step), f"{path}{step}/"


def _to_tree(normaliser: Normaliser) -> Tree:
    return {
        "wrapper": normaliser.wrapper,
        "epsilon": normaliser.epsilon,
        "clip": normaliser.clip,
        "statistics": {
            key: {"mean": Array(part.mean), "variance": Array(part.variance), "count": part.count}
            for key, part in normaliser.statistics.items()
        },
    }


def normaliser_of(policy: Snapshot) -> Normaliser | None:
    """The one that a policy holds.

    Raises:
        DamagedError: there is something else in its place.
    """
    part = policy.components.get(NAME)
    if part is None or part.adapter != ADAPTER:
        return None
    try:
        tree: Any = part.tree
        statistics = {
            key: Statistics(each["mean"].value, each["variance"].value, each["count"])
            for key, each in tree["statistics"].items()
        }
        return Normaliser(tree["wrapper"], statistics, tree["epsilon"], tree["clip"])
    except (AttributeError, KeyError, TypeError) as error:
        raise DamagedError(f"{NAME}: not a normaliser ({error!r})") from error
