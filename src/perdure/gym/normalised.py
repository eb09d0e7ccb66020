"""Environments whose observations are normalised by what a policy holds, for evaluations."""

from typing import Any

import gymnasium
import numpy as np

from perdure import Normaliser, Policy, UsageError

NORMALISES = "class gymnasium:NormalizeObservation"


class Normalised(gymnasium.ObservationWrapper):
    """Shows observations as the run's wrapper did when the policy was exported; nothing is updated."""

    def __init__(self, env: gymnasium.Env[Any, Any], normaliser: Normaliser) -> None:
        """Around an environment of the run's kind, without a normaliser of its own."""
        super().__init__(env)
        self._normaliser = normaliser
        self.observation_space = _space(env.observation_space, normaliser)

    def observation(self, observation: Any) -> Any:
        """By the policy's statistics."""
        return self._normaliser(observation)


def _space(space: gymnasium.Space[Any], normaliser: Normaliser) -> gymnasium.Space[Any]:
    """As the run's wrapper left it: Gymnasium's has no bounds since 1.0, Stable-Baselines3's keeps all but images'."""
    if isinstance(space, gymnasium.spaces.Dict):
        parts = normaliser.statistics
        return gymnasium.spaces.Dict({k: _bounded(v, normaliser) if k in parts else v for k, v in space.items()})
    if normaliser.clip is None and all(part.mean.dtype == np.float32 for part in normaliser.statistics.values()):
        return gymnasium.spaces.Box(-np.inf, np.inf, space.shape, np.float32)
    return _bounded(space, normaliser)


def _bounded(space: gymnasium.Space[Any], normaliser: Normaliser) -> gymnasium.Space[Any]:
    if normaliser.clip is None or space.dtype != np.uint8 or len(space.shape or ()) != 3:
        return space
    return gymnasium.spaces.Box(-normaliser.clip, normaliser.clip, space.shape, np.float32)


def as_trained(env: gymnasium.Env[Any, Any], policy: Policy) -> gymnasium.Env[Any, Any]:
    """The environment with observations as the policy saw them at its export.

    A `NormalizeObservation` in it, which would begin anew, is taken out for one with the policy's statistics; without
    one, they come around all. Environments of policies without a normaliser are left as they are.

    Raises:
        UsageError: the policy saw normalised observations and does not hold by what.
    """
    if policy.normaliser is None:
        if NORMALISES in policy.wrappers:
            raise UsageError(
                f"{policy.path}: trained behind NormalizeObservation, whose running statistics are not in the policy: "
                "each environment of a vector has its own. Put gymnasium.wrappers.vector.NormalizeObservation around "
                "the vector, or keep a normaliser as a component (docs/policies.md)."
            )
        return env
    outer, layer = None, env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.NormalizeObservation):
            known = Normalised(layer.env, policy.normaliser)
            if outer is None:
                return known
            outer.env = known
            return env
        outer, layer = layer, layer.env
    return Normalised(env, policy.normaliser)
