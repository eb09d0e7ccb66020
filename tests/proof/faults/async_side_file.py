"""The fault: an average is saved to a file of the script's own by a thread, while the loop changes it in place.

The file is to hold the average from before the update at hand, which whoever loads it makes again. The thread is late.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import perdure

MENDED = "--mended" in sys.argv

PULL = 0.5


def save(path, average):
    time.sleep(0.02)
    np.save(path, average)


rng, weights, average = np.random.default_rng(1), np.ones(3), np.zeros(3)
with ThreadPoolExecutor(1) as pool, perdure.Run("runs/x", horizon=100) as run:
    weights = run.restore(rng=rng, weights=weights).weights
    side = Path(run.directory) / "average.npy"
    if run.resumed:
        average = np.load(side)
        average += PULL * (weights - average)
    while not run.is_finished:
        weights = weights + 0.1 * (rng.normal(size=3) + average)
        saved = pool.submit(save, side, average.copy() if MENDED else average)
        average += PULL * (weights - average)
        saved.result()
        run.boundary(env_steps=run.env_steps + 1, weights=weights)
    run.finish()
