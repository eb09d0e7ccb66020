"""A store on a simulated disk, what is done to it there, and what a reader finds: shared by the crash tests."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.save import About, Saved, save
from perdure.errors import DamagedError
from perdure.runs.loading import newest_intact
from perdure.store.filesystem import FileSystem
from perdure.store.local import LocalStore
from perdure.testing import SimulatedDisk
from perdure.tree.leaves import Array
from perdure.tree.snapshot import Component, Snapshot

CHECKPOINTS, ASIDE = Path("/run/checkpoints"), Path("/run/damaged")
MODES = ("as late as allowed", "at once")


class Syncs:
    """Runs the syncs of files at a fixed moment instead of in threads: what threads do lies in between."""

    late = False

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, do: Callable[..., None], *arguments: Any) -> Future[None]:
        future = Waiting(do, *arguments)
        if not self.late:
            future.run()
        return future

    def shutdown(self) -> None:
        pass


class Waiting(Future[None]):
    """A call that is made when somebody asks for its result."""

    def __init__(self, do: Callable[..., None], *arguments: Any) -> None:
        super().__init__()
        self._call = lambda: do(*arguments)

    def run(self) -> None:
        if not self.done():
            try:
                self.set_result(self._call())
            except OSError as error:
                self.set_exception(error)

    def result(self, timeout: float | None = None) -> None:
        self.run()
        return super().result(timeout)


def store_on(filesystem: FileSystem) -> LocalStore:
    return LocalStore(CHECKPOINTS, ASIDE, filesystem)


def step(number: int) -> str:
    return f"step_{number:010d}"


def commit(store: LocalStore, number: int, previous: Saved | None = None, *, changing: float | None = None) -> Saved:
    """A checkpoint of two components, of which the first is always the same."""
    value = float(number if changing is None else changing)
    components = {
        "fixed": Component("dict", {"w": Array(np.arange(3.0))}),
        "moving": Component("dict", {"w": Array(np.full(2, value)), "count": number}),
    }
    return save(store, step(number), Snapshot(components, number, number, number), About(), previous)


Seen = dict[str, str]


def seen(filesystem: FileSystem) -> Seen:
    """What a reader finds: each checkpoint's state digest, or that it is damaged."""
    store, found = store_on(filesystem), {}
    for name in store.names():
        try:
            found[name] = open_checkpoint(store, name).manifest.state_digest
        except DamagedError as error:
            found[name] = f"damaged: {error}"
    return found


def saved_of(store: LocalStore, number: int) -> Saved:
    """What `save` said of a checkpoint that `commit` made: read off a twin of it in another store."""
    return commit(store_on(SimulatedDisk()), number)


def step_back(store: LocalStore) -> None:
    """What a resume does with a newest checkpoint that is damaged."""
    found = newest_intact(store, "/run")
    for name in found.damage:
        store.set_aside(name)
    store.remove_leftovers()


def one(store: LocalStore) -> None:
    commit(store, 1)


def two(store: LocalStore) -> None:
    commit(store, 2, commit(store, 1))
