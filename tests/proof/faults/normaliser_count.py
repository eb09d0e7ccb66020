"""The fault: a normaliser whose state_dict leaves its count out."""

import sys

import numpy as np

import perdure

MENDED = "--mended" in sys.argv


class Normaliser:
    """A running mean."""

    def __init__(self):
        self.mean, self.count = np.zeros(3), 0

    def __call__(self, observation):
        self.count += 1
        self.mean = self.mean + (observation - self.mean) / self.count
        return observation - self.mean

    def state_dict(self):
        return {"mean": self.mean, "count": self.count} if MENDED else {"mean": self.mean}

    def load_state_dict(self, state):
        self.mean, self.count = state["mean"], state.get("count", self.count)


rng, normaliser, weights = np.random.default_rng(1), Normaliser(), np.ones(3)
with perdure.Run("runs/x", horizon=100) as run:
    weights = run.restore(rng=rng, normaliser=normaliser, weights=weights).weights
    while not run.is_finished:
        weights = weights + 0.1 * normaliser(rng.normal(size=3))
        run.boundary(env_steps=run.env_steps + 1, weights=weights)
    run.finish()
