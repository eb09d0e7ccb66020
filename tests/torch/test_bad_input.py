"""What cannot be trained is refused before anything is trained or written, and said."""

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perdure import UsageError  # noqa: E402
from perdure.torch import PPOConfig, train  # noqa: E402
from perdure.torch.config import from_mapping, to_mapping  # noqa: E402

SMALL = PPOConfig(total_timesteps=64, n_envs=2, n_steps=8, n_minibatches=2, n_epochs=1, hidden_sizes=(4,))


def small(**options: Any) -> PPOConfig:
    return from_mapping({**to_mapping(SMALL), **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_minibatches": 3}, "n_minibatches=3: a divisor of n_envs * n_steps = 16."),
        (
            {"lstm_size": 4, "n_minibatches": 4},
            "n_minibatches=4: a divisor of n_envs = 2: with an LSTM, minibatches hold whole environments.",
        ),
        ({"total_timesteps": 15}, "total_timesteps=15 is less than one update takes: n_envs * n_steps = 16."),
        ({"n_envs": 0}, "n_envs=0: a positive integer."),
        ({"n_steps": True}, "n_steps=True: a positive integer."),
        ({"gamma": 1.5}, "gamma=1.5: a number in [0, 1]."),
        ({"learning_rate": math.nan}, "learning_rate=nan: a positive number."),
        ({"max_grad_norm": 0.0}, "max_grad_norm=0.0: a positive number."),
        ({"hidden_sizes": (8, 0)}, "hidden_sizes=(8, 0): positive integers."),
        ({"seed": -1}, "seed=-1: an integer in [0, 2**31)."),
        ({"autoreset": "never"}, "autoreset='never': one of ('same-step', 'next-step', 'disabled')."),
        ({"entropy_weight": -0.1}, "entropy_weight=-0.1: a number from 0."),
        ({"gama": 0.9}, "unknown ['gama']. The record was written by another version of perdure."),
    ],
)
def test_options_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(UsageError) as refusal:
        small(**options)

    assert message in str(refusal.value)


def test_options_survive_a_journey_through_plain_values():
    config = small(hidden_sizes=(3, 2), lstm_size=4)

    assert from_mapping(to_mapping(config)) == config


class Odd(gymnasium.Env[Any, Any]):
    """An environment in which something is wrong from the third step on."""

    action_space: Any = gymnasium.spaces.Discrete(2)
    observation_space: Any = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, **wrong: Any) -> None:
        self.wrong, self.steps = wrong, 0
        self.action_space = wrong.get("action_space", self.action_space)
        self.observation_space = wrong.get("observation_space", self.observation_space)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        mask = {"action_mask": np.array(self.wrong["first_mask"])} if "first_mask" in self.wrong else {}
        return np.zeros(2, np.float32), mask

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        is_wrong = self.steps >= 3
        observation = np.full(2, self.wrong.get("observation", 0) if is_wrong else 0, np.float32)
        mask = self.wrong.get("mask" if is_wrong else "first_mask")
        info = {} if mask is None else {"action_mask": np.array(mask)}
        return observation, float(self.wrong.get("reward", 1) if is_wrong else 1), False, False, info


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"action_space": gymnasium.spaces.MultiBinary(2)}, "action space MultiBinary(2): the policy acts in Discrete"),
        (
            {"observation_space": gymnasium.spaces.Discrete(4)},
            "observation space Discrete(4): the networks see a Box. Wrap the environment in "
            "gymnasium.wrappers.FlattenObservation",
        ),
        (
            {"observation_space": gymnasium.spaces.Box(0, 255, (84, 84, 3), np.uint8)},
            "images are (channels, height, width), of at least 36 × 36.",
        ),
        (
            {"first_mask": [1, 1], "action_space": gymnasium.spaces.Box(-1, 1, (1,))},
            "info['action_mask']: continuous actions cannot be masked. Set mask_actions=False.",
        ),
        ({"first_mask": [0, 0]}, "info['action_mask']: environment 0 forbids every action: [0, 0]."),
        ({"first_mask": [1, 1, 1]}, "info['action_mask']: shape (2, 3), but the actions need (2, 2)."),
    ],
)
def test_environments_are_refused_before_the_run_is_touched(wrong: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(UsageError) as refusal:
        train(lambda: Odd(**wrong), SMALL, run=tmp_path / "run")

    assert message in str(refusal.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"first_mask": [1, 0], "mask": [0, 0]}, UsageError, "environment 0 forbids every action: [0, 0]"),
        ({"first_mask": [1, 0]}, UsageError, "environment 0 gave none, but did so at its first reset."),
        ({"reward": math.nan}, FloatingPointError, "environment 0 gave a reward that is NaN or infinite, in step 2 of"),
        ({"observation": math.inf}, FloatingPointError, "environment 0 gave a observation that is NaN or infinite"),
    ],
)
def test_what_goes_wrong_later_is_named(wrong: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error) as refusal:
        train(lambda: Odd(**wrong), SMALL)

    assert message in str(refusal.value)


def test_a_loss_that_is_not_finite_stops_the_training_before_a_parameter_changes():
    """Rewards so great that the critic's squared error is infinite."""
    with pytest.raises(FloatingPointError) as refusal:
        train(lambda: Odd(reward=1e30), SMALL)

    assert str(refusal.value).startswith("the update after 0 env-steps: loss/value is inf. The networks are as before")


def test_an_environment_that_there_is_not_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match=r"environment 'CartPoll-v1' cannot be made: .*CartPole"):
        train("CartPoll-v1", SMALL, run=tmp_path / "run")

    assert not (tmp_path / "run").exists()


def test_another_number_of_environments_is_refused():
    envs = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync")

    with pytest.raises(UsageError, match=r"3 environments, but PPOConfig\.n_envs=2\. Make them agree\."):
        train(envs, SMALL)


def test_evaluations_that_cannot_be_had_are_refused():
    with pytest.raises(UsageError, match="an evaluation makes environments of its own; hand in a function for one"):
        train(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"), small(eval_every_steps=16))
    with pytest.raises(UsageError, match="NormalizeObservation would begin anew in each evaluation"):
        train("CartPole-v1", small(eval_every_steps=16, wrappers="normalize"))
