"""The protocol of everything that is compared."""

from pathlib import Path
from typing import Any, Protocol

from benchmarks.peers.states import State


class Peer(Protocol):
    """Saves a state durably and loads it again."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def prepare(self, state: State) -> Any:
        """The state as this peer's users hold it, in memory that was not saved before; not timed."""
        ...

    def save(self, path: Path, prepared: Any) -> None:
        """Writes it to `path`, which does not exist; when this returns, it would survive a power cut."""
        ...

    def load(self, path: Path, target: Any) -> object:
        """Reads it; when this returns, every array is in memory. `target` is a prepared state of the same shapes."""
        ...
