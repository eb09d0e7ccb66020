"""A learning rate that falls in an attribute, of which state_dict knows nothing."""

from typing import Any

import numpy as np
from learner import UPDATES, Learner, given, open_run


class Agent(Learner):
    def __init__(self) -> None:
        super().__init__()
        self.lr_cached = 0.5

    def learn(self, observation: Any, rate: float = 0.1) -> float:
        loss = super().learn(observation, self.lr_cached)
        self.lr_cached *= 0.9
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), **given(rate=self.lr_cached)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.lr_cached = state.get("rate", self.lr_cached)


def train(agent: Agent, rng: np.random.Generator) -> None:
    run = open_run()
    start = run.restore(agent=agent, rng=rng).env_steps
    for update in range(start + 1, UPDATES + 1):
        loss = agent.learn(rng.normal(size=3))
        run.boundary(env_steps=update, metrics={"loss": loss})
    run.finish()


train(Agent(), np.random.default_rng(1))
