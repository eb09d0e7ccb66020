"""The fault: actions are sampled from a space whose generator is not handed to `restore`."""

import sys
from typing import Any

import numpy as np

import perdure

MENDED = "--mended" in sys.argv


class Space:
    """Samples actions from a generator of its own, as Gymnasium's spaces do."""

    def __init__(self):
        self.rng = np.random.default_rng(5)

    def sample(self):
        return self.rng.integers(4)


class Env:
    """A walk."""

    def __init__(self):
        self.position = 0.0

    def step(self, action):
        self.position = 0.9 * self.position + float(action) - 1.5
        return self.position

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


space, env, weights = Space(), Env(), np.ones(3)
more: dict[str, Any] = {"actions": space.rng} if MENDED else {}
with perdure.Run("runs/x", horizon=100) as run:
    weights = run.restore(env=env, weights=weights, **more).weights
    while not run.is_finished:
        weights = weights + 0.1 * env.step(space.sample())
        run.boundary(env_steps=run.env_steps + 1, weights=weights)
    run.finish()
