"""Gymnasium vector environments behind `train_ppo`: starts, ends, actions, and what is refused."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import perdure
from perdure import UsageError
from perdure.nnx import (
    LSTM,
    EnvState,
    EvalConfig,
    LoggingLevel,
    PPOConfig,
    Sequential,
    TrainConfig,
    VideoConfig,
    host_rollout,
    load_checkpoint,
    make_checkpoint_fn,
    make_mlp_actor_critic,
    ppo,
    ppo_step,
    train_ppo,
)

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces, wrappers  # noqa: E402
from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402

from perdure.nnx.envs.gymnasium import GymnasiumVector  # noqa: E402

pytestmark = pytest.mark.jax

N_ENVS = 4


class Counting(gymnasium.Env):
    """Counts steps up to a limit, where it is truncated or ends; records the actions that it is given."""

    def __init__(
        self, limit: int = 5, *, truncates: bool = True, action_space: Any = None, observation_space: Any = None
    ) -> None:
        self.limit, self.truncates = limit, truncates
        self.action_space = action_space or spaces.Discrete(2)
        self.observation_space = observation_space or spaces.Box(0, 100, (1,), np.float64)
        self.count, self.action = 0, None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.count, self.action = self.count + 1, action
        ends = self.count >= self.limit
        return self._obs(), 1.0, ends and not self.truncates, ends and self.truncates, {}

    def _obs(self) -> Any:
        number = np.array([self.count], np.float64)
        if isinstance(self.observation_space, spaces.Dict):
            return {"left": number, "right": np.array([[7]])}
        return number


@dataclass(frozen=True)
class PureCounting:
    """The same as a pure environment."""

    limit: int = 5
    truncates: bool = True

    def reset(self, key: jax.Array, /) -> EnvState:
        return self._state(jnp.zeros((), jnp.int32), 0.0)

    def step(self, state: EnvState, action: Any, /) -> EnvState:
        return self._state(state.data + 1, 1.0)

    def _state(self, count: jax.Array, reward: float) -> EnvState:
        done = count >= self.limit
        obs = count.astype(jnp.float32)[None]
        return EnvState(count, obs, jnp.float32(reward), done, {"truncation": done & self.truncates})


def vector(count: int = N_ENVS, *, mode: AutoresetMode = AutoresetMode.SAME_STEP, **options: Any) -> GymnasiumVector:
    return GymnasiumVector(SyncVectorEnv([lambda: Counting(**options)] * count, autoreset_mode=mode))


def config(updates: int = 3, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {"n_envs": N_ENVS, "rollout_length": 7, "n_epochs": 2, "n_minibatches": 2}
    settings |= {"learning_rate": 1e-2, "total_steps": updates * N_ENVS * 7}
    return TrainConfig(PPOConfig(**{**settings, **changes}), EvalConfig(enabled=False))


def networks(seed: int = 0, *, carries: bool = False) -> Any:
    rngs = nnx.Rngs(seed)
    head = make_mlp_actor_critic(3 if carries else 1, 2, (8,), (8,), rngs, action_kind="discrete")
    return Sequential([LSTM(1, 3, rngs=rngs), head]) if carries else head


def parameters(result: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(result.training_state.networks, nnx.Param))]


@pytest.mark.full
@pytest.mark.parametrize("truncates", [True, False], ids=["truncated", "terminated"])
@pytest.mark.parametrize("carries", [True, False], ids=["recurrent", "feed-forward"])
def test_training_learns_what_it_learns_in_the_same_environment_in_jax(truncates: bool, carries: bool):
    """Bootstrapping at truncations and at the end, first observations, carries: all that decides what is learned."""
    on_host = train_ppo(vector(truncates=truncates), networks(carries=carries), config())
    pure = train_ppo(PureCounting(truncates=truncates), networks(carries=carries), config())

    for ours, theirs in zip(parameters(on_host), parameters(pure), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_that_comparison_notices_how_an_episode_ends():
    truncated, terminated = (train_ppo(vector(truncates=how), networks(), config()) for how in (True, False))

    differ = [
        not np.allclose(a, b, rtol=1e-4) for a, b in zip(parameters(truncated), parameters(terminated), strict=True)
    ]
    assert any(differ)


def test_carries_of_the_rollout_are_those_of_the_loss():
    """One pass over everything: the likelihoods that the loss repeats are those of the rollout."""
    settings = config(updates=3, n_epochs=1, n_minibatches=1, logging_level=LoggingLevel.ACTOR_EXTRA)

    result = train_ppo(vector(), networks(carries=True), settings)

    assert abs(result.final_metrics["losses/approximate_kl/mean"]) < 1e-6
    assert result.final_metrics["losses/clipping_fraction"] == 0


def test_a_step_shows_the_next_episode_and_keeps_the_last_observation_of_the_one_before():
    env = vector(limit=2)
    env.start(jax.random.key(0))
    env.step(np.zeros(N_ENVS, np.int32))

    after = env.step(np.zeros(N_ENVS, np.int32))

    assert (after.obs.tolist(), after.final_obs.tolist()) == ([[0.0]] * N_ENVS, [[2.0]] * N_ENVS)
    assert (after.done.all(), after.truncated.all()) == (True, True)
    assert (after.obs.dtype, after.reward.dtype) == (np.float32, np.float32)


def test_what_a_start_gives_depends_on_the_key_alone():
    """Not on what happened before: running statistics of wrappers, too, begin anew."""

    def make() -> Any:
        return wrappers.NormalizeObservation(gymnasium.make("Pendulum-v1", max_episode_steps=5))

    env = GymnasiumVector(SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    actions = np.linspace(-1, 1, 40, dtype=np.float32).reshape(20, 2, 1)

    def future(seed: int) -> list[Any]:
        first = env.start(jax.random.key(seed)).obs.tolist()
        return [first] + [[step.obs.tolist(), step.reward.tolist()] for step in map(env.step, actions)]

    once, other, again = future(1), future(2), future(1)

    assert once == again
    assert once != other


def test_a_seed_of_their_own_replaces_that_of_the_training():
    envs = SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1")] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    seeded = GymnasiumVector(envs, seed=3)

    starts = [seeded.start(jax.random.key(key)).obs.tolist() for key in (1, 2)]

    assert starts[0] == starts[1] == np.asarray(envs.reset(seed=3)[0]).tolist()


def test_two_fresh_trainings_of_one_seed_are_the_same_to_the_last_generator(tmp_path: Path):
    """Also the generators of spaces, which Gymnasium seeds from the operating system."""
    for name in ("one", "two"):
        train_ppo(vector(), networks(), config(updates=1), run=tmp_path / name)

    states = [perdure.read(max((tmp_path / name / "checkpoints").iterdir()))["env_states"] for name in ("one", "two")]
    assert repr(states[0]) == repr(states[1])
    assert "_np_random" in repr(states[0])


def test_discrete_actions_begin_where_the_space_does():
    env = vector(1, action_space=spaces.Discrete(3, start=-1))
    env.start(jax.random.key(0))
    env.step(np.array([2], np.int32))

    assert (env.action.size, env.envs.envs[0].action) == (3, 1)


def test_continuous_actions_are_stretched_to_the_bounds():
    box = spaces.Box(np.array([[-2.0, 0.0]]), np.array([[2.0, 10.0]]), dtype=np.float64)
    env = vector(3, action_space=box)
    env.start(jax.random.key(0))
    env.step(np.array([[-1, -1], [1, 1], [0, 0.5]], np.float32))

    assert (env.action.kind, env.action.size) == ("continuous", 2)
    assert [each.action.tolist() for each in env.envs.envs] == [[[-2.0, 0.0]], [[2.0, 10.0]], [[0.0, 7.5]]]


def test_observations_may_be_dicts_of_boxes():
    parts: dict[str, Any] = {"left": spaces.Box(0, 9, (1,)), "right": spaces.Box(0, 9, (1, 1), np.int64)}
    env = vector(2, observation_space=spaces.Dict(parts), limit=1)

    obs = env.start(jax.random.key(0)).obs
    after = env.step(np.zeros(2, np.int32))

    assert (env.obs_shape, env.obs_size) == ({"left": (1,), "right": (1, 1)}, 2)
    assert jax.tree.map(lambda part: (part.dtype.name, part.tolist()), obs) == {
        "left": ("float32", [[0.0]] * 2),
        "right": ("float32", [[[7.0]]] * 2),
    }
    assert (after.obs["left"].tolist(), after.final_obs["left"].tolist()) == ([[0.0]] * 2, [[1.0]] * 2)


def cache_size(compiled: Any) -> int:
    return compiled._cache_size()


def test_nothing_is_compiled_twice():
    train_ppo(vector(), networks(), config(updates=1))
    compiled = (ppo._learn_from_host, host_rollout.act, host_rollout._values, host_rollout._next_carries)
    before = list(map(cache_size, compiled))

    train_ppo(vector(), networks(1), config(updates=4))

    assert list(map(cache_size, compiled)) == before


def test_every_metric_is_measured():
    settings = config(updates=2, logging_level=LoggingLevel.ALL)

    measured = train_ppo(vector(), networks(), settings).final_metrics

    assert measured["rollout_batch/reward/mean"] == 1.0
    assert measured["rollout_batch/truncation_rate"] == np.float32(1 / 7)
    assert any(name.startswith("net/") for name in measured)


def test_an_evaluation_plays_the_first_episode_of_each_environment_of_its_own():
    evaluation = EvalConfig(every_steps=1, n_envs=2, max_episode_length=50)
    settings = replace(config(updates=2), eval=evaluation)

    result = train_ppo(vector(), networks(), settings, eval_env=vector(2, limit=9))

    assert [entry["episode_reward_mean"] for entry in result.eval_history] == [9.0, 9.0]
    assert [entry["lifespan_std"] for entry in result.eval_history] == [0.0, 0.0]
    assert [entry["episodes_cut_off"] for entry in result.eval_history] == [0, 0]


def test_an_evaluation_may_take_place_in_jax():
    settings = replace(config(updates=1), eval=EvalConfig(every_steps=1, n_envs=2, max_episode_length=50))

    result = train_ppo(vector(), networks(), settings, eval_env=PureCounting(limit=9))

    assert result.eval_history[0]["lifespan_mean"] == 9.0


def test_a_checkpoint_of_a_callback_goes_on_in_fresh_environments(tmp_path: Path):
    save = make_checkpoint_fn(tmp_path)
    settings = replace(config(updates=4), checkpoint_every_steps=2 * 28)
    straight = train_ppo(vector(), networks(), settings, checkpoint_fn=save)

    target = networks(1)
    optimizer = nnx.Optimizer(target, ppo_optimizer(settings), wrt=nnx.Param)
    loaded = load_checkpoint(tmp_path / "step_0000000056", target, optimizer)
    resumed = train_ppo(vector(), target, settings, initial_state=loaded["training_state"])

    assert [a.tobytes() for a in parameters(resumed)] == [b.tobytes() for b in parameters(straight)]


def ppo_optimizer(settings: TrainConfig) -> Any:
    from perdure.nnx.state import optimizer_of

    return optimizer_of(settings.ppo)


class Engine(Counting):
    """An environment around an object that is written in C."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = threading.Lock()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: vector(mode=AutoresetMode.NEXT_STEP),
            UsageError,
            r"its autoreset mode is NEXT_STEP, expected SAME_STEP\. Make it with SyncVectorEnv\(.*autoreset_mode=",
        ),
        (
            lambda: vector(observation_space=spaces.Discrete(3)),
            UsageError,
            r"observation space Discrete\(3\): expected a Box, or a Dict of them\. .*FlattenObservation",
        ),
        (
            lambda: vector(action_space=spaces.Box(-np.inf, np.inf, (1,))),
            UsageError,
            r"action space Box.*: expected Discrete, or a Box with finite bounds\. ",
        ),
        (
            lambda: vector(action_space=spaces.MultiBinary(2)),
            UsageError,
            r"action space MultiBinary\(2\): expected Discrete",
        ),
        (
            lambda: GymnasiumVector(SyncVectorEnv([Engine], autoreset_mode=AutoresetMode.SAME_STEP)),
            TypeError,
            r"envs/envs/0/engine: no adapter knows a .*lock",
        ),
    ],
    ids=["mode", "observations", "bounds", "actions", "engine"],
)
def test_what_is_not_supported_is_refused_when_it_is_made(make: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        make()


EVALUATES = replace(config(), eval=EvalConfig(n_envs=3))


@pytest.mark.parametrize(
    ("train", "error", "message"),
    [
        (
            lambda: train_ppo(vector(3), networks(), config()),
            UsageError,
            r"config\.ppo\.n_envs is 4, but GymnasiumVector steps 3 environments\. Set the one to the other\.",
        ),
        (
            lambda: train_ppo(vector(), networks(), EVALUATES),
            UsageError,
            r"eval_env: evaluating in the GymnasiumVector of the training would move the training's episodes\. Pass an",
        ),
        (
            lambda: train_ppo(vector(), networks(), EVALUATES, eval_env=vector(2)),
            UsageError,
            r"config\.eval\.n_envs is 3, but GymnasiumVector steps 2 environments\.",
        ),
        (
            lambda: train_ppo(vector(action_space=spaces.Box(-1, 1, (2,))), networks(), config()),
            TypeError,
            r"GymnasiumVector: expected continuous actions floating\[4, 2\], but the network gives int32\[4\]\. "
            r"Build it with action_kind='continuous' and 2 actions\.",
        ),
        (
            lambda: train_ppo(vector(), networks(), replace(config(), video=VideoConfig(enabled=True)), video_fn=print),
            ValueError,
            r"config\.video\.enabled, but GymnasiumVector has no method render",
        ),
    ],
    ids=["number", "no eval_env", "number of eval_env", "actions", "video"],
)
def test_a_training_that_cannot_be_right_is_refused_before_it_begins(train: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        train()


def test_a_state_goes_on_in_the_environments_that_it_is_of_and_no_others():
    env = vector()
    state = train_ppo(env, networks(), config(updates=1)).training_state

    assert ppo_step(env, state, config().ppo)[0].steps_taken == 2 * 28
    with pytest.raises(UsageError, match=r"env_states: they are of another GymnasiumVector than the one given\. Hand"):
        ppo_step(vector(), state, config().ppo)


def test_a_vector_environment_may_not_evaluate_in_what_it_trains_in_under_another_name():
    env = vector(3)
    settings = replace(config(n_envs=3, n_minibatches=3), eval=EvalConfig(n_envs=3))

    with pytest.raises(UsageError, match=r"eval_env: evaluating in the GymnasiumVector of the training"):
        train_ppo(env, networks(), settings, eval_env=GymnasiumVector(env.envs))


def test_the_contract_tells_what_is_stepped():
    env = GymnasiumVector(gymnasium.make_vec("CartPole-v1", 2, "sync", {"autoreset_mode": "SameStep"}))

    told = env.contract()

    assert told["env"] == {
        "env_id": "CartPole-v1",
        "gymnasium": gymnasium.__version__,
        "inside": ["<TimeLimit<OrderEnforcing<PassiveEnvChecker<CartPoleEnv<CartPole-v1>>>>>"],
        "around": ["SyncVectorEnv"],
    }
    assert told["interface"] == {"obs_shape": (4,), "action": {"kind": "discrete", "size": 2}}
