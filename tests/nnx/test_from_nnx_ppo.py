"""A checkpoint of nnx-ppo, converted, is the start of a training: what was learned is exact, the rest is named.

`tests/data/nnx_ppo/mlp` was written by nnx-ppo 0.2.1 itself.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import perdure
from perdure import UsageError
from perdure.interop import convert
from perdure.nnx import ActionSpec, TrainConfig, load_nnx_ppo, make_mlp_actor_critic, train_ppo
from perdure.nnx.envs.move_to_center import MoveToCenter
from perdure.nnx.state import make_optimizer

pytestmark = pytest.mark.full

FIXTURE = Path(__file__).parent.parent / "data" / "nnx_ppo" / "mlp" / "step_0000000480"


class State(NamedTuple):
    """The fields that nnx-ppo's states have."""

    data: Any
    obs: Any
    reward: Any
    done: Any
    metrics: Any
    info: Any


class SameFields:
    """A point in the plane with nnx-ppo's fields, so that its states go on in mid-episode."""

    action = ActionSpec("continuous", 2)

    def reset(self, key: jax.Array, /) -> State:
        position = jax.random.uniform(key, (2,), minval=-1.0)
        return self._state(position, jnp.zeros((), jnp.int32))

    def step(self, state: State, action: jax.Array, /) -> State:
        return self._state(state.data["pos"] + 0.1 * action, state.info["step_counter"] + 1)

    def _state(self, position: jax.Array, count: jax.Array) -> State:
        distance = jnp.linalg.norm(position)
        info = {"step_counter": count, "truncated": count >= 50}
        done = ((distance > 2) | (count >= 50)).astype(jnp.float32)
        return State({"pos": position}, position / 10, jnp.exp(-distance), done, {}, info)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("converted") / "mlp"
    convert(FIXTURE, target)
    return target


def made(width: int = 32, weight_decay: float | None = 1e-4) -> tuple[Any, Any]:
    networks = make_mlp_actor_critic(2, 2, [width, 32], [32, 32], nnx.Rngs(0))
    return networks, nnx.Optimizer(networks, make_optimizer(3e-3, 1.0, weight_decay), wrt=nnx.Param)


def numbers(obj: Any) -> dict[str, np.ndarray]:
    def plain(leaf: Any) -> np.ndarray:
        return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)

    return {".".join(map(str, path)): plain(leaf.get_value()) for path, leaf in nnx.to_flat_state(nnx.state(obj))}


def same(first: Any, second: Any) -> bool:
    a, b = np.asarray(first), np.asarray(second)
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def at(tree: Any, *steps: Any) -> Any:
    for step in steps:
        tree = tree[step]
    return tree


def test_what_was_learned_comes_over_exactly(converted: Path):
    networks, optimizer = made()
    loaded = load_nnx_ppo(converted, networks, optimizer, SameFields())
    saved = perdure.read(converted)
    here, moments = numbers(networks), numbers(optimizer)

    for branch in ("action", "value"):
        for layer in range(3):
            for name in ("kernel", "bias"):
                steps = ("layers", 1, branch, "layers", layer, "linear", name)
                path = f"layers.1.{branch}.layers.{layer}.{name}"
                assert same(here[path], at(saved["networks"], *steps))
                for moment in ("mu", "nu"):
                    wanted = at(saved["optimizer"], "opt_state", 1, 0, moment, *steps)
                    assert same(moments[f"opt_state.1.0.{moment}.{path}"], wanted)
    stream = saved["networks"]["layers"][1]["action"]["layers"][3]["rng"]["default"]
    assert same(here["layers.1.action.layers.3.stream.key"], stream["key"])
    assert same(here["layers.1.action.layers.3.stream.count"], stream["count"])
    assert same(moments["opt_state.1.0.count"], saved["optimizer"]["opt_state"][1][0]["count"])
    assert same(moments["step"], saved["optimizer"]["step"])
    normalizer = networks.layers[0]
    theirs = saved["networks"]["layers"][0]
    assert normalizer.count() == 480
    assert same(normalizer.mean[...], theirs["mean"])
    assert same(normalizer.m2[...], np.stack([theirs["M2"], np.zeros(2, np.float32)]))
    np.testing.assert_allclose(normalizer.variance(), theirs["M2"] / np.float32(480), rtol=1e-6)
    state = loaded.training_state
    assert same(jax.random.key_data(state.rng_key), saved["rng_key"])
    assert (state.steps_taken, loaded.step) == (480, 480)
    assert same(state.env_states.data["pos"], saved["env_states"]["data"]["pos"])
    assert same(state.env_states.info["truncated"], saved["env_states"]["info"]["truncated"])
    assert isinstance(loaded.config, TrainConfig)
    assert loaded.config.ppo.learning_rate == 0.003
    assert [line.partition(":")[0] for line in loaded.missing] == [
        "iteration count", "evaluation history", "cadence marks", "trajectories", "config",
    ]  # fmt: skip


def test_a_training_goes_on_from_it(converted: Path, tmp_path: Path):
    env = SameFields()

    def gone_on(run: Path | None, learning: bool = True) -> tuple[Any, Any]:
        networks, optimizer = made()
        loaded = load_nnx_ppo(converted, networks, optimizer, env)
        assert isinstance(loaded.config, TrainConfig)
        if not learning:
            networks.layers[0].counter[...] = jnp.zeros(2, jnp.uint32)
        result = train_ppo(env, networks, loaded.config, total_steps=800, initial_state=loaded.training_state, run=run)
        return networks, result

    networks, result = gone_on(None)
    again, _ = gone_on(tmp_path / "run")
    twin, _ = gone_on(None, learning=False)

    assert (result.total_steps, result.total_iterations) == (800, 5)
    assert networks.layers[0].count() == 800
    first, second, other = numbers(networks), numbers(again), numbers(twin)
    assert all(same(first[name], second[name]) for name in first)
    assert not all(same(first[name], other[name]) for name in first)


def test_environments_with_other_fields_begin_anew_and_that_is_said(converted: Path):
    networks, optimizer = made()
    loaded = load_nnx_ppo(converted, networks, optimizer, MoveToCenter())

    said = [line for line in loaded.missing if line.startswith("env_states: ")]
    assert len(said) == 1
    assert said[0].startswith("env_states: not the fields that are here (")
    assert said[0].endswith("); they begin anew.")
    assert loaded.training_state.env_states.obs.shape == (16, 2)


def test_what_does_not_fit_is_named_and_nothing_changes(converted: Path):
    networks, optimizer = made(width=16, weight_decay=None)
    before = numbers(networks) | numbers(optimizer)
    with pytest.raises(UsageError) as caught:
        load_nnx_ppo(converted, networks, optimizer, SameFields())

    for line in (
        "networks.layers.1.action.layers.0.kernel: float32 of the shape (2, 32) in the checkpoint, "
        "float32 of the shape (2, 16) here.",
        "optimizer.opt_state.1.0.nu.layers.1.action.layers.0.bias: float32 of the shape (32,) in the checkpoint",
    ):
        assert line in str(caught.value)
    assert "variables do not fit; nothing was changed. Build networks and optimizer as nnx-ppo's were" in str(
        caught.value
    )
    after = numbers(networks) | numbers(optimizer)
    assert all(same(after[name], before[name]) for name in before)


def test_other_names_are_given_by_a_function(converted: Path):
    networks, optimizer = made()
    with pytest.raises(
        UsageError, match=r"networks\.x\.layers\.0\.mean: float32 of the shape .* in the checkpoint, nothing here"
    ):
        load_nnx_ppo(converted, networks, optimizer, SameFields(), rename=lambda name: f"x.{name}")


def test_a_count_beyond_float32_is_doubted(converted: Path, tmp_path: Path):
    state = perdure.read(converted)
    state["networks"]["layers"][0]["counter"] = np.array(2.0**33, np.float32)
    perdure.save(tmp_path / "large", **state)
    networks, optimizer = made()
    loaded = load_nnx_ppo(tmp_path / "large", networks, optimizer, SameFields())

    assert networks.layers[0].count() == 2**33
    doubt = "networks.layers.0.counter: a float32 counter of nnx-ppo, which stops at 16,777,216: "
    assert f"{doubt}the true number may be another." in loaded.missing


def test_what_was_not_converted_is_told(converted: Path, tmp_path: Path):
    networks, optimizer = made()
    with pytest.raises(UsageError, match="a checkpoint of nnx-ppo itself; write it anew first: perdure convert"):
        load_nnx_ppo(FIXTURE, networks, optimizer, SameFields())
    perdure.save(tmp_path / "other", networks=networks)
    with pytest.raises(
        UsageError, match=r"no component optimizer, .* it was not converted from a checkpoint of nnx-ppo"
    ):
        load_nnx_ppo(tmp_path / "other", networks, optimizer, SameFields())
