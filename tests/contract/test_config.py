"""From a configuration to a contract: every key, every value, in its section."""

import argparse
import dataclasses
import enum
import functools
from collections import OrderedDict
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perdure.contract.config import contract_of, flatten
from perdure.errors import UsageError
from perdure.format.digests import digest_of


class Activation(enum.Enum):
    RELU = "relu"
    TANH = "tanh"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Optimizer:
    learning_rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)


@dataclasses.dataclass
class Config:
    total_timesteps: int = 1000
    seed: int = 1
    track: bool = False
    wandb_project: str | None = None
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)


def double(x: float) -> float:
    return 2 * x


def test_a_nested_dataclass_gives_dotted_keys_in_order():
    assert list(flatten(Config())) == [
        ("total_timesteps", 1000),
        ("seed", 1),
        ("track", False),
        ("wandb_project", None),
        ("optimizer", "Optimizer"),
        ("optimizer.learning_rate", 3e-4),
        ("optimizer.betas.0", 0.9),
        ("optimizer.betas.1", 0.999),
    ]


@pytest.mark.parametrize(
    "config",
    [
        {"lr": 0.1, "net": {"width": 64}},
        OrderedDict(lr=0.1, net={"width": 64}),
        argparse.Namespace(lr=0.1, net={"width": 64}),
        SimpleNamespace(lr=0.1, net=SimpleNamespace(width=64)),
        {"lr": 0.1, "net": argparse.Namespace(width=64)},
    ],
    ids=lambda config: type(config).__name__,
)
def test_mappings_and_objects_with_attributes_are_configurations_too(config: Any):
    assert dict(flatten(config)) == {"lr": 0.1, "net.width": 64}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, {"x": None}),
        (True, {"x": True}),
        (2**70, {"x": 2**70}),
        (0.5, {"x": 0.5}),
        ("text", {"x": "text"}),
        (Activation.TANH, {"x": "Activation.TANH = tanh"}),
        (Level.LOW, {"x": "Level.LOW = 1"}),
        (Path("a/b"), {"x": "a/b"}),
        (PurePosixPath("/c"), {"x": "/c"}),
        (double, {"x": f"{__name__}.double"}),
        (Optimizer, {"x": f"{__name__}.Optimizer"}),
        (len, {"x": "builtins.len"}),
        (np.float32, {"x": "numpy.float32"}),
        (np.float32(0.5), {"x": 0.5}),
        (np.int64(3), {"x": 3}),
        (np.asarray(3.0), {"x": 3.0}),
        ([1, [2.0]], {"x.0": 1, "x.1.0": 2.0}),
        (np.array([0.5, 1.0]), {"x.0": 0.5, "x.1": 1.0}),
        (np.arange(65), {"x": f"int64[65],{digest_of(np.arange(65).tobytes())}"}),
        (np.zeros((0, 3)), {"x": "empty array [0, 3]"}),
        ([], {"x": "empty list"}),
        ((), {"x": "empty tuple"}),
        ({}, {"x": "empty dict"}),
        ({1: "a", "b": 2}, {"x.1": "a", "x.b": 2}),
    ],
)
def test_values_are_flattened_to_plain_ones_that_keep_what_they_are(value: Any, expected: dict[str, Any]):
    found = dict(flatten({"x": value}))

    assert found == expected
    assert [type(part) for part in found.values()] == [type(part) for part in expected.values()]


@pytest.mark.parametrize(
    ("value", "kind"),
    [({1, 2}, "set"), (b"bytes", "bytes"), (1j, "complex"), (range(3), "range")],
)
def test_a_value_that_cannot_be_compared_is_refused_with_its_key(value: Any, kind: str):
    with pytest.raises(UsageError) as caught:
        contract_of({"net": {"x": value}}, horizon=None, free=())

    assert str(caught.value) == f"config net.x: a {kind} cannot be compared at a resume."


def test_a_whole_configuration_that_cannot_be_compared_is_refused():
    with pytest.raises(UsageError, match=r"^config \(whole\): a set cannot be compared at a resume\.$"):
        contract_of({1, 2}, horizon=None, free=())


def test_a_partial_is_not_told_by_its_emptiness():
    """Two partials with different arguments are different configurations: told apart, or refused."""
    try:
        first, second = (dict(flatten({"schedule": functools.partial(int, base=base)})) for base in (2, 3))
    except UsageError:
        return
    assert first != second


@pytest.mark.parametrize("config", [{"a.b": 1, "a": {"b": 2}}, {"a": {"b": 2}, "a.b": 1}, {1: "x", "1": "y"}], ids=repr)
def test_two_keys_never_fall_together(config: dict[Any, Any]):
    """Where two values share a dotted key, one of them would escape every comparison."""
    try:
        contract = contract_of(config, horizon=None, free=())
    except UsageError:
        return
    assert len(contract["algorithm"]) == 2


def test_no_configuration_is_an_empty_contract():
    assert contract_of(None, horizon=None, free=()) == {"algorithm": {}, "horizon": {}, "seed": {}, "operational": {}}
    assert contract_of({}, horizon=None, free=()) == contract_of(None, horizon=None, free=())


def test_keys_go_to_their_sections():
    contract = contract_of(
        {"env": {"seed": 3, "id": "CartPole"}, **vars(Config())}, horizon="total_timesteps", free=["track", "wandb_*"]
    )

    assert contract == {
        "algorithm": {
            "env.id": "CartPole",
            "optimizer": "Optimizer",
            "optimizer.learning_rate": 3e-4,
            "optimizer.betas.0": 0.9,
            "optimizer.betas.1": 0.999,
        },
        "horizon": {"total_timesteps": 1000},
        "seed": {"env.seed": 3, "seed": 1},
        "operational": {"track": False, "wandb_project": None},
    }


@pytest.mark.parametrize("key", ["env_seed", "seeds", "seed.first"])
def test_only_a_key_called_seed_is_a_seed(key: str):
    config = {"seed": {"first": 1}} if key == "seed.first" else {key: 1}

    assert contract_of(config, horizon=None, free=())["algorithm"] == {key: 1}


@pytest.mark.parametrize("key", ["SEED", "Seed", "env.SEED"])
def test_a_seed_is_one_however_it_is_capitalised(key: str):
    assert contract_of({key: 1}, horizon=None, free=["*"])["seed"] == {key: 1}


def test_free_patterns_match_whole_dotted_keys_case_and_all():
    config = {"log": {"dir": "a", "level": 1}, "Log": {"dir": "b"}, "dir": "c", "catalog": 2}

    contract = contract_of(config, horizon=None, free=["log.*"])

    assert contract["operational"] == {"log.dir": "a", "log.level": 1}
    assert contract["algorithm"] == {"Log.dir": "b", "dir": "c", "catalog": 2}


def test_a_nested_horizon_is_named_by_its_dotted_key():
    assert contract_of({"ppo": {"steps": 5}}, horizon="ppo.steps", free=())["horizon"] == {"ppo.steps": 5}


def test_a_horizon_that_is_no_key_is_refused_with_the_keys_there_are():
    with pytest.raises(UsageError) as caught:
        contract_of({"steps": 5, "net": {"width": 6}}, horizon="total_steps", free=())

    assert str(caught.value) == "horizon='total_steps' is no key of config; it has ['steps', 'net.width']."
