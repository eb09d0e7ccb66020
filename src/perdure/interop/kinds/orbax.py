"""Checkpoints of Orbax (https://github.com/google/orbax), read without it and written by it.

What StandardCheckpointer and PyTreeCheckpointer write is one directory with `_METADATA` in it; CheckpointManager makes
a directory of each step, with one of each item in it (`5/default/`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.errors import DamagedError, NoCheckpointError
from perdure.interop.carried import Carried, Contents, Leaf, Prepared
from perdure.interop.losses import Losses
from perdure.interop.orbax_arrays import orbax_leaves, read_orbax
from perdure.interop.orbax_tree import METADATA, note_classes, read_json
from perdure.interop.orbax_writing import prepare
from perdure.tree.leaves import Tree

CHECKPOINT_METADATA = "_CHECKPOINT_METADATA"
"""What Orbax writes at the top of a checkpoint, whatever its items."""

DEFAULT = "default"
"""What CheckpointManager calls the item of a checkpoint that has only one."""

_UNFINISHED = ".orbax-checkpoint-tmp"
_JSON_ITEM = "metadata"
_MAX_JSON_BYTES = 1 << 24


@dataclass(frozen=True)
class _Found:
    """What stands in a directory."""

    step: str | None
    """The name of the only step, where the directory is one of steps."""
    items: Mapping[str, Path]
    """The items by name; the only one is called `default`."""
    others: tuple[str, ...]
    """Items of other kinds, which are not read."""
    metadata: Mapping[str, Any]
    """What is said beside the items."""


class OrbaxDirectory:
    """A checkpoint of Orbax."""

    name = "orbax"
    title = "a checkpoint of Orbax"

    def recognises(self, path: Path) -> bool:
        """A directory with Orbax's files of metadata in it, or with such directories in it."""
        if not path.is_dir():
            return False
        return _is_item(path) or _is_checkpoint(path) or bool(_steps(path))

    def contents(self, path: Path) -> Contents:
        """What the headers say; dtypes are in those of the arrays, which TensorStore reads."""
        found = _found(path)
        leaves: list[Leaf] = []
        notes = [_not_read(name) for name in found.others]
        for name, directory in found.items.items():
            held, told = _contents_of(directory)
            prefix = "" if _is_alone(found) else f"{name}."
            leaves += [Leaf(prefix + leaf.name, leaf.what, leaf.size_bytes) for leaf in held]
            notes += told
        return Contents(self.name, leaves, _metadata(found), notes)

    def read(self, path: Path) -> Carried:
        """Nested dicts and lists of arrays and plain values; of several items, one dict each."""
        found = _found(path)
        losses = Losses()
        for name in found.others:
            losses.add(name, _not_read(name).partition(": ")[2])
        read = {name: _read(directory, losses) for name, directory in found.items.items()}
        tree = read[DEFAULT] if _is_alone(found) else read
        note_classes(tree, losses)
        if not isinstance(tree, dict):
            losses.add("root", "a list became a dict of its positions: what is carried has names.")
            tree = dict(enumerate(tree))
        return Carried(tree, _metadata(found), losses)

    def prepare(self, carried: Carried, *, widen: bool) -> Prepared:
        """Checks whether Orbax can hold it; the installed Orbax writes it.

        Raises:
            UsageError: it cannot, or the `jax` extra is not installed.
        """
        del widen  # no floating-point dtype that Orbax lacks is narrower than one that it has, and exact in it
        return prepare(carried, self.title)


def _is_item(path: Path) -> bool:
    return (path / METADATA).is_file()


def _is_checkpoint(path: Path) -> bool:
    """A directory of items, or a damaged item."""
    if (path / CHECKPOINT_METADATA).is_file():
        return True
    return any(_is_item(child) and not _is_step(child) for child in _directories(path))


def _is_step(path: Path) -> bool:
    """A checkpoint among others: earlier versions of Orbax wrote no more than its number at its top."""
    return (path / CHECKPOINT_METADATA).is_file() or path.name.isdecimal()


def _steps(path: Path) -> list[Path]:
    found = [child for child in _directories(path) if _is_step(child) and (_is_item(child) or _is_checkpoint(child))]
    return sorted(found, key=lambda step: (len(step.name), step.name))


def _directories(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir() and _UNFINISHED not in child.name)


def _found(path: Path) -> _Found:
    if _UNFINISHED in path.name:
        raise DamagedError(f"{path}: Orbax was stopped in the middle of this save; convert the checkpoint before it.")
    if _is_item(path) or _is_checkpoint(path):
        return _items(path, None)
    steps = _steps(path)
    if len(steps) > 1:
        names = ", ".join(step.name for step in steps)
        raise NoCheckpointError(
            f"{path}: holds the checkpoints {names} and is none; name one of them, for instance {steps[-1]}."
        )
    return _items(steps[0], steps[0].name)


def _items(path: Path, step: str | None) -> _Found:
    metadata = read_json(path / CHECKPOINT_METADATA) if (path / CHECKPOINT_METADATA).is_file() else {}
    if not isinstance(metadata, dict):
        raise DamagedError(f"{path / CHECKPOINT_METADATA}: no mapping. Take an undamaged copy.")
    inside = _directories(path)
    items = {child.name: child for child in inside if _is_item(child) or (child / _JSON_ITEM).is_file()}
    if _is_item(path) or not items:
        return _Found(step, {DEFAULT: path}, (), metadata)
    handlers = metadata.get("item_handlers")
    named = sorted(handlers) if isinstance(handlers, dict) else []
    known = {child.name for child in inside} & set(named)
    return _Found(step, items, tuple(sorted(known - items.keys())), metadata)


def _is_alone(found: _Found) -> bool:
    return list(found.items) == [DEFAULT]


def _contents_of(directory: Path) -> tuple[list[Leaf], list[str]]:
    if _is_item(directory) or not (directory / _JSON_ITEM).is_file():
        return orbax_leaves(directory)
    size = (directory / _JSON_ITEM).stat().st_size
    return [Leaf(_JSON_ITEM, f"JSON of {size:,} bytes", size)], []


def _read(directory: Path, losses: Losses) -> Tree:
    if _is_item(directory) or not (directory / _JSON_ITEM).is_file():
        return read_orbax(directory, losses)
    file = directory / _JSON_ITEM
    if file.stat().st_size > _MAX_JSON_BYTES:
        raise DamagedError(f"{file}: {file.stat().st_size:,} bytes, more than a JSON item may have here.")
    return read_json(file)


def _not_read(name: str) -> str:
    return f"{name}: an item that is neither a tree nor JSON; it is not read."


def _metadata(found: _Found) -> dict[str, Any]:
    """The step, and what the checkpoint's owner had Orbax keep beside the items."""
    told = {} if found.step is None else {"step": found.step}
    custom = found.metadata.get("custom_metadata")
    metrics = found.metadata.get("metrics")
    more = {"metrics": metrics} if metrics else {}
    return {**(custom if isinstance(custom, dict) else {}), **more, **told}


KIND = OrbaxDirectory()
