"""The lineage: what happened to a run, one chained line an event."""

import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perdure.errors import DamagedError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.runs.directory import append_whole

OWN = "line"
"""The field with the digest of the line itself without this field; `previous` has that of the whole line before."""

_RESUMED = {
    "accepted": list,
    "amended_leaves": list,
    "arithmetic": dict,
    "checkpoint": str,
    "digest": str,
    "env_steps": int,
    "launch": dict | None,
    "notices": list,
    "old_total": int | None,
    "reason": str | None,
    "stepped_back": dict,
    "total": int | None,
    "trained_s": int | float,
}

_FIELDS = MappingProxyType(
    {
        "started": {"run_id": str, "notices": list},
        "committed": {"checkpoint": str, "digest": str},
        "removed": {"checkpoints": list},
        "resumed": _RESUMED,
        "signalled": {"signal": str, "checkpoint": str, "after_s": int | float},
        "sink_failed": {"sink": str, "call": str, "problem": str},
        "stopped": {"trained_s": int | float, "why": str},
        "finished": {"trained_s": int | float, "checkpoint": str},
    }
)
"""Event -> what it must hold; other events are not looked into."""


class Lineage:
    """Appends events; each line holds its own digest and that of the line before it, so that an edit shows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._previous: str | None = None
        self._is_unsure = False  # whether the last line may be another one than that which `_previous` knows
        self._lock = threading.Lock()  # the writer's thread appends, and so does a signal's
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
        with self._lock:
            if self._is_unsure:  # a Ctrl-C or a failing disk came between a line and this object's knowledge of it
                self._continue()
            self._is_unsure = True
            document = {"at": at, "event": event, "previous": self._previous, **facts}
            line = canonical.encode({**document, OWN: digest_of(canonical.encode(document))})
            with self._path.open("ab", buffering=0) as file:
                append_whole(file, line)
                if durable:
                    os.fsync(file.fileno())
            self._previous, self._is_unsure = digest_of(line), False


def read_lineage(path: Path) -> list[dict[str, Any]]:
    """All events, oldest first; a torn last line is left out.

    Raises:
        DamagedError: a line was edited, removed or inserted, or lacks a field; the message names its number.
    """
    if not path.exists():
        return []
    events, previous = [], None
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        place = f"{path.name}:{number}"
        event = canonical.decode(line, place)
        if not isinstance(event, dict) or event.get("previous") != previous:
            raise DamagedError(f"{place}: does not follow from the line before it")
        _check_digest(event, place)
        _check_fields(event, place)
        events.append(event)
        previous = digest_of(line)
    return events


def _check_digest(event: dict[str, Any], place: str) -> None:
    """Also the last line is checkable, which no other follows."""
    document = {name: value for name, value in event.items() if name != OWN}
    if event.get(OWN) != digest_of(canonical.encode(document)):
        raise DamagedError(f"{place}: its digest does not match its text")


def _check_fields(event: dict[str, Any], place: str) -> None:
    """What whoever reads the lineage relies on."""
    fields = {"at": str, "event": str, **_FIELDS.get(str(event.get("event")), {})}
    for name, kind in fields.items():
        if name not in event:
            raise DamagedError(f"{place}: a field is missing: {name}")
        if not isinstance(event[name], kind) or isinstance(event[name], bool):
            raise DamagedError(f"{place}: field {name} is a {type(event[name]).__name__}")
    for acceptance in event["accepted"] if event["event"] == "resumed" else ():
        if not isinstance(acceptance, dict) or not isinstance(acceptance.get("text"), str):
            raise DamagedError(f"{place}: an acceptance without a text")
