"""One update is that of Stable-Baselines3's PPO: the same rollout leads the same networks to the same place."""

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv  # noqa: E402

from perdure.torch import PPOConfig  # noqa: E402
from perdure.torch.actions import actions_of  # noqa: E402
from perdure.torch.environments import autoreset_mode, vector_of  # noqa: E402
from perdure.torch.ppo import start, update  # noqa: E402
from perdure.torch.rollout import advantages_of  # noqa: E402
from perdure.torch.state import Rollout, Task, TrainingState  # noqa: E402

CONFIG = PPOConfig(total_timesteps=256, n_envs=4, n_steps=64, n_minibatches=4, learning_rate=3e-3, hidden_sizes=(16, 8))


class Noting(BaseCallback):
    """Keeps what Stable-Baselines3 changes: rewards as they came, and last observations."""

    def __init__(self) -> None:
        super().__init__()
        self.rewards: list[np.ndarray] = []
        self.ends: list[tuple[np.ndarray, list[dict[str, Any]]]] = []

    def _on_step(self) -> bool:
        self.rewards.append(self.locals["rewards"].copy())
        self.ends.append((self.locals["dones"].copy(), list(self.locals["infos"])))
        return True


def make(env_id: str) -> gymnasium.Env[Any, Any]:
    """Episodes that are cut off, and (of CartPole) others that end before."""
    return gymnasium.make(env_id, max_episode_steps=19)


def theirs(env_id: str) -> tuple[Any, Noting]:
    """Stable-Baselines3 after it has collected, before it learns."""
    options = {
        "learning_rate": CONFIG.learning_rate,
        "n_steps": CONFIG.n_steps,
        "batch_size": CONFIG.steps_per_update // 4,
    }
    options |= {"n_epochs": CONFIG.n_epochs, "ent_coef": CONFIG.entropy_weight, "seed": 3, "device": "cpu"}
    layers = list(CONFIG.hidden_sizes)
    model = PPO(
        "MlpPolicy",
        DummyVecEnv([lambda: make(env_id)] * CONFIG.n_envs),
        policy_kwargs={"net_arch": {"pi": layers, "vf": layers}},
        **options,
    )
    _, noting = model._setup_learn(CONFIG.total_timesteps, None), Noting()
    noting.init_callback(model)
    assert model.env is not None
    assert model.collect_rollouts(model.env, noting, model.rollout_buffer, CONFIG.n_steps)
    return model, noting


def ours(env_id: str, model: Any) -> tuple[Task, TrainingState]:
    """A training with the weights of that model."""
    envs = vector_of(lambda: make(env_id), CONFIG)
    task = Task(CONFIG, actions_of(envs.single_action_space), autoreset_mode(envs), None, None)
    state = start(task, envs)
    with torch.no_grad():
        for mine, other in zip(state.networks.parameters(), parameters(model), strict=True):
            mine.copy_(other)
    return task, state


def parameters(model: Any) -> list[Any]:
    """Theirs in our order."""
    policy = model.policy
    parts = [policy.mlp_extractor.policy_net, policy.action_net, policy.mlp_extractor.value_net, policy.value_net]
    scale = [policy.log_std] if hasattr(policy, "log_std") else []
    return [*scale, *(parameter for part in parts for parameter in part.parameters())]


def advantages(model: Any, noting: Noting, networks: Any) -> np.ndarray:
    """Of their rollout, as ours."""
    values = model.rollout_buffer.values
    with torch.no_grad():
        behind = networks.value(torch.as_tensor(model._last_obs, dtype=torch.float32)).numpy().T
        after = np.concatenate([values[1:], behind])
        for t, (dones, infos) in enumerate(noting.ends):
            for index in np.flatnonzero(dones):
                last = torch.as_tensor(infos[index]["terminal_observation"], dtype=torch.float32)
                is_cut = infos[index]["TimeLimit.truncated"]
                after[t, index] = networks.value(last).item() if is_cut else 0
    dones = np.stack([dones for dones, _ in noting.ends])
    return advantages_of(np.stack(noting.rewards), values, after, dones, CONFIG)


@pytest.mark.full
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_one_update_equals_stable_baselines_s(env_id: str, monkeypatch: pytest.MonkeyPatch):
    """Advantages with episodes that are cut off, losses, entropies, clipped gradients, sixteen steps of Adam.

    Theirs get our order of minibatches: a step is `environment * n_steps + step` there, and the other way round here.
    """
    model, noting = theirs(env_id)
    task, state = ours(env_id, model)
    buffer = model.rollout_buffer
    found = advantages(model, noting, state.networks)
    np.testing.assert_allclose(found, buffer.advantages, rtol=1e-4, atol=1e-4)

    fields = (buffer.observations, buffer.actions, buffer.log_probs, buffer.values, found)
    observations, actions, log_probs, values, gains = (torch.as_tensor(field) for field in fields)
    actions = actions.squeeze(-1).long() if env_id == "CartPole-v1" else actions
    starts = torch.as_tensor(buffer.episode_starts).bool()
    rng = copy.deepcopy(state.shuffle_rng)
    orders = [rng.permutation(CONFIG.steps_per_update) for _ in range(CONFIG.n_epochs)]
    same = iter([order % CONFIG.n_envs * CONFIG.n_steps + order // CONFIG.n_envs for order in orders])
    update(
        task,
        state,
        Rollout(observations, None, actions, log_probs, values, gains, gains + values, starts, None, None),
    )
    before = [parameter.detach().clone() for parameter in parameters(model)]
    monkeypatch.setattr(np.random, "permutation", lambda _: next(same))
    model.train()

    assert next(same, None) is None
    for mine, old, new in zip(state.networks.parameters(), before, parameters(model), strict=True):
        assert float((new - old).detach().abs().max()) > 1e-3
        np.testing.assert_allclose(mine.detach().numpy(), new.detach().numpy(), rtol=1e-3, atol=1e-4)
    assert any(info["TimeLimit.truncated"] for dones, infos in noting.ends for info in np.array(infos)[dones])


@pytest.mark.full
def test_networks_begin_as_stable_baselines_s():
    """The same scale of each layer, which orthogonal weights show in their singular values."""
    model, _ = theirs("CartPole-v1")
    envs = vector_of(lambda: make("CartPole-v1"), CONFIG)
    task = Task(CONFIG, actions_of(envs.single_action_space), autoreset_mode(envs), None, None)
    mine = start(task, envs).networks.parameters()

    for one, other in zip(mine, parameters(model), strict=True):
        scales = [torch.linalg.svdvals(torch.atleast_2d(weights.detach())).numpy() for weights in (one, other)]
        np.testing.assert_allclose(*scales, atol=1e-5)
