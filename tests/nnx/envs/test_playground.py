"""MuJoCo Playground environments speak the protocol: equal types, truncation, everything in the state."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perdure
from perdure.nnx.environment import ActionSpec, check_environment, truncation_of
from perdure.nnx.envs.playground import PlaygroundEnvironment

pytestmark = [pytest.mark.jax, pytest.mark.slow]

NAMES = [
    "AcrobotSwingup",
    "BallInCup",
    "CartpoleBalance",
    "CartpoleSwingupSparse",
    "CheetahRun",
    "FingerSpin",
    "FingerTurnHard",
    "FishSwim",
    "HopperHop",
    "HumanoidWalk",
    "PendulumSwingup",
    "PointMass",
    "SwimmerSwimmer6",
    "WalkerRun",
]
"""One of each class of the DeepMind Control Suite but Reacher, which calls a method that MuJoCo 3.17 has no more; the
other suites download their robots."""


def episode(env: PlaygroundEnvironment, actions: list[float], seed: int = 0) -> list[Any]:
    states = [jax.jit(env.reset)(jax.random.key(seed))]
    step = jax.jit(env.step)
    for action in actions:
        states.append(step(states[-1], jnp.full(env.action.size, action)))
    return states


@pytest.fixture(scope="module")
def limited() -> PlaygroundEnvironment:
    return PlaygroundEnvironment("CartpoleBalance", episode_length=3)


@pytest.mark.parametrize("name", NAMES)
def test_reset_and_step_return_the_same_types(name: str):
    env = PlaygroundEnvironment(name)
    state = jax.eval_shape(jax.vmap(env.reset), jax.random.split(jax.random.key(0), 3))

    check_environment(env, state, jax.ShapeDtypeStruct((3, env.action.size), jnp.float32))


def test_no_type_is_weak(limited: PlaygroundEnvironment, toys: Any):
    reset, step = episode(limited, [0.1])
    types = [{path: kind for path, (kind, _) in toys.leaves_of(state).items()} for state in (reset, step)]

    assert types[0] == types[1]
    assert not any("True" in kind for kind in types[0].values()), "weak types compile the training step twice"
    assert jax.tree.structure(reset) == jax.tree.structure(step)


def test_the_time_limit_truncates_and_a_reset_begins_anew(limited: PlaygroundEnvironment):
    states = episode(limited, [0.0] * 3)
    again = episode(limited, [], seed=1)[0]

    assert [int(state.data["steps"]) for state in states] == [0, 1, 2, 3]
    assert [bool(state.done) for state in states] == [False, False, False, True]
    assert [bool(truncation_of(state)) for state in states] == [False, False, False, True]
    assert int(again.data["steps"]) == 0
    assert not again.done
    assert (again.obs != states[0].obs).any()


def test_an_episode_is_the_one_that_playground_plays():
    states = episode(PlaygroundEnvironment("CartpoleBalance"), [0.5, -0.3, 0.8, 0.1])
    native = import_module("mujoco_playground").registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    expected, step = jax.jit(native.reset)(jax.random.key(0)), jax.jit(native.step)

    for state, action in zip(states[1:], [0.5, -0.3, 0.8, 0.1], strict=True):
        expected = step(expected, jnp.full(1, action))
        np.testing.assert_allclose(state.obs, expected.obs, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state.reward, expected.reward, rtol=1e-5)


def test_the_limit_is_that_of_the_configuration_unless_given():
    assert PlaygroundEnvironment("CartpoleBalance").episode_length == 1000
    assert PlaygroundEnvironment("CartpoleBalance", {"episode_length": 5}).episode_length == 5


def test_a_state_that_was_saved_goes_on_in_a_fresh_one(limited: PlaygroundEnvironment, tmp_path: Path, toys: Any):
    *_, saved = episode(limited, [0.3, -0.2])
    perdure.save(tmp_path / "saved", env_states=saved)

    loaded = perdure.load(tmp_path / "saved", env_states=episode(limited, [], seed=7)[0])["env_states"]

    assert toys.leaves_of(loaded) == toys.leaves_of(saved)
    assert jax.tree.structure(loaded) == jax.tree.structure(saved)
    step = jax.jit(limited.step)
    assert toys.leaves_of(step(loaded, jnp.ones(1))) == toys.leaves_of(step(saved, jnp.ones(1)))


def test_a_step_does_not_write_into_the_state_that_it_was_given(limited: PlaygroundEnvironment, toys: Any):
    """Playground writes its metrics into the dict that it gets."""
    state = episode(limited, [])[0]
    before = toys.leaves_of(state)

    after = limited.step(state, jnp.ones(1))

    assert toys.leaves_of(state) == before
    assert after.metrics["reward/upright"] != state.metrics["reward/upright"]


def test_sizes_and_contract(limited: PlaygroundEnvironment):
    contract = limited.contract()
    config = contract["env"].pop("config")

    assert (limited.obs_size, limited.obs_shape, limited.action) == (5, (5,), ActionSpec("continuous", 1))
    assert (config["impl"], config["ctrl_dt"], config["action_repeat"]) == ("jax", 0.01, 1)
    assert contract == {
        "env": {
            "env_name": "CartpoleBalance",
            "episode_length": 3,
            "playground": version("playground"),
            "mujoco": version("mujoco"),
            "mujoco_mjx": version("mujoco-mjx"),
        },
        "interface": {"obs_shape": (5,), "action": {"kind": "continuous", "size": 1}},
    }


def test_overrides_reach_the_environment_and_its_contract():
    env = PlaygroundEnvironment("CartpoleBalance", {"ctrl_dt": 0.02, "vision_config.nworld": 8})

    config = env.contract()["env"]["config"]
    assert (config["ctrl_dt"], config["vision_config"]["nworld"]) == (0.02, 8)
    before, after = episode(env, [0.0])
    assert float(after.data["physics"].time - before.data["physics"].time) == pytest.approx(0.02)


def test_environments_that_were_registered_are_found_and_may_observe_dicts(monkeypatch: pytest.MonkeyPatch):
    suite = import_module("mujoco_playground").dm_control_suite
    cartpole = import_module("mujoco_playground._src.dm_control_suite.cartpole")

    class Privileged(cartpole.Balance):
        def _get_obs(self, data: Any, info: Any) -> dict[str, jax.Array]:
            return {"state": data.qpos, "privileged_state": super()._get_obs(data, info)}

    def make(**options: Any) -> Any:
        return Privileged(swing_up=False, sparse=False, **options)

    monkeypatch.setitem(suite._envs, "Privileged", make)
    monkeypatch.setitem(suite._cfgs, "Privileged", cartpole.default_config)
    env = PlaygroundEnvironment("Privileged")

    assert env.obs_shape == {"state": (2,), "privileged_state": (5,)}
    assert env.obs_size == 7


def test_equal_environments_share_compiled_functions():
    override = {"ctrl_dt": 0.02}
    assert PlaygroundEnvironment("CartpoleBalance", override) == PlaygroundEnvironment("CartpoleBalance", override)
    assert hash(PlaygroundEnvironment("CartpoleBalance")) == hash(PlaygroundEnvironment("CartpoleBalance"))
    assert PlaygroundEnvironment("CartpoleBalance", override) != PlaygroundEnvironment("CartpoleBalance")
    assert repr(PlaygroundEnvironment("CartpoleBalance", override)) == (
        "PlaygroundEnvironment('CartpoleBalance', {'ctrl_dt': 0.02}, episode_length=1000)"
    )


def test_mistakes_are_answered_with_what_there_is():
    with pytest.raises(ValueError, match=r"^MuJoCo Playground has no environment 'Cartpole'\. It has: .*CartpoleBal"):
        PlaygroundEnvironment("Cartpole")
    with pytest.raises(ValueError, match=r"^CartpoleBalance: its configuration has no 'dt'\. It has: .*ctrl_dt"):
        PlaygroundEnvironment("CartpoleBalance", {"dt": 0.1})
    with pytest.raises(TypeError, match=r"^CartpoleBalance: ctrl_dt: expected a value like 0\.01, got 'fast'\.$"):
        PlaygroundEnvironment("CartpoleBalance", {"ctrl_dt": "fast"})
    with pytest.raises(ValueError, match=r"^CartpoleBalance: impl: expected 'jax', got 'warp'\. Leave it out"):
        PlaygroundEnvironment("CartpoleBalance", {"impl": "warp"})
    with pytest.raises(ValueError, match=r"^CartpoleBalance: action_repeat: expected 1, got 2.*'action_repeat': 1"):
        PlaygroundEnvironment("CartpoleBalance", {"action_repeat": 2})
