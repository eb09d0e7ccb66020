"""Not deterministic: an environment without a seed."""

import sys

import numpy as np

import perdure

MENDED = "--mended" in sys.argv


class Env:
    """A random walk."""

    def __init__(self):
        self.rng, self.position = np.random.default_rng(7 if MENDED else None), 0.0

    def state_dict(self):
        return {"position": self.position, "draws": self.rng.bit_generator.state}

    def load_state_dict(self, state):
        self.position, self.rng.bit_generator.state = state["position"], state["draws"]

    def step(self):
        self.position += self.rng.normal()
        return self.position


env, weights = Env(), np.ones(3)
with perdure.Run("runs/x", horizon=100) as run:
    weights = run.restore(env=env, weights=weights).weights
    while not run.is_finished:
        weights = weights + 0.1 * env.step()
        run.boundary(env_steps=run.env_steps + 1, weights=weights)
    run.finish()
