"""The fault: a helper seeds Python's process-wide generator when it is made, after `restore`."""

import random
import sys

import numpy as np

import perdure

MENDED = "--mended" in sys.argv

random.seed(1)


class Augmentation:
    """Scales observations at random."""

    def __init__(self):
        random.seed(3)

    def __call__(self, observation):
        return observation * random.uniform(0.9, 1.1)


rng, weights = np.random.default_rng(1), np.ones(3)
augment = Augmentation() if MENDED else None
with perdure.Run("runs/x", horizon=100) as run:
    weights = run.restore(rng=rng, weights=weights).weights
    augment = augment or Augmentation()
    while not run.is_finished:
        weights = weights + 0.1 * augment(rng.normal(size=3))
        run.boundary(env_steps=run.env_steps + 1, weights=weights)
    run.finish()
