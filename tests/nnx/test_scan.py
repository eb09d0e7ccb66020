"""Chunks of a scan: the same bits as the scan in one piece, stopped at any boundary or not."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import perdure
from perdure.nnx import scan
from perdure.nnx.envs.gymnax import GymnaxEnvironment

pytestmark = [pytest.mark.jax, pytest.mark.full]

ENV = GymnaxEnvironment("CartPole-v1", max_steps_in_episode=9)
LENGTH = 17
TX = optax.adam(0.05)


def fresh() -> dict[str, Any]:
    """A policy gradient of one matrix on four environments, all of it in one carry."""
    key, reset = jax.random.split(jax.random.key(0))
    weights = jnp.zeros((4, 2))
    envs = jax.vmap(ENV.reset)(jax.random.split(reset, 4))
    return {"weights": weights, "optimizer": TX.init(weights), "envs": envs, "key": key}


def step(carry: dict[str, Any], _: None) -> tuple[dict[str, Any], dict[str, Any]]:
    key, act, reset = jax.random.split(carry["key"], 3)

    def loss(weights: jax.Array) -> tuple[jax.Array, Any]:
        logits = carry["envs"].obs @ weights
        actions = jax.random.categorical(act, logits)
        after = jax.vmap(ENV.step)(carry["envs"], actions)
        likelihood = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[:, None], axis=1)[:, 0]
        return -jnp.mean(likelihood * after.reward), after

    gradient, after = jax.grad(loss, has_aux=True)(carry["weights"])
    updates, optimizer = TX.update(gradient, carry["optimizer"], carry["weights"])
    begun = jax.vmap(ENV.reset)(jax.random.split(reset, 4))
    envs = jax.tree.map(
        lambda new, old: jnp.where(after.done.reshape((4,) + (1,) * (new.ndim - 1)), new, old), begun, after
    )
    carry = {
        "weights": optax.apply_updates(carry["weights"], updates),
        "optimizer": optimizer,
        "envs": envs,
        "key": key,
    }
    return carry, {"done": after.done, "norm": jnp.linalg.norm(gradient)}


def bits(tree: Any) -> list[bytes]:
    def data(leaf: Any) -> Any:
        return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf

    return [np.asarray(data(leaf)).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.fixture(scope="module")
def whole() -> Any:
    """The scan in one piece."""
    return jax.jit(lambda state: jax.lax.scan(step, state, None, LENGTH))(fresh())


def run_of(path: Path) -> perdure.Run:
    return perdure.Run(path, every=perdure.Every(updates=1))


@pytest.mark.parametrize("chunk", [1, 4, 17, 100])
def test_chunks_give_the_bits_of_the_whole(chunk: int, tmp_path: Path, whole: Any):
    found = scan(step, fresh(), LENGTH, run=run_of(tmp_path / "run"), chunk=chunk)

    assert bits(found) == bits(whole)
    assert jax.tree.structure(found[1]) == jax.tree.structure(whole[1])


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_resume_after_any_boundary_gives_the_bits_of_the_whole(at: int, tmp_path: Path, whole: Any):
    class Stopping(perdure.Run):
        def boundary(self, **given: Any) -> None:
            if self.boundary_number == at:
                raise KeyboardInterrupt
            super().boundary(**given)

    with pytest.raises(KeyboardInterrupt), Stopping(tmp_path / "run", every=perdure.Every(updates=1)) as run:
        scan(step, fresh(), LENGTH, run=run, chunk=4)

    found = scan(step, fresh(), LENGTH, run=run_of(tmp_path / "run"), chunk=5)

    assert bits(found) == bits(whole)


def test_a_finished_scan_gives_its_result_again(tmp_path: Path, whole: Any):
    scan(step, fresh(), LENGTH, run=run_of(tmp_path / "run"), chunk=4)

    assert bits(scan(step, fresh(), LENGTH, run=run_of(tmp_path / "run"), chunk=4)) == bits(whole)


def test_the_last_state_is_saved_whatever_the_cadence(tmp_path: Path, whole: Any):
    run = perdure.Run(tmp_path / "run", every=perdure.Every(updates=100))
    scan(step, fresh(), LENGTH, run=run, chunk=4, env_steps_per_step=4)

    assert (tmp_path / "run" / "checkpoints" / "step_0000000068").is_dir()
    assert bits(scan(step, fresh(), LENGTH, run=run_of(tmp_path / "run"), chunk=4, env_steps_per_step=4)) == bits(whole)


def test_twin_another_start_gives_other_bits(whole: Any):
    other = {**fresh(), "key": jax.random.key(1)}

    assert bits(jax.lax.scan(step, other, None, LENGTH)) != bits(whole)


@pytest.mark.parametrize("name", ["length", "chunk", "env_steps_per_step"])
def test_lengths_are_positive(name: str, tmp_path: Path):
    given: dict[str, Any] = {"length": 2, "chunk": 1, "env_steps_per_step": 1, name: 0}

    with pytest.raises(perdure.UsageError, match=rf"^scan: {name}=0; expected at least 1\.$"):
        scan(step, fresh(), run=run_of(tmp_path / "run"), **given)
    assert not (tmp_path / "run").exists()


def test_a_key_among_the_outputs_is_named(tmp_path: Path):
    def leaking(carry: Any, _: None) -> Any:
        return carry, {"key": carry["key"]}

    with pytest.raises(perdure.UsageError, match=r"^scan: the output key is a key; put keys into the carry\.$"):
        scan(leaking, fresh(), 2, run=run_of(tmp_path / "run"), chunk=1)
