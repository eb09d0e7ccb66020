"""The fault: each process begins with an evaluation, which draws from the training's generator."""

import sys

import numpy as np

import perdure

MENDED = "--mended" in sys.argv


def evaluate(weights, rng):
    return float(np.mean([weights @ rng.normal(size=3) for _ in range(4)]))


rng, weights = np.random.default_rng(1), np.ones(3)
with perdure.Run("runs/x", horizon=100) as run:
    weights = run.restore(rng=rng, weights=weights).weights
    print("return at the start:", evaluate(weights, np.random.default_rng(9) if MENDED else rng))
    while not run.is_finished:
        weights = weights + 0.1 * rng.normal(size=3)
        run.boundary(env_steps=run.env_steps + 1, weights=weights)
    run.finish()
