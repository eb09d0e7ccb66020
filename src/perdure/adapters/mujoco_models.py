"""MuJoCo's models: those numbers that differ from what the model's file gives (domain randomisation)."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.containers import Children
from perdure.adapters.gymnasium_attributes import state_of
from perdure.adapters.gymnasium_envs import Env
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.format.digests import digest_of
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree

_mujoco: Any = mujoco
"""Its functions are made when it is imported, so that type checkers see none of them."""

_SHOWN_ONLY = ("tex_", "mat_", "skin_", "light_", "text_", "name_", "names", "paths")
"""What begins so is looked at by renderers alone."""

_PARTS = ("opt", "stat")


@dataclass(frozen=True)
class Compiled:
    """A model and the file that it was compiled from; None if it is not known."""

    model: Any
    file: str | None


@dataclass(frozen=True)
class Reference:
    """What a freshly compiled model holds."""

    numbers: dict[str, tuple[Any, bytes]]
    """By field: the array or number, and its bytes."""
    digest: str
    """Of all of them."""


class CompiledModel(ExactAdapter):
    """A model whose file is known: the fields that are not as in the file."""

    id = "mujoco-compiled-model"
    kind: Kind = "live"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the changed fields' arrays. What the file gives is a fact, told by a digest."""
        reference = _reference(obj.file)
        if reference is None:
            return {name: _leaf(value) for name, value in _numbers(obj.model).items()}
        walk.fact(f"compiled model {reference.digest}")
        known = reference.numbers
        return {n: _leaf(value) for n, value in _numbers(obj.model).items() if _bytes(value) != known[n][1]}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Fields of the same shapes."""
        here = _numbers(obj.model)
        advice = "Use the model that the run used."
        if not isinstance(tree, dict) or not all(isinstance(part, Array) for part in tree.values()):
            return [walk.finding(summary(tree), "a MuJoCo model", advice)]
        return [
            walk.finding(summary(part), summary(_leaf(here[name])) if name in here else "no such field", advice, name)
            for name, part in tree.items()
            if name not in here or np.shape(here[name]) != part.value.shape
        ]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Changed fields as saved, all others as in the file."""
        reference = _reference(obj.file)
        for name, value in (reference.numbers if reference else {}).items():
            _set(obj.model, name, tree[name].value if name in tree else value[0])
        for name in tree if reference is None else ():
            _set(obj.model, name, tree[name].value)
        return obj


class MjModel(CompiledModel):
    """A model of which the file is not known: all fields."""

    id = "mujoco-model"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of all fields' arrays."""
        return super().capture(Compiled(obj, None), walk)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Fields of the same shapes."""
        return super().check(Compiled(obj, None), tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """All fields as saved."""
        super().restore(Compiled(obj, None), tree, walk)
        return obj


class MujocoEnv(Env):
    """Environments of Gymnasium's class: their model's file is known."""

    id = "mujoco-env"

    def attributes(self, obj: Any) -> Children:
        """The model together with its file."""
        return state_of(obj) | {"model": Compiled(obj.model, getattr(obj, "fullpath", None))}


def _numbers(model: Any) -> Children:
    """Every number that the simulation may read, by field."""
    found = {name: getattr(model, name) for name in _names()}
    for part in _PARTS:
        inner = getattr(model, part)
        found |= {f"{part}.{name}": getattr(inner, name) for name in _names_in(part)}
    return {name: value for name, value in found.items() if np.size(value)}


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    return _of_kind(_mujoco.MjModel.from_xml_string("<mujoco/>"), np.ndarray)


@lru_cache(maxsize=len(_PARTS))
def _names_in(part: str) -> tuple[str, ...]:
    return _of_kind(getattr(_mujoco.MjModel.from_xml_string("<mujoco/>"), part), np.ndarray | int | float)


def _of_kind(obj: Any, kind: Any) -> tuple[str, ...]:
    names = (name for name in dir(obj) if not name.startswith(("_", *_SHOWN_ONLY)))
    return tuple(name for name in names if isinstance(getattr(obj, name), kind))


def _set(model: Any, name: str, value: Any) -> None:
    part, _, inner = name.rpartition(".")
    holder = getattr(model, part) if part else model
    now = getattr(holder, inner)
    if isinstance(now, np.ndarray):
        now[...] = value
    else:
        setattr(holder, inner, np.asarray(value).item())


def _leaf(value: Any) -> Array:
    return Array(np.array(value), immutable=True)


def _bytes(value: Any) -> bytes:
    return value.tobytes() if isinstance(value, np.ndarray) else np.asarray(value).tobytes()


def _reference(file: str | None) -> Reference | None:
    if file is None or not Path(file).is_file():
        return None
    return _compiled(file, Path(file).stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _compiled(file: str, changed_ns: int) -> Reference:
    """The file's model, compiled once: it is compared at every capture."""
    numbers = {
        name: (np.array(value), _bytes(value)) for name, value in _numbers(_mujoco.MjModel.from_xml_path(file)).items()
    }
    return Reference(numbers, digest_of(b"".join(name.encode() + data for name, (_, data) in numbers.items())))
