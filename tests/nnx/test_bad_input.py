"""What does not fit is told before any training, with saved and found; a loss that is no number is told at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

from perdure import ContractError, Run
from perdure.nnx import (
    EnvState,
    EvalConfig,
    NormalTanhSampler,
    PPOAdapter,
    PPOConfig,
    Sequential,
    StatefulModule,
    StatefulModuleOutput,
    TrainConfig,
    make_mlp_actor_critic,
    make_mlp_layers,
    train_ppo,
)
from perdure.nnx.envs import MoveToCenter

pytestmark = pytest.mark.jax

PPO = PPOConfig(n_envs=4, rollout_length=4, n_epochs=1, n_minibatches=1, total_steps=16, learning_rate=1e-3)


def config(**changes: Any) -> TrainConfig:
    return TrainConfig(dataclasses.replace(PPO, **changes), EvalConfig(enabled=False), checkpoint_every_steps=16)


def networks(obs_size: int = 2, hidden: tuple[int, ...] = (4,), *, normalize_obs: bool = True) -> StatefulModule:
    return make_mlp_actor_critic(obs_size, 2, hidden, hidden, nnx.Rngs(0), normalize_obs=normalize_obs)


class Began(Exception):
    """A training went on where it should have been refused."""


def fail_if_it_trains(metrics: dict[str, Any], steps: int) -> None:
    raise Began


@pytest.mark.parametrize(
    ("nets", "message"),
    [
        (
            networks(3, normalize_obs=False),
            r"Dense\(3, 4\) got an input of shape \(4, 2\), whose last axis is not 3\. Build the network for",
        ),
        (networks(3), r"Normalizer was made for observations of shape \(3,\), but got \(2,\)"),
    ],
    ids=["dense", "normaliser"],
)
def test_networks_of_another_width_are_told_before_training(nets: StatefulModule, message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        train_ppo(MoveToCenter(), nets, config(), run=tmp_path / "run", log_fn=fail_if_it_trains)
    assert not (tmp_path / "run").exists(), "no run was begun"


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one iteration that would go on to another."""
    path = tmp_path_factory.mktemp("begun") / "run"

    def stop(metrics: dict[str, Any], steps: int) -> None:
        if steps > 16:
            raise Began

    with pytest.raises(Began):
        train_ppo(MoveToCenter(), networks(), config(total_steps=32), run=path, log_fn=stop)
    return path


def half_precision() -> StatefulModule:
    nets = networks()
    graphdef, state = nnx.split(nets)
    return nnx.merge(graphdef, jax.tree.map(halved, state))


def halved(leaf: jax.Array) -> jax.Array:
    return leaf.astype(jnp.bfloat16) if leaf.dtype == jnp.float32 and leaf.ndim == 2 and leaf.shape[-1] == 4 else leaf


ANOTHER: dict[str, tuple[Callable[[], StatefulModule], dict[str, Any], list[str]]] = {
    "wider": (
        lambda: networks(hidden=(5,)),
        {},
        [
            "networks/layers/1/action/layers/0/kernel: float32 2×4 in the run, float32 2×5 here.",
            "optimizer/opt_state/0/mu/layers/1/action/layers/0/kernel: float32 2×4 in the run, float32 2×5 here.",
        ],
    ),
    "deeper": (lambda: networks(hidden=(4, 4)), {}, ["networks/layers/1/action/layers"]),
    "of another precision": (
        half_precision,
        {},
        ["networks/layers/1/action/layers/0/kernel: float32 2×4 in the run, bfloat16 2×4 here."],
    ),
    "without normaliser": (lambda: networks(normalize_obs=False), {}, ["networks"]),
    "with clipped gradients": (networks, {"gradient_clipping": 0.5}, ["algorithm.ppo.gradient_clipping: None in"]),
    "with weight decay": (networks, {"weight_decay": 0.1}, ["algorithm.ppo.weight_decay: None in the run, 0.1 here."]),
    "with more environments": (
        networks,
        {"n_envs": 6},
        ["algorithm.ppo.n_envs: 4 in the run, 6 here.", "env_states/data/position: float32 4×2 in the run"],
    ),
}


@pytest.mark.parametrize("what", ANOTHER)
def test_a_resume_with_another_structure_names_what_was_saved_and_what_was_found(what: str, begun: Path):
    build, changes, expected = ANOTHER[what]
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file() and "lineage" not in path.name}

    with pytest.raises(ContractError) as caught:
        train_ppo(MoveToCenter(), build(), config(total_steps=32, **changes), run=begun, log_fn=fail_if_it_trains)

    message = str(caught.value)
    assert "nothing was changed" in message
    for line in expected:
        assert line in message, message
    assert {path: path.read_bytes() for path in before} == before


def test_an_optimizer_of_another_chain_is_named(begun: Path):
    """Of a state of the script's own, which the configuration does not describe."""
    from perdure.nnx import new_training_state

    env, nets = MoveToCenter(), networks()
    state = new_training_state(env, nets, 4, 17, 1e-3)
    chain = optax.chain(optax.clip(1.0), optax.adam(1e-3))
    state = dataclasses.replace(state, optimizer=nnx.Optimizer(nets, chain, wrt=nnx.Param))

    with pytest.raises(ContractError, match=r"optimizer/opt_state") as caught:
        train_ppo(env, nets, config(total_steps=32), initial_state=state, run=begun, log_fn=fail_if_it_trains)
    assert "nothing was changed" in str(caught.value)


@dataclasses.dataclass
class Opaque:
    """A state that JAX does not know as a pytree."""

    obs: Any
    reward: Any
    done: Any
    info: dict[str, Any]
    metrics: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class WithoutTree:
    """An environment that returns such states, or one whose state holds such an object."""

    inside: bool

    def reset(self, key: jax.Array, /) -> Any:
        zero = jnp.zeros(())
        if self.inside:
            return EnvState(Opaque(zero, zero, zero, {}, {}), jnp.zeros(2), zero, zero > 1)
        return Opaque(jnp.zeros(2), zero, zero > 1, {}, {})

    def step(self, state: Any, action: Any, /) -> Any:
        return state


@pytest.mark.parametrize(
    ("inside", "place"), [(False, "the state itself"), (True, "data")], ids=["the state", "a part of it"]
)
def test_a_state_that_is_no_pytree_is_told_before_training(inside: bool, place: str, tmp_path: Path):
    message = (
        rf"WithoutTree: reset returned a state that is no pytree of arrays: {place} is of class Opaque\. "
        r"Register the class with jax\.tree_util\.register_dataclass"
    )
    with pytest.raises(TypeError, match=message):
        train_ppo(WithoutTree(inside), networks(), config(), run=tmp_path / "run", log_fn=fail_if_it_trains)
    assert not (tmp_path / "run").exists()


@dataclasses.dataclass(frozen=True)
class Exploding(MoveToCenter):
    """Pays with something that is no number from some step on."""

    at: int = 6
    pays: float = float("nan")

    def step(self, state: EnvState, action: jax.Array, /) -> EnvState:
        after = super().step(state, 0.0 * action)
        return dataclasses.replace(after, reward=jnp.where(after.data["time"] >= self.at, self.pays, after.reward))


@pytest.mark.parametrize("pays", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_training_and_is_not_saved(pays: float, tmp_path: Path):
    logged: list[int] = []
    with pytest.raises(FloatingPointError) as caught:
        train_ppo(
            Exploding(pays=pays),
            networks(),
            config(total_steps=64),
            run=tmp_path / "run",
            log_fn=lambda metrics, steps: logged.append(steps),
        )

    message = str(caught.value)
    assert message.startswith("env_steps=32: losses/")
    for name in ("losses/actor/mean is nan", "losses/critic/mean is "):
        assert name in message
    assert "expected finite numbers. Nothing was saved after that" in message
    assert "a smaller learning rate or with gradient_clipping" in message
    assert logged == [16], "the iteration before was logged, and no other"
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())[-1] == "step_0000000016"
    assert [row["env_steps"] for row in Run(tmp_path / "run").metrics_rows()] == [16]


class Diverging(StatefulModule):
    """A critic whose estimate is no number."""

    def __init__(self) -> None:
        self.scale = nnx.Param(jnp.array(float("nan")))

    def __call__(self, module_state: Any, obs: jax.Array, rollout_extras: Any = None) -> StatefulModuleOutput:
        return StatefulModuleOutput(module_state, obs[:, 0] * self.scale[...])


def test_it_is_told_without_a_run_too():
    rngs = nnx.Rngs(0)
    actor = Sequential([*make_mlp_layers([2, 4], rngs), NormalTanhSampler(rngs)])

    with pytest.raises(FloatingPointError, match=r"^env_steps=16: .*losses/critic/mean is nan"):
        train_ppo(MoveToCenter(), PPOAdapter(action=actor, value=Diverging()), config())
