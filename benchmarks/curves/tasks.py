"""The tasks: environment, networks and settings of each, and what counts as solved. docs/learning.md repeats them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flax import nnx

from perdure.nnx import (
    LSTM,
    CategoricalSampler,
    Dense,
    Environment,
    EvalConfig,
    PPOAdapter,
    PPOConfig,
    RewardScalingWrapper,
    Sequential,
    StatefulModule,
    TrainConfig,
    make_mlp_actor_critic,
)
from perdure.nnx.envs import RecallCue
from perdure.nnx.envs.gymnax import GymnaxEnvironment

EPISODES = 100
"""An evaluation's, under the deterministic policy."""


@dataclass(frozen=True)
class Task:
    """What is trained, and when it is solved."""

    title: str
    """Its name in figures and tables."""
    env: Environment
    """To train in."""
    eval_env: Environment
    """To evaluate in: its returns are compared with the threshold."""
    config: TrainConfig
    """All settings but the seed."""
    networks: Mapping[str, Callable[[int], StatefulModule]]
    """Networks by what they are called, each made from a seed."""
    threshold: float
    """The mean return of an evaluation at which the task is solved."""
    budget: int
    """Env-steps within which it must be."""
    y_range: tuple[float, float]
    """Returns that the figure shows."""
    source: str
    """Where threshold and budget come from, in whole sentences."""
    unsolvable: frozenset[str] = field(default_factory=frozenset)
    """Names of networks that cannot solve it."""


def cartpole() -> Task:
    """Balance; 500 is the most there is."""
    env = GymnaxEnvironment("CartPole-v1")

    def networks(seed: int) -> StatefulModule:
        return make_mlp_actor_critic(
            4, 2, (64, 64), (64, 64), nnx.Rngs(seed), "tanh", entropy_weight=0.0, action_kind="discrete"
        )

    ppo = PPOConfig(
        n_envs=32,
        rollout_length=32,
        total_steps=199_680,
        n_epochs=10,
        n_minibatches=8,
        learning_rate=1e-3,
        discounting_factor=0.98,
        gae_lambda=0.9,
        gradient_clipping=0.5,
        critic_loss_weight=0.5,
    )
    return Task(
        "CartPole-v1",
        env,
        env,
        TrainConfig(ppo, EvalConfig(every_steps=4_096, n_envs=EPISODES, max_episode_length=500)),
        {"MLP": networks},
        threshold=475.0,
        budget=200_000,
        y_range=(0.0, 500.0),
        source="475 is Gym's mark for this task; RL Baselines3 Zoo reports 500 for one run of PPO over 100,000 steps.",
    )


def pendulum() -> Task:
    """Swing up and hold; about -150 is the best mean there is."""
    env = GymnaxEnvironment("Pendulum-v1")

    def networks(seed: int) -> StatefulModule:
        return make_mlp_actor_critic(
            3, 1, (64, 64), (64, 64), nnx.Rngs(seed), "tanh", entropy_weight=1e-3, min_std=0.05
        )

    ppo = PPOConfig(
        n_envs=32,
        rollout_length=64,
        total_steps=98_304,
        n_epochs=10,
        n_minibatches=32,
        learning_rate=1e-3,
        discounting_factor=0.95,
        gae_lambda=0.95,
        gradient_clipping=0.5,
        critic_loss_weight=0.5,
    )
    return Task(
        "Pendulum-v1",
        RewardScalingWrapper(env, 0.1),
        env,
        TrainConfig(ppo, EvalConfig(every_steps=4_096, n_envs=EPISODES, max_episode_length=200)),
        {"MLP": networks},
        threshold=-250.0,
        budget=100_000,
        y_range=(-1500.0, 0.0),
        source=(
            "RL Baselines3 Zoo trains PPO for 100,000 steps (4 environments, 1,024 steps, gSDE) and reports "
            "−172 ± 104 for one run; the mark of −250 is ours."
        ),
    )


def recall_cue() -> Task:
    """One of four cues, ten blank steps, the question; whoever does not remember gets 0.25."""
    env = RecallCue(cues=4, delay=10)

    def with_memory(seed: int) -> StatefulModule:
        rngs = nnx.Rngs(seed)
        return _heads(LSTM(5, 32, rngs), rngs)

    def without(seed: int) -> StatefulModule:
        rngs = nnx.Rngs(seed)
        return _heads(Dense(5, 32, rngs, activation=nnx.tanh), rngs)

    ppo = PPOConfig(
        n_envs=64,
        rollout_length=12,
        total_steps=49_920,
        n_epochs=4,
        n_minibatches=4,
        learning_rate=3e-3,
        discounting_factor=0.95,
        gae_lambda=0.95,
        gradient_clipping=0.5,
        critic_loss_weight=0.5,
    )
    return Task(
        "RecallCue(cues=4, delay=10)",
        env,
        env,
        TrainConfig(ppo, EvalConfig(every_steps=1_536, n_envs=EPISODES, max_episode_length=12)),
        {"LSTM": with_memory, "MLP": without},
        threshold=0.9,
        budget=50_000,
        y_range=(0.0, 1.0),
        source="An environment of ours: 1 is the best there is, 0.25 the best without memory.",
        unsolvable=frozenset({"MLP"}),
    )


def _heads(body: StatefulModule, rngs: nnx.Rngs) -> StatefulModule:
    """A policy and a critic of one layer each on a body that they share."""
    actor = Sequential([Dense(32, 4, rngs), CategoricalSampler(rngs, entropy_weight=1e-2)])
    return Sequential([body, PPOAdapter(action=actor, value=Sequential([Dense(32, 1, rngs)]))])


TASKS: Mapping[str, Callable[[], Task]] = {"cartpole": cartpole, "pendulum": pendulum, "recall-cue": recall_cue}
