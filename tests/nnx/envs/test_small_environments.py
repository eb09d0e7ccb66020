"""The small environments keep the protocol, end as they say, draw from the key in their state, and pay as they say."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perdure.nnx import ActionSpec, EpisodeWrapper, RewardScalingWrapper
from perdure.nnx.environment import check_environment, truncation_of
from perdure.nnx.envs import MoveToCenter, RecallCue, TwoGoals

pytestmark = pytest.mark.jax

STILL = jnp.zeros(2)
ENVIRONMENTS: list[tuple[Any, Any]] = [
    (MoveToCenter(), STILL),
    (MoveToCenter(noise=0.1, episode_length=3), STILL),
    (RecallCue(), jnp.zeros((), jnp.int32)),
    (RecallCue(cues=3, delay=0, trials=2, episode_length=3), jnp.zeros((), jnp.int32)),
    (TwoGoals(), STILL),
    (RewardScalingWrapper(EpisodeWrapper(TwoGoals(), 4), 0.5), STILL),
]


def episode(env: Any, actions: list[Any], key: int = 0) -> list[Any]:
    states = [env.reset(jax.random.key(key))]
    for action in actions:
        states.append(env.step(states[-1], action))
    return states


@pytest.mark.parametrize(("env", "action"), ENVIRONMENTS, ids=lambda value: str(value)[:40])
def test_reset_and_step_return_the_same_strong_types(env: Any, action: Any, toys: Any):
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 2))
    check_environment(env, states, jnp.stack([action, action]))

    reset, step = jax.jit(env.reset)(jax.random.key(0)), jax.jit(env.step)(env.reset(jax.random.key(0)), action)
    types = [{path: kind for path, (kind, _) in toys.leaves_of(state).items()} for state in (reset, step)]
    assert types[0] == types[1]
    assert not any("True" in kind for kind in types[0].values()), "weak types compile the training step twice"
    assert all(kind.startswith("float32()") for path, kind in types[0].items() if path.startswith("reward"))


def test_equal_fields_make_equal_environments_that_share_compiled_functions():
    assert MoveToCenter(noise=0.1) == MoveToCenter(noise=0.1) != MoveToCenter()
    assert hash(TwoGoals(episode_length=5)) == hash(TwoGoals(episode_length=5))
    assert RecallCue(2) != RecallCue(3)


def test_what_a_resume_must_find_is_told():
    assert RecallCue(cues=3).contract() == {
        "env": {"name": "RecallCue", "cues": 3, "delay": 4, "trials": 1, "episode_length": None},
        "interface": {"obs_shape": (4,), "action": {"kind": "discrete", "size": 3}},
    }
    assert TwoGoals().contract()["interface"]["rewards"] == ("effort", "reach")
    assert MoveToCenter(noise=0.5).contract()["env"]["noise"] == 0.5
    assert MoveToCenter().action == ActionSpec("continuous", 2)


@pytest.mark.parametrize("env", [MoveToCenter(episode_length=3), TwoGoals(episode_length=3)])
def test_the_limit_truncates(env: Any):
    states = episode(env, [STILL] * 3)

    assert [bool(state.done) for state in states] == [False, False, False, True]
    assert [bool(truncation_of(state)) for state in states] == [False, False, False, True]


@pytest.mark.parametrize("env", [MoveToCenter(), TwoGoals(speed=0.5)])
def test_leaving_ends_the_task_also_in_the_last_step_that_the_limit_leaves(env: Any):
    free = episode(env, [jnp.array([1.0, 0.0])] * 5)
    length = next(number for number, state in enumerate(free) if state.done)
    limited = type(env)(**{**vars(env), "episode_length": length})
    last = episode(limited, [jnp.array([1.0, 0.0])] * length)[-1]

    assert last.done
    assert not truncation_of(last)


def test_the_centre_pays_most_and_an_action_moves_at_most_one():
    env = MoveToCenter(reward_falloff=0.5, border_radius=2.0)
    state = env.reset(jax.random.key(1))
    start = np.asarray(state.data["position"])
    after = env.step(state, -100 * state.data["position"])

    np.testing.assert_allclose(after.data["position"], start - np.sign(start), rtol=1e-6)
    np.testing.assert_allclose(state.obs, start / 10, rtol=1e-6)
    np.testing.assert_allclose(state.reward, np.exp(-np.sum(start**2) / 2 / 0.25), rtol=1e-5)
    assert float(env.step(state, -state.data["position"]).reward) == pytest.approx(
        1.0 if np.abs(start).max() <= 1 else np.exp(-2 * np.sum((start - np.clip(start, -1, 1)) ** 2))
    )


def test_starts_lie_within_the_border():
    states = jax.vmap(MoveToCenter(border_radius=3.0).reset)(jax.random.split(jax.random.key(0), 1000))
    distances = np.linalg.norm(states.data["position"], axis=-1)

    assert 2.5 < distances.max() < 2.7
    assert not states.done.any()


def test_noise_comes_from_the_key_in_the_state_which_moves_on():
    states = episode(MoveToCenter(noise=0.1), [STILL] * 2)
    keys = {tuple(jax.random.key_data(state.data["key"]).tolist()) for state in states}
    first, second = (np.asarray(states[i + 1].data["position"] - states[i].data["position"]) for i in (0, 1))

    assert len(keys) == 3
    assert not np.array_equal(first, second)


def test_a_trial_shows_the_cue_then_nothing_then_asks():
    states = episode(RecallCue(cues=3, delay=2), [0, 0, 0])
    cue = int(states[0].data["cue"])

    assert [state.obs.tolist() for state in states] == [
        [float(i == cue) for i in range(3)] + [0.0],
        [0.0] * 4,
        [0.0] * 4,
        [0.0, 0.0, 0.0, 1.0],
    ]


@pytest.mark.parametrize("delay", [0, 3])
def test_only_the_answer_to_the_question_counts(delay: int):
    env = RecallCue(cues=2, delay=delay)
    cue = int(env.reset(jax.random.key(0)).data["cue"])
    for answers, pay in (([1 - cue] * (delay + 1) + [cue], 1.0), ([cue] * (delay + 1) + [1 - cue], 0.0)):
        states = episode(env, answers)
        assert [float(state.reward) for state in states] == [0.0] * (delay + 2) + [pay]
        assert [bool(state.done) for state in states] == [False] * (delay + 2) + [True]
        assert not truncation_of(states[-1])


def test_each_trial_draws_its_cue_anew():
    env = RecallCue(cues=4, delay=0, trials=50)
    step, states = jax.jit(env.step), [env.reset(jax.random.key(0))]
    for _ in range(100):
        states.append(step(states[-1], jnp.zeros((), jnp.int32)))

    assert {int(state.data["cue"]) for state in states[:-1:2]} == {0, 1, 2, 3}
    assert [bool(state.done) for state in states] == [False] * 100 + [True]


def test_a_goal_pays_once_and_is_drawn_anew_while_the_other_stays():
    env = TwoGoals(speed=1.0, goal_radius=0.1)
    state = env.reset(jax.random.key(3))
    goals = np.asarray(state.data["goals"])
    action = jnp.asarray(goals[0] - state.data["position"])
    assert np.abs(action).max() <= 1, "the goal is one move away"
    after = env.step(state, action)
    moved = np.asarray(after.data["goals"])

    assert float(after.reward["reach"]) == 1.0
    assert float(after.reward["effort"]) == pytest.approx(-float(np.mean(np.square(action))), rel=1e-6)
    assert not np.array_equal(moved[0], goals[0])
    np.testing.assert_array_equal(moved[1], goals[1])
    np.testing.assert_array_equal(after.obs["goals"], moved.reshape(-1))
    assert float(env.step(after, STILL).reward["reach"]) == 0.0
    assert float(env.step(after, STILL).reward["effort"]) == 0.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MoveToCenter(border_radius=0.0), r"MoveToCenter.border_radius must be positive and finite, got 0.0\."),
        (lambda: MoveToCenter(noise=-1.0), r"MoveToCenter.noise must be finite and not negative, got -1.0\."),
        (lambda: TwoGoals(speed=float("nan")), r"TwoGoals.speed must be positive and finite, got nan\."),
        (lambda: TwoGoals(episode_length=0), r"TwoGoals.episode_length must be positive and finite, got 0\."),
        (lambda: RecallCue(cues=1), r"RecallCue needs at least 2 cues and a delay of at least 0, got cues=1, delay=4"),
        (lambda: RecallCue(trials=0), r"RecallCue.trials must be positive and finite, got 0\."),
    ],
)
def test_numbers_out_of_range_are_named(build: Any, message: str):
    with pytest.raises(ValueError, match=message):
        build()
