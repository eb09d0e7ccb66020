"""A generator of Python's own, beside the process's."""

import random

import numpy as np
from learner import UPDATES, Learner, given, open_run


def main() -> None:
    learner, noise, start = Learner(), random.Random(5), 0
    run = open_run()
    start = run.restore(learner=learner, **given(noise=noise)).env_steps
    for update in range(start + 1, UPDATES + 1):
        loss = learner.learn(np.full(3, noise.gauss(0, 1)))
        run.boundary(env_steps=update, metrics={"loss": loss})
    run.finish()


main()
