"""Evaluations draw from a generator of their own, which no checkpoint holds: what they report is another series."""

import numpy as np
from learner import UPDATES, Learner, given, open_run


def main() -> None:
    learner, rng, eval_rng = Learner(), np.random.default_rng(4), np.random.default_rng(40)
    run = open_run()
    start = run.restore(learner=learner, rng=rng, **given(eval_rng=eval_rng)).env_steps
    for update in range(start + 1, UPDATES + 1):
        loss = learner.learn(rng.normal(size=3))
        score = float(np.dot(learner.weights, eval_rng.normal(size=3)))
        run.boundary(env_steps=update, metrics={"loss": loss, "score": score})
    run.finish()


main()
