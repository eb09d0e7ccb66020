"""What brax and MuJoCo Playground environments share, on a made-up library: limits, states, identity, errors.

Neither library is needed here.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from perdure.nnx.environment import ActionSpec, check_environment, truncation_of
from perdure.nnx.envs.brax import BraxEnvironment
from perdure.nnx.envs.physics import Native, PhysicsEnvironment
from perdure.nnx.envs.playground import PlaygroundEnvironment
from perdure.nnx.envs.settings import frozen

pytestmark = pytest.mark.jax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Falling:
    """A state as these libraries make them: `done` is a float, the dicts are written into."""

    height: Any
    obs: Any
    reward: Any
    done: Any
    metrics: dict[str, Any]
    info: dict[str, Any]


class Stone:
    """Falls one a step, ends below 0; the reward is weakly typed, and `step` writes into its input's dicts."""

    action_size = 2

    def __init__(self, height: int, **info: Any) -> None:
        self.height, self.info = height, info

    def reset(self, key: jax.Array) -> Falling:
        info = {"rng": key, **self.info}
        return self._state(jnp.int32(self.height), jnp.zeros(()), {"depth": jnp.zeros(())}, info)

    def step(self, state: Falling, action: jax.Array) -> Falling:
        state.info["rng"], _ = jax.random.split(state.info["rng"])
        state.metrics["depth"] = self.height - (state.height - 1.0)
        return self._state(state.height - 1, 2.0, state.metrics, state.info)

    def _state(self, height: jax.Array, reward: Any, metrics: dict[str, Any], info: dict[str, Any]) -> Falling:
        obs = {"state": jnp.stack([height, height]).astype(jnp.float32), "privileged_state": jnp.zeros((2, 3))}
        return Falling(height, obs, reward, (height < 0).astype(jnp.float32), metrics, info)


def environment(height: int = 9, limit: int = 3, settings: Any = None) -> PhysicsEnvironment:
    native = Native(Stone(height), Falling, physics="height")
    return PhysicsEnvironment(
        "Stone", native, episode_length=limit, settings=frozen(settings, "Stone"), env_facts={"gravity": height}
    )


def episode(env: PhysicsEnvironment, steps: int) -> list[Any]:
    states = [env.reset(jax.random.key(0))]
    for _ in range(steps):
        states.append(env.step(states[-1], jnp.zeros(2)))
    return states


def test_the_limit_truncates_and_is_counted_in_the_state():
    states = episode(environment(limit=3), 3)

    assert [int(state.data["steps"]) for state in states] == [0, 1, 2, 3]
    assert [bool(state.done) for state in states] == [False, False, False, True]
    assert [bool(truncation_of(state)) for state in states] == [False, False, False, True]


def test_an_end_of_the_task_is_no_truncation_even_in_the_last_step():
    for limit in (3, 50):
        last = episode(environment(height=2, limit=limit), 3)[-1]
        assert last.done
        assert not truncation_of(last)


def test_reset_and_step_return_the_same_types(toys: Any):
    env = environment()
    reset, step = episode(env, 1)
    types = [{path: kind for path, (kind, _) in toys.leaves_of(state).items()} for state in (reset, step)]

    assert types[0] == types[1]
    assert not any("True" in kind for kind in types[0].values()), "weak types compile the training step twice"
    assert jax.tree.structure(reset) == jax.tree.structure(step)
    assert (reset.reward.dtype, reset.done.dtype, reset.data["steps"].dtype) == (jnp.float32, jnp.bool, jnp.int32)
    check_environment(
        env, jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 3)), jax.ShapeDtypeStruct((3, 2), jnp.float32)
    )


def test_a_step_does_not_write_into_the_state_that_it_was_given(toys: Any):
    state = environment().reset(jax.random.key(0))
    before = toys.leaves_of(state)

    environment().step(state, jnp.zeros(2))

    assert toys.leaves_of(state) == before


def test_observations_may_be_dicts():
    env = environment()

    assert env.obs_shape == {"state": (2,), "privileged_state": (2, 3)}
    assert env.obs_size == 8
    assert env.action == ActionSpec("continuous", 2)


def test_the_contract_names_dynamics_and_spaces():
    assert environment(limit=3).contract() == {
        "env": {"env_name": "Stone", "episode_length": 3, "gravity": 9},
        "interface": {
            "obs_shape": {"state": (2,), "privileged_state": (2, 3)},
            "action": {"kind": "continuous", "size": 2},
        },
    }


def test_equal_environments_share_compiled_functions():
    assert environment(settings={"a": [1]}) == environment(settings={"a": [1]})
    assert hash(environment()) == hash(environment())
    for other in (environment(limit=4), environment(settings={"a": 1}), "Stone"):
        assert environment() != other


def test_settings_that_python_finds_equal_are_told_apart():
    kinds = [frozen(value, "x") for value in (1, 1.0, True, "1", None, [1], (1,), {"a": 1}, {"a": True})]

    assert len(set(kinds)) == len(kinds)
    assert frozen({"a": 1, "b": 2}, "x") == frozen({"b": 2, "a": 1}, "x")


def test_settings_that_are_not_plain_are_refused_by_their_place():
    with pytest.raises(
        TypeError, match=r"^ant\.weights\.1: expected numbers, texts, .* got a ArrayImpl\. .*\.tolist\(\)"
    ):
        frozen({"weights": [1, jnp.zeros(2)]}, "ant")


def test_a_limit_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match=r"^Stone: episode_length: expected at least 1 step, got 0\.$"):
        environment(limit=0)


def test_an_environment_that_is_limited_already_is_refused():
    limited = Native(Stone(9, truncation=jnp.zeros(())), Falling, physics="height")

    with pytest.raises(
        ValueError, match=r"^Stone: expected an environment without a limit of its own.*without its episode wrapper"
    ):
        PhysicsEnvironment("Stone", limited, episode_length=3, settings=(), env_facts={})


@pytest.mark.parametrize(
    ("build", "module", "extra"),
    [
        (lambda: BraxEnvironment("fast"), "brax", "brax"),
        (lambda: PlaygroundEnvironment("CartpoleBalance"), "mujoco_playground", "playground"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    build: Any, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ImportError, match=rf"expected to be installed.*pip install 'perdure\[{extra}\]'"):
        build()
