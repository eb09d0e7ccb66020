"""What is collected: advantages by their definition, ends of episodes in each autoreset mode, memory."""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perdure.torch import PPOConfig  # noqa: E402
from perdure.torch.actions import actions_of  # noqa: E402
from perdure.torch.environments import autoreset_mode, vector_of  # noqa: E402
from perdure.torch.ppo import start, update  # noqa: E402
from perdure.torch.rollout import advantages_of, collect  # noqa: E402
from perdure.torch.state import Task  # noqa: E402

CONFIG = PPOConfig(total_timesteps=100, n_envs=2, n_steps=12, n_minibatches=2, n_epochs=1, hidden_sizes=(4,))


class Counting(gymnasium.Env[np.ndarray, Any]):
    """Tells the number of the step in its episode of 5; the reward is that number too."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *, terminates: bool) -> None:
        self.terminates, self.number = terminates, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.number += 1
        is_over = self.number == 5
        ends = (is_over and self.terminates, is_over and not self.terminates)
        return np.full(1, self.number, np.float32), float(self.number), *ends, {}


def collected(*, terminates: bool = False, **options: Any):
    config = replace(CONFIG, **options)
    envs = vector_of(lambda: Counting(terminates=terminates), config)
    task = Task(config, actions_of(envs.single_action_space), autoreset_mode(envs), None, None)
    state = start(task, envs)
    rollout, metrics = collect(task, state)
    return task, state, rollout, metrics


def value_of(state, number: float) -> float:
    with torch.no_grad():
        return state.networks.value(torch.tensor([[float(number)]])).item()


def test_advantages_are_those_of_the_definition():
    """Sum of (gamma * lambda)^k times the surprises until the episode ends."""
    rng = np.random.default_rng(0)
    rewards, values, after = rng.normal(size=(3, 9, 2))
    dones = rng.random((9, 2)) < 0.3
    surprises = rewards + CONFIG.gamma * after - values
    expected = np.zeros((9, 2))
    for index in range(2):
        for t in range(9):
            for k in range(t, 9):
                expected[t, index] += (CONFIG.gamma * CONFIG.gae_lambda) ** (k - t) * surprises[k, index]
                if dones[k, index]:
                    break

    found = advantages_of(rewards, values, after, dones, CONFIG)

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("mode", ["same-step", "disabled"])
def test_a_truncated_episode_is_valued_at_its_last_observation_a_terminated_one_at_nothing(mode: str):
    for terminates in (False, True):
        _, state, rollout, _ = collected(terminates=terminates, autoreset=mode, gae_lambda=0.0)
        after = 0.0 if terminates else CONFIG.gamma * value_of(state, 5)

        assert rollout.observations[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
        assert rollout.advantages[4, 0].item() == pytest.approx(5 + after - value_of(state, 4), rel=1e-4)
        assert rollout.starts[:, 0].nonzero().flatten().tolist() == [0, 5, 10]
        assert rollout.counts is None


def test_with_resets_in_the_next_step_those_steps_are_left_out_and_the_last_observation_is_in_the_rollout():
    _, state, rollout, metrics = collected(autoreset="next-step", gae_lambda=0.0)
    assert rollout.counts is not None

    assert rollout.observations[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert np.flatnonzero(~rollout.counts[:, 0]).tolist() == [5, 11]
    assert rollout.starts[:, 0].nonzero().flatten().tolist() == [0, 6]
    after = CONFIG.gamma * value_of(state, 5)
    assert rollout.advantages[4, 0].item() == pytest.approx(5 + after - value_of(state, 4), rel=1e-4)
    assert state.carried.starts.tolist() == [True, True]
    assert metrics == {"rollout/episodes": 4, "rollout/return_mean": 15.0, "rollout/length_mean": 5.0}


@pytest.mark.parametrize("lstm_size", [None, 3])
def test_nothing_is_learned_from_a_step_that_only_reset(lstm_size: int | None):
    """Whatever stands in those rows, the same networks come of it."""
    learned = []
    for nonsense in (0.0, 1e3):
        task, state, rollout, _ = collected(autoreset="next-step", lstm_size=lstm_size)
        assert rollout.counts is not None
        rows = torch.from_numpy(~rollout.counts)
        for field in (rollout.advantages, rollout.returns, rollout.log_probs, rollout.values):
            field[rows] += nonsense
        update(task, state, rollout)
        learned.append(torch.cat([each.detach().flatten() for each in state.networks.parameters()]))

    assert torch.equal(*learned)


def test_twin_a_step_that_counts_does_matter():
    learned = []
    for nonsense in (0.0, 1e3):
        task, state, rollout, _ = collected(autoreset="next-step")
        rollout.returns[0] += nonsense
        update(task, state, rollout)
        learned.append(torch.cat([each.detach().flatten() for each in state.networks.parameters()]))

    assert not torch.equal(*learned)


@pytest.mark.parametrize("mode", ["same-step", "next-step"])
def test_the_update_sees_what_the_rollout_saw(mode: str):
    """With a memory too: before the first step of the optimizer all ratios of likelihoods are 1."""
    for lstm_size in (None, 3):
        task, state, rollout, _ = collected(lstm_size=lstm_size, autoreset=mode, n_minibatches=1)
        metrics = update(task, state, rollout)

        assert metrics["loss/approx_kl"] == pytest.approx(0, abs=1e-9)


def test_a_memory_is_emptied_where_an_episode_starts():
    """In the first and the second episode, the same observations bring the same memories."""
    _, _, rollout, _ = collected(lstm_size=3)
    before, behind = rollout.values[:5].numpy(), rollout.values[5:10].numpy()

    np.testing.assert_allclose(before, behind, rtol=1e-5)
    assert len(np.unique(before.round(4))) == 5


def test_the_episodes_of_a_rollout_go_on_in_the_next():
    task, state, _, first = collected()
    _, second = collect(task, state)

    assert first == {"rollout/episodes": 4, "rollout/return_mean": 15.0, "rollout/length_mean": 5.0}
    assert second["rollout/return_mean"] == 15.0
    assert state.carried.lengths.tolist() == [4, 4]
    assert state.carried.returns.tolist() == [10.0, 10.0]
