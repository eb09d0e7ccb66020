"""The fault: a deque of returns, which is not handed to `restore`, decides a coefficient."""

import sys
from collections import deque
from typing import Any

import numpy as np

import perdure

MENDED = "--mended" in sys.argv

rng, weights, returns = np.random.default_rng(1), np.ones(3), deque([0.0], maxlen=4)
more: dict[str, Any] = {"returns": returns} if MENDED else {}
with perdure.Run("runs/x", horizon=100) as run:
    s = run.restore(rng=rng, weights=weights, **more)
    weights, returns = s.weights, getattr(s, "returns", returns)
    while not run.is_finished:
        gradient = rng.normal(size=3)
        weights = weights + (0.1 + 0.01 * np.mean(returns)) * gradient
        returns.append(float(gradient.sum()))
        more = {"returns": returns} if MENDED else {}
        run.boundary(env_steps=run.env_steps + 1, weights=weights, **more)
    run.finish()
