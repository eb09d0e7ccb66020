"""One-shot verbs: save, load and read a checkpoint without a run."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from perdure.adapters.process_rng import NAME as PROCESS_RNG
from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.opening import Opened, open_checkpoint, read_manifest
from perdure.checkpoint.restore import Conditions, restore
from perdure.checkpoint.save import About
from perdure.checkpoint.save import save as save_snapshot
from perdure.contract.arithmetic import arithmetic
from perdure.contract.overrides import Accept, Overrides, given_texts
from perdure.errors import DamagedError, NoCheckpointError
from perdure.store.local import LocalStore
from perdure.tree.leaves import Alias, Array, PRNGKey, Tree
from perdure.tree.rows import Rows


def save(path: str | os.PathLike[str], **state: Any) -> None:
    """Saves objects as one checkpoint directory: durable and whole, or not there at all.

    Args:
        path: the directory to make; it must not exist.
        **state: the objects by component name.

    Raises:
        CaptureError: an object cannot be turned into a tree.
        CommitError: `path` exists, or the disk failed.
    """
    store, name = _store_of(path)
    snapshot = capture(state, Resolver(), Counters()).snapshot
    save_snapshot(store, name, snapshot, About(arithmetic=arithmetic()))


def load(
    path: str | os.PathLike[str],
    *,
    only: Collection[str] | None = None,
    accept: Accept = (),
    **targets: Any,
) -> dict[str, Any]:
    """Restores a checkpoint into `targets`: all of them, or none.

    Args:
        path: a checkpoint directory, of `perdure.save` or of a run.
        only: components to restore (`only=["networks"]`); the others are not read. Default: all.
        accept: differences in functions, classes and dtypes that are accepted, `KEY=OLD:NEW` each, as a refusal says.
        **targets: one for every component that is restored; live ones in place. The generators of a run's process
            (`process_rng`) are left alone.

    Returns:
        By component name: the live object itself, or the new value.

    Raises:
        NoCheckpointError: there is no directory at `path`.
        DamagedError: a file is not what was written.
        ContractError: a target does not fit; nothing was changed.
    """
    opened = _open(path, only, without=() if PROCESS_RNG in targets else (PROCESS_RNG,))
    conditions = Conditions(overrides=Overrides(given_texts(accept)))
    return restore(
        opened.snapshot, targets, Resolver(), opened.name, digests=opened.digests, conditions=conditions
    ).objects


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A checkpoint as plain Python and NumPy values, verified; no framework is needed.

    Keys come as their key data; shared objects stand at each of their places.

    Raises:
        NoCheckpointError: there is no directory at `path`.
        DamagedError: a file is not what was written.
    """
    snapshot = _open(path).snapshot
    walk = Walk(Resolver())
    try:
        return {name: walk.rebuild_at(_without_keys(part.tree), name) for name, part in snapshot.components.items()}
    except KeyError as error:  # nothing that perdure writes
        raise DamagedError(f"{path}: something is shared with what stands later, or around it: {error}") from error


def _without_keys(tree: Tree) -> Tree:
    match tree:
        case PRNGKey(data=data):
            return data
        case Rows():
            held = {name: list(tree.views(name, tree.start, tree.stop)) for name in tree.columns}
            columns = {name: Array(np.concatenate(views)) for name, views in held.items() if views}
            return {"start": tree.start, "stop": tree.stop, "columns": columns}
        case Array():
            return tree
        case dict():
            return {key: _without_keys(child) for key, child in tree.items()}
        case list() | tuple():
            return type(tree)(map(_without_keys, tree))
        case Alias() | _:
            return tree


def _open(path: str | os.PathLike[str], only: Collection[str] | None = None, without: Collection[str] = ()) -> Opened:
    store, name = _store_of(path)
    directory = Path(path).expanduser()
    if not directory.is_dir():
        raise NoCheckpointError(f"{path}: no such directory.")
    if (directory / "run.json").exists():
        raise NoCheckpointError(f"{path}: a run; name one of its checkpoints, {path}/checkpoints/step_….")
    try:
        if only is None and without:
            only = read_manifest(store, name)[0].components.keys() - set(without)
        return open_checkpoint(store, name, only=only)
    except DamagedError as error:
        if not directory.is_dir():
            raise NoCheckpointError(f"{path}: was removed while it was read.") from error
        raise


def _store_of(path: str | os.PathLike[str]) -> tuple[LocalStore, str]:
    whole = Path(path).expanduser().absolute()
    return LocalStore(whole.parent, whole.parent / "damaged"), whole.name
