"""One-shot verbs: save, load and read a checkpoint without a run."""

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perdure.adapters.process_rng import NAME as PROCESS_RNG
from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.checkpoint.capture import Counters, capture, empty_rings
from perdure.checkpoint.filling import Rings
from perdure.checkpoint.opening import Opened, open_checkpoint, read_manifest
from perdure.checkpoint.policy import refuse_policy
from perdure.checkpoint.restore import Conditions, restore
from perdure.checkpoint.save import About
from perdure.checkpoint.save import save as save_snapshot
from perdure.contract.arithmetic import arithmetic
from perdure.contract.overrides import Accept, Overrides, given_texts
from perdure.errors import CommitError, DamagedError, NoCheckpointError, UsageError
from perdure.format.manifest import FILE_NAME
from perdure.format.state_digest import component_digests, state_digest
from perdure.store.local import LocalStore
from perdure.tree.leaves import Alias, Array, PRNGKey, Tree, aliases, owned
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Component, Snapshot


def save(path: str | os.PathLike[str], *, exist_ok: bool = False, **state: Any) -> None:
    """Saves objects as one checkpoint directory: durable and whole, or not there at all.

    Args:
        path: the directory to make; it must not exist.
        exist_ok: a checkpoint that stands at `path` already and holds the very same state is as good. One that holds
            another state is an error as ever; a damaged one is moved to `damaged/` beside it and written again.
        **state: the objects by component name.

    Raises:
        CaptureError: an object cannot be turned into a tree.
        CommitError: `path` exists, or the disk failed.
    """
    store, name = _store_of(path)
    snapshot = capture(state, Resolver(), Counters()).snapshot
    if exist_ok and _holds(store, name, snapshot, path):
        return
    save_snapshot(store, name, snapshot, About(arithmetic=arithmetic()))


def save_snapshot_at(path: str | os.PathLike[str], snapshot: Snapshot) -> None:
    """Saves a snapshot that somebody else captured."""
    store, name = _store_of(path)
    save_snapshot(store, name, snapshot, About(arithmetic=arithmetic()))


def read_snapshot(path: str | os.PathLike[str]) -> Snapshot:
    """The snapshot of a checkpoint, verified."""
    return _open(path).snapshot


def _holds(store: LocalStore, name: str, snapshot: Snapshot, path: str | os.PathLike[str]) -> bool:
    """Whether this very state is there already; a damaged checkpoint in its place is moved aside."""
    if name not in store.names():
        return False
    try:
        saved = open_checkpoint(store, name).manifest.state_digest
    except DamagedError:
        if FILE_NAME in store.files(name):  # else it is something else, which stays where it is
            store.set_aside(name)
        return False
    if saved != state_digest(component_digests(snapshot), snapshot.env_steps, snapshot.updates, snapshot.boundary):
        problem = f"{path}: a checkpoint of another state stands there. Save to another directory, or remove it."
        raise CommitError(problem)
    return True


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
    without = () if PROCESS_RNG in targets else (PROCESS_RNG,)
    opened = _open(path, only, without, lambda: empty_rings(targets, Resolver()))
    return _restore(opened, opened.snapshot, targets, accept)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A checkpoint as plain Python and NumPy values, verified; no framework is needed.

    Keys come as their key data; shared objects stand at each of their places.

    Raises:
        NoCheckpointError: there is no directory at `path`.
        DamagedError: a file is not what was written.
    """
    return _plain(_open(path), path)


class Checkpoint:
    """A checkpoint that was read and verified as a whole, to be restored part by part while it is held in memory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads it.

        Args:
            path: a checkpoint directory, of `perdure.save` or of a run.

        Raises:
            NoCheckpointError: there is no directory at `path`.
            DamagedError: a file is not what was written.
        """
        self.path = Path(path)
        self._opened = _open(path)

    def __repr__(self) -> str:
        """Where it was, and what is in it."""
        return f"Checkpoint({str(self.path)!r}: {', '.join(self.components)})"

    @property
    def components(self) -> tuple[str, ...]:
        """The names of its components, sorted."""
        return tuple(self._opened.snapshot.components)

    def load(self, *, accept: Accept = (), **targets: Any) -> dict[str, Any]:
        """Restores the components that `targets` names: all of them, or none. See `perdure.load`.

        Raises:
            UsageError: a target is no component of the checkpoint.
            ContractError: a target does not fit; nothing was changed.
        """
        snapshot = self._opened.snapshot
        unknown = sorted(targets.keys() - snapshot.components.keys())
        if unknown:
            raise UsageError(f"{self.path}: {unknown} are no components; it has {list(self.components)}.")
        # Values adopt what they are given, and this checkpoint may be asked again.
        parts = {name: part for name, part in snapshot.components.items() if name in targets}
        owning = {name: replace(part, tree=owned(part.tree)) for name, part in parts.items()}
        return _restore(self._opened, replace(snapshot, components=owning), targets, accept)

    def read(self) -> dict[str, Any]:
        """Everything in it as plain Python and NumPy values. See `perdure.read`."""
        return _plain(self._opened, self.path)


def _restore(opened: Opened, wanted: Snapshot, targets: dict[str, Any], accept: Accept) -> dict[str, Any]:
    digests = {name: digest for name, digest in opened.digests.items() if name in wanted.components}
    conditions = Conditions(overrides=Overrides(given_texts(accept)))
    return restore(wanted, targets, Resolver(), opened.name, digests=digests, conditions=conditions).objects


def _plain(opened: Opened, path: str | os.PathLike[str]) -> dict[str, Any]:
    walk = Walk(Resolver())
    parts = opened.snapshot.components
    try:
        found = {name: walk.rebuild_at(_without_keys(parts[name].tree), name) for name in _shared_first(parts)}
        return {name: found[name] for name in parts}
    except KeyError as error:  # nothing that perdure writes
        raise DamagedError(f"{path}: something is shared with what stands later, or around it: {error}") from error


def _shared_first(parts: Mapping[str, Component]) -> list[str]:
    """The names, each after those of the components that it shares objects of."""
    waiting = {name: {str(path[0]) for path in aliases(part.tree)} - {name} for name, part in parts.items()}
    ordered: list[str] = []
    while waiting:
        ready = [name for name, others in waiting.items() if others <= set(ordered)]
        ordered += ready or list(waiting)  # a circle: damage, which the caller finds
        waiting = {name: others for name, others in waiting.items() if name not in ordered}
    return ordered


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


def _open(
    path: str | os.PathLike[str],
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    rings: Rings | None = None,
) -> Opened:
    store, name = _store_of(path)
    directory = Path(path).expanduser()
    if not directory.is_dir():
        raise NoCheckpointError(f"{path}: no such directory.")
    refuse_policy(directory, "a checkpoint")
    if (directory / "run.json").exists():
        raise NoCheckpointError(f"{path}: a run; name one of its checkpoints, {path}/checkpoints/step_….")
    try:
        if only is None and without:
            only = read_manifest(store, name)[0].components.keys() - set(without)
        return open_checkpoint(store, name, only=only, rings=rings)
    except DamagedError as error:
        if not directory.is_dir():
            raise NoCheckpointError(f"{path}: was removed while it was read.") from error
        raise


def _store_of(path: str | os.PathLike[str]) -> tuple[LocalStore, str]:
    whole = Path(path).expanduser().absolute()
    return LocalStore(whole.parent, whole.parent / "damaged"), whole.name
