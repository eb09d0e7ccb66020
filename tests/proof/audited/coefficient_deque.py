"""The last errors, whose mean decides how much is learned."""

from collections import deque

import numpy as np
from learner import UPDATES, Learner, given, open_run

recent: deque[float] = deque(maxlen=4)


def main() -> None:
    global recent
    learner, rng = Learner(), np.random.default_rng(3)
    run = open_run()
    restored = run.restore(learner=learner, rng=rng, **given(recent=recent))
    recent = getattr(restored, "recent", recent)
    for update in range(restored.env_steps + 1, UPDATES + 1):
        rate = float(0.5 / (1 + np.mean(recent))) if recent else 0.5
        recent.append(learner.learn(rng.normal(size=3), rate))
        run.boundary(env_steps=update, metrics={"rate": rate}, **given(recent=recent))
    run.finish()


main()
