"""CartPole that fails, or dies with its worker, at a step that the test names: `tests.cli.striking_env:Striking-v0`."""

import os
import signal
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

ID = "tests.cli.striking_env:Striking-v0"
VARIABLE = "PERDURE_TESTS_STRIKE"
"""`raise:20` or `die:20`: at the twentieth step of an environment; nothing else changes its course."""


class Striking(CartPoleEnv):
    """Counts its steps, over all episodes."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        what, _, at = os.environ.get(VARIABLE, "").partition(":")
        if at == str(self.steps):
            if what == "raise":
                raise ValueError(f"step {at} of a simulator that fails")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


gymnasium.register("Striking-v0", entry_point="tests.cli.striking_env:Striking", max_episode_steps=500)
