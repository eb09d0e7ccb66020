"""The leaner step gives what Gymnasium's own gives: in each autoreset mode, with its infos and its refusals."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from perdure.gym.sync_envs import SyncVectorEnv


class Telling(gymnasium.Env[np.ndarray, Any]):
    """Episodes of 3 to 5 steps, some truncated, which tell the step in `info`; observations of another dtype or not."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.number, self.length = dtype, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.number, self.length = 0, int(self.np_random.integers(3, 6))
        return self.np_random.standard_normal(2).astype(self.dtype), {"length": self.length}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.number += 1
        ends = self.number == self.length
        observation = self.np_random.standard_normal(2).astype(self.dtype)
        return observation, float(action), ends and self.length != 4, ends and self.length == 4, {"step": self.number}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_step_gives_what_gymnasiums_gives(mode: AutoresetMode, dtype: Any):
    both = [kind([lambda: Telling(dtype)] * 3, autoreset_mode=mode) for kind in (SyncVectorEnv, _Own)]
    rng, ended = np.random.default_rng(0), 0
    for envs in both:
        envs.reset(seed=7)
    for _ in range(30):
        actions = rng.integers(0, 2, 3)
        ours, theirs = (envs.step(actions) for envs in both)
        assert repr(ours) == repr(theirs)
        for one, other in zip(ours[:4], theirs[:4], strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        ended += int((ours[2] | ours[3]).sum())
    assert ended > 10


def test_without_autoreset_an_episode_that_ended_is_refused():
    envs = SyncVectorEnv([lambda: Telling(np.float32)], autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=1)
    action = np.zeros(1, np.int64)
    while not any(done.any() for done in envs.step(action)[2:4]):
        pass
    with pytest.raises(AssertionError, match="_autoreset_envs"):
        envs.step(action)


_Own = gymnasium.vector.SyncVectorEnv
