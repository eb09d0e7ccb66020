"""Exploring actions come from a space that is held aside of its environment."""

import gymnasium
import numpy as np
from learner import UPDATES, Learner, given, open_run


def main() -> None:
    learner, space = Learner(), gymnasium.spaces.Box(-1.0, 1.0, (3,))
    space.seed(6)
    run = open_run()
    start = run.restore(learner=learner, **given(space=space)).env_steps
    for update in range(start + 1, UPDATES + 1):
        loss = learner.learn(space.sample().astype(np.float64))
        run.boundary(env_steps=update, metrics={"loss": loss})
    run.finish()


main()
