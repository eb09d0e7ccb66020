"""perdure's one-shot verbs, and a run's boundary with and without the background writer."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

import perdure
from benchmarks.peers.states import Make, State, made


class Perdure:
    """`perdure.save` and the verified `perdure.load`."""

    def __init__(self, name: str, make: Make) -> None:
        self.name = name
        self._make = make

    def prepare(self, state: State) -> Any:
        """Arrays of the kind that was chosen."""
        return made(state, self._make)

    def save(self, path: Path, prepared: Any) -> None:
        """Durable by itself."""
        perdure.save(path, **prepared)

    def load(self, path: Path, target: Any) -> object:
        """Every byte is compared with its digest, and what was restored is captured and compared again."""
        return jax.block_until_ready(perdure.load(path, **target))


class Boundaries:
    """A run that saves at every boundary."""

    def __init__(self, run: perdure.Run, committed: threading.Event) -> None:
        self._run = run
        self._committed = committed

    def boundary(self, state: Any) -> None:
        """One boundary; with the background writer it returns before the commit."""
        self._committed.clear()
        self._run.boundary(env_steps=self._run.env_steps + 1000, **state)

    def wait(self) -> None:
        """Waits for the commit in flight."""
        self._committed.wait()


@contextmanager
def saving_run(directory: Path, state: Any, *, background: bool) -> Iterator[Boundaries]:
    """An open run over the components of `state`."""
    committed = threading.Event()
    every = perdure.Every(updates=1)
    with perdure.Run(directory, every=every, background=background, after_commit=lambda _: committed.set()) as run:
        run.restore(**state)
        yield Boundaries(run, committed)
