"""Not deterministic: threads add up in the order in which they are ready, and floating-point sums depend on it."""

import os
import sys
import threading
import time

import numpy as np

import perdure

MENDED = "--mended" in sys.argv

rng, weights = np.random.default_rng(1), np.ones(100)


def gradients(noise: np.ndarray) -> list[np.ndarray]:
    """One for each thread, in the order in which they are ready."""
    found: list[np.ndarray] = []

    def work(part: np.ndarray) -> None:
        time.sleep(int.from_bytes(os.urandom(1)) / 1e5)
        found.append(part)

    threads = [threading.Thread(target=work, args=(part,)) for part in noise]
    for thread in threads:
        thread.start()
        if MENDED:
            thread.join()
    for thread in threads:
        thread.join()
    return found


with perdure.Run("runs/x", horizon=100) as run:
    weights = run.restore(rng=rng, weights=weights).weights
    while not run.is_finished:
        for gradient in gradients(rng.normal(size=(8, 100)) * 10.0 ** np.arange(-4, 4)[:, None]):
            weights = weights + gradient
        run.boundary(env_steps=run.env_steps + 1, weights=weights)
    run.finish()
