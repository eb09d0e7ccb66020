"""The lineage: what happened to a run, one chained line an event."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.errors import DamagedError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.runs.directory import append_whole


class Lineage:
    """Appends events; each line holds the digest of the line before it, so that an edit shows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._previous: str | None = None
        self.torn_bytes = 0
        """Bytes of a torn last line that opening cut off."""
        if path.exists():
            self._continue()

    def _continue(self) -> None:
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        self.torn_bytes = len(data) - len(whole)
        if self.torn_bytes:
            os.truncate(self._path, len(whole))
        lines = whole.splitlines(keepends=True)
        self._previous = digest_of(lines[-1]) if lines else None

    def append(self, event: str, *, durable: bool = True, **facts: Any) -> None:
        """Adds an event.

        Args:
            event: `started`, `committed`, `removed`, `resumed`, `stopped`, `finished`, or a fault (`commit_failed`).
            durable: whether to sync; commits do without, for the checkpoints themselves are the truth.
            facts: plain JSON values.
        """
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = canonical.encode({"at": at, "event": event, "previous": self._previous, **facts})
        with self._path.open("ab", buffering=0) as file:
            append_whole(file, line)
            if durable:
                os.fsync(file.fileno())
        self._previous = digest_of(line)


def read_lineage(path: Path) -> list[dict[str, Any]]:
    """All events, oldest first; a torn last line is left out.

    Raises:
        DamagedError: a line was edited, removed or inserted; the message names its number.
    """
    if not path.exists():
        return []
    events, previous = [], None
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        event = canonical.decode(line, f"{path.name}:{number}")
        if not isinstance(event, dict) or event.get("previous") != previous:
            raise DamagedError(f"{path.name}:{number}: does not follow from the line before it")
        events.append(event)
        previous = digest_of(line)
    return events
