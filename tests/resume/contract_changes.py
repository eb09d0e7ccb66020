"""Ways to change a training in one place, and what a resume may say: the words of the contract's matrix."""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import optax
from tests.resume.contract_setup import VARIABLE, Setup

import perdure

Change = Callable[[Setup], Setup | None]


class Refused(NamedTuple):
    """A difference that refuses the resume."""

    key: str
    saved: str
    found: str
    section: str = "algorithm"
    is_acceptable: bool = True


@dataclass(frozen=True)
class GoesOn:
    """What is no difference, or one that is taken."""

    change: Change
    notices: Sequence[str] = ()
    """What `restore` says about it."""


def ppo(**keys: Any) -> Change:
    return lambda setup: setup.config["ppo"].update(keys)


def config(**keys: Any) -> Change:
    return lambda setup: setup.config.update(keys)


def section(name: str, **keys: Any) -> Change:
    return lambda setup: setup.contract[name].update(keys)


def fields(**changed: Any) -> Change:
    return lambda setup: replace(setup, **changed)


def write(name: str, text: str) -> Change:
    def change(setup: Setup) -> None:
        (setup.folder / name).write_text(text)

    return change


def moved(setup: Setup) -> None:
    """The same files elsewhere, with other times and another name of the folder."""
    (setup.folder / "levels.json").rename(setup.folder / "elsewhere.json")
    (setup.folder / "pool").rename(setup.folder / "other")
    os.utime(setup.folder / "elsewhere.json", (0, 0))
    levels, pool = perdure.File(setup.folder / "elsewhere.json"), perdure.File(setup.folder / "other")
    setup.contract["env"].update(levels=levels, pool=pool)


def environment(value: str | None) -> Change:
    def change(setup: Setup) -> None:
        os.environ.pop(VARIABLE)
        if value is not None:
            os.environ[VARIABLE] = value

    return change


def switch(name: str, value: Any) -> Change:
    return lambda setup: jax.config.update(name, value)


def total(steps: int, schedules: str | None) -> Change:
    return lambda setup: replace(setup, config={**setup.config, "total": steps}, options={"schedules": schedules})


def as_namespace(config: dict[str, Any]) -> Any:
    return argparse.Namespace(**{**config, "ppo": argparse.Namespace(**config["ppo"])})


def as_objects(config: dict[str, Any]) -> Any:
    return SimpleNamespace(**{**config, "ppo": SimpleNamespace(**config["ppo"])})


def as_dataclasses(config: dict[str, Any]) -> Any:
    parts = {**config, "ppo": make_dataclass("Ppo", config["ppo"])(**config["ppo"])}
    return make_dataclass("Config", parts)(**parts)


def dressed(kind: Callable[[dict[str, Any]], Any], **keys: Any) -> Change:
    """The configuration as an object of another kind, with other values of `ppo`."""
    return lambda setup: replace(setup, config={**setup.config, "ppo": {**setup.config["ppo"], **keys}}, dressed=kind)


def sgd() -> Any:
    return optax.sgd(3e-4)


def clipped() -> Any:
    return optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))
