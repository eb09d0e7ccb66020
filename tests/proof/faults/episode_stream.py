"""The fault: the stream of levels that episodes are made of begins anew in each process."""

import sys
from itertools import count

import numpy as np

import perdure

MENDED = "--mended" in sys.argv

levels = count()


def next_level(level):
    return level + 1 if MENDED else next(levels)


rng, weights, env_level = np.random.default_rng(1), np.ones(3), -1
with perdure.Run("runs/x", horizon=100) as run:
    s = run.restore(rng=rng, weights=weights, env_level=env_level)
    weights, env_level = s.weights, s.env_level
    while not run.is_finished:
        env_level = next_level(env_level)
        weights = weights + 0.1 * np.cos(env_level) * rng.normal(size=3)
        run.boundary(env_steps=run.env_steps + 1, weights=weights, env_level=env_level)
    run.finish()
