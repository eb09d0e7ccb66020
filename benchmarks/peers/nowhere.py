"""A store that takes every byte and keeps none: what a save costs apart from the disk."""

from collections.abc import Iterable

from perdure.store.memory import MemoryStaging, MemoryStore
from perdure.store.store import Bytes


class Nowhere(MemoryStore):
    """Commits are forgotten."""

    def stage(self, name: str) -> MemoryStaging:
        """Everything is taken."""
        return _Forgetting(self.entries, name)


class _Forgetting(MemoryStaging):
    def write(self, file: str, pieces: Iterable[Bytes]) -> None:
        """Looks at every piece, as a disk would."""
        for _ in pieces:
            pass

    def commit(self) -> None:
        """Nothing is there to commit."""
