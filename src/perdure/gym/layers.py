"""An environment and its wrappers, one after the other."""

from collections.abc import Iterator
from typing import Any

import gymnasium


def layers_of(env: Any) -> Iterator[Any]:
    """From the outermost wrapper to the environment itself."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def seed_layers(env: Any, seed: int) -> None:
    """Seeds the spaces of an environment and its wrappers, each that is another object with another seed."""
    spaces = [space for layer in layers_of(env) for space in (layer.action_space, layer.observation_space)]
    for number, space in enumerate({id(space): space for space in spaces}.values()):
        space.seed(seed + number)
