"""A stream of levels that begins anew with the process."""

from collections.abc import Iterator

import numpy as np
from learner import REPAIRED, UPDATES, Learner, open_run


def levels(first: int) -> Iterator[np.ndarray]:
    number = first
    while True:
        number += 1
        yield np.sin(np.arange(3.0) * number)


def main() -> None:
    learner = Learner()
    run = open_run()
    start = run.restore(learner=learner).env_steps
    stream = levels(start if REPAIRED else 0)
    for update in range(start + 1, UPDATES + 1):
        loss = learner.learn(next(stream))
        run.boundary(env_steps=update, metrics={"loss": loss})
    run.finish()


main()
