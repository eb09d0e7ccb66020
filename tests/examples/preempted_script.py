"""A small training in NumPy for the recipes: it tells its boundaries, and can strike itself in its first starts.

    python preempted_script.py RUN [--strike SIGTERM:5 SIGKILL:9] [--forget]

The n-th start strikes with the n-th signal, after that boundary; ERROR raises an error instead.
"""

import argparse
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import perdure

ITERATIONS = 30


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--strike", nargs="*", default=[])
    parser.add_argument("--forget", action="store_true", help="leave the generator out of what is restored")
    arguments = parser.parse_args()
    with arguments.directory.with_suffix(".starts").open("a+") as starts:
        starts.seek(0)
        name, _, at = dict(enumerate(arguments.strike)).get(len(starts.readlines()), "").partition(":")
        starts.write("started\n")
    random.seed(3)
    np.random.seed(3)
    rng, weights = np.random.default_rng(3), np.zeros(3)
    live: dict[str, Any] = {} if arguments.forget else {"rng": rng}
    every = perdure.Every(updates=ITERATIONS)
    with perdure.Run(arguments.directory, horizon=ITERATIONS, every=every, keep=None) as run:
        weights = run.restore(weights=weights, **live).weights
        while not run.is_finished:
            time.sleep(0.02)
            weights = weights + rng.normal(size=3)
            run.boundary(env_steps=run.env_steps + 1, weights=weights, metrics={"sum": float(weights.sum())})
            print(run.env_steps, flush=True)
            if at == str(run.env_steps):
                if name == "ERROR":
                    raise ValueError("mine")
                os.kill(os.getpid(), signal.Signals[name])
        run.finish()


if __name__ == "__main__":
    main()
