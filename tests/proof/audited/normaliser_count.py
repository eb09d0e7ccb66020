"""A normaliser whose mean is saved, but not the count that weighs it."""

import numpy as np
from learner import UPDATES, Learner, given, open_run


class Normaliser:
    def __init__(self) -> None:
        self.mean = np.zeros(3)
        self.count = 0

    def update(self, observation: np.ndarray) -> None:
        self.count += 1
        self.mean += (observation - self.mean) / self.count


class Trainer:
    def __init__(self) -> None:
        self.learner, self.normaliser, self.rng = Learner(), Normaliser(), np.random.default_rng(2)

    def train(self) -> None:
        run, norm = open_run(), self.normaliser
        values = {"mean": norm.mean, **given(count=norm.count)}
        restored = run.restore(learner=self.learner, rng=self.rng, **values)
        norm.mean, norm.count = restored.mean, getattr(restored, "count", norm.count)
        for update in range(restored.env_steps + 1, UPDATES + 1):
            observation = self.rng.normal(1.0, 1.0, size=3)
            norm.update(observation)
            loss = self.learner.learn(observation - norm.mean)
            values = {"mean": norm.mean, **given(count=norm.count)}
            run.boundary(env_steps=update, metrics={"loss": loss}, **values)
        run.finish()


Trainer().train()
