"""The fault: a learning rate that falls lives in a variable that is not handed to `restore`."""

import sys
from typing import Any

import numpy as np

import perdure

MENDED = "--mended" in sys.argv

rng, weights, rate = np.random.default_rng(1), np.ones(3), 0.1
with perdure.Run("runs/x", horizon=100) as run:
    if MENDED:
        s = run.restore(rng=rng, weights=weights, rate=rate)
        weights, rate = s.weights, s.rate
    else:
        weights = run.restore(rng=rng, weights=weights).weights
    while not run.is_finished:
        weights = weights + rate * rng.normal(size=3)
        rate *= 0.9
        values: dict[str, Any] = {"weights": weights, **({"rate": rate} if MENDED else {})}
        run.boundary(env_steps=run.env_steps + 1, **values)
    run.finish()
