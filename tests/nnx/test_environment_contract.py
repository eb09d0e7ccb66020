"""What a resume knows of an environment that says nothing of itself."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass

import jax
import pytest

import perdure
from perdure import ContractError
from perdure.nnx import train_ppo
from perdure.nnx.environment import contract_of
from perdure.nnx.envs.gymnax import GymnaxEnvironment


def test_class_and_fields_are_the_contract(toys):
    told = contract_of(toys.Counting(limit=7, rewards=("food",)))

    flat = perdure.contract_of(None, own=told)["env"]
    assert flat["limit"] == 7
    assert flat["rewards.0"] == "food"
    assert str(flat["class"]).endswith("Counting")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"limit": 6}, r"env\.limit: 5 in the run, 6 here"), ({"truncates": True}, r"env\.truncates: False in the run")],
)
def test_another_environment_is_refused(toys, tmp_path, change, message):
    config = toys.small_config()
    networks = [_networks(toys, seed) for seed in (0, 1)]
    train_ppo(toys.Counting(), networks[0], config, total_steps=32, run=tmp_path / "run")

    with pytest.raises(ContractError, match=message):
        train_ppo(toys.Counting(**change), networks[1], config, run=tmp_path / "run")


def test_another_class_of_the_same_fields_is_refused(toys, tmp_path):
    class Slower(toys.Counting):
        pass

    config = toys.small_config()
    train_ppo(toys.Counting(), _networks(toys, 0), config, total_steps=32, run=tmp_path / "run")

    with pytest.raises(ContractError, match=r"env\.class: .*Counting' in the run, .*test_environment_contract"):
        train_ppo(Slower(), _networks(toys, 1), config, run=tmp_path / "run")


@dataclass(frozen=True)
class Wrapped:
    """An environment in another one, with something that nobody can compare."""

    env: object
    key: object = dataclasses.field(default=None, compare=False)


def test_what_an_inner_environment_says_counts():
    inner = GymnaxEnvironment("CartPole-v1")
    flat = [perdure.contract_of(None, own=contract_of(Wrapped(env)))["env"] for env in (inner, _longer(inner))]  # pyright: ignore[reportArgumentType]

    changed = {key for key in flat[0].keys() | flat[1].keys() if flat[0].get(key) != flat[1].get(key)}
    assert changed == {"env.env.params.max_steps_in_episode"}


def test_what_cannot_be_compared_is_said(caplog):
    with caplog.at_level(logging.WARNING, "perdure"):
        told = contract_of(Wrapped(None, jax.random.key(0)))  # pyright: ignore[reportArgumentType]

    assert "Wrapped: the attributes key cannot be compared at a resume; a method contract()" in caplog.text
    assert "Array" in str(perdure.contract_of(None, own=told)["env"]["key"])


def _longer(env: GymnaxEnvironment) -> GymnaxEnvironment:
    return GymnaxEnvironment(env.env_id, max_steps_in_episode=7)


def _networks(toys, seed):
    from flax import nnx

    from perdure.nnx import make_mlp_actor_critic

    return make_mlp_actor_critic(1, 2, [4], [4], nnx.Rngs(seed), action_kind="discrete")
