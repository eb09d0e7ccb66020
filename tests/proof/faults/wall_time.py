"""Not deterministic: the time decides a step."""

import sys
import time

import numpy as np

import perdure

MENDED = "--mended" in sys.argv

rng, weights = np.random.default_rng(1), np.ones(3)
with perdure.Run("runs/x", horizon=100) as run:
    weights = run.restore(rng=rng, weights=weights).weights
    while not run.is_finished:
        step = 0.1 if MENDED else time.time() % 1
        weights = weights + step * rng.normal(size=3)
        run.boundary(env_steps=run.env_steps + 1, weights=weights)
    run.finish()
