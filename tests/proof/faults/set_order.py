"""Not deterministic: numbers are summed in the order of a set of texts."""

import sys

import numpy as np

import perdure

MENDED = "--mended" in sys.argv

NAMES = {"position", "velocity", "angle", "spin", "torque", "reward", "height", "energy"}
SCALES = {name: 10.0 ** (3 * at) for at, name in enumerate(sorted(NAMES))}
rng, weights = np.random.default_rng(1), np.ones(3)
with perdure.Run("runs/x", horizon=100) as run:
    weights = run.restore(rng=rng, weights=weights).weights
    while not run.is_finished:
        noise = rng.normal(size=3)
        for name in sorted(NAMES) if MENDED else NAMES:
            weights = weights + noise / SCALES[name]
            weights = weights * 0.99
        run.boundary(env_steps=run.env_steps + 1, weights=weights)
    run.finish()
