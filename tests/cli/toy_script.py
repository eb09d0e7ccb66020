"""A training script in plain NumPy, as a user would write it, that the tests run, stop and resume through the tool.

python toy_script.py DIRECTORY --updates 6 --stop-after 3
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import perdure

STEPS_PER_UPDATE = 10


def train(
    directory: Path,
    *,
    updates: int = 6,
    seed: int = 1,
    learning_rate: float = 0.1,
    stop_after: int | None = None,
    launch: dict[str, Any] | None = None,
) -> None:
    """Trains to the horizon, or leaves without a word after some boundaries; every boundary is saved and kept."""
    random.seed(seed)
    np.random.seed(seed)
    config = {"env_id": "Toy-v0", "total": updates * STEPS_PER_UPDATE, "seed": seed, "learning_rate": learning_rate}
    rng, weights, trace = np.random.default_rng(seed), np.zeros((2, 3)), {"mean": 0.0, "seen": 0}
    saving = {"every": perdure.Every(updates=1), "keep": None}
    with perdure.Run(directory, config=config, horizon="total", launch=launch, **saving) as run:
        s = run.restore(rng=rng, weights=weights, trace=trace)
        weights, trace = s.weights, s.trace
        while not run.is_finished:
            if run.boundary_number == stop_after:
                return
            weights = weights + learning_rate * rng.standard_normal(weights.shape)
            trace = {"mean": float(weights.mean()), "seen": trace["seen"] + weights.size}
            steps = run.env_steps + STEPS_PER_UPDATE
            run.boundary(env_steps=steps, weights=weights, trace=trace, metrics={"mean": trace["mean"]})
        run.finish()


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and trains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--stop-after", type=int, default=None)
    train(**vars(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
