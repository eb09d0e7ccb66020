"""Whether a run is running, finished, stopped or crashed: told from its lock and its lineage, disturbing nobody."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from perdure.runs.directory import RunDirectory
from perdure.runs.lock import is_held
from perdure.runs.tails import TAIL_BYTES, last_documents

State = Literal["running", "finished", "stopped", "crashed"]
STATES: tuple[State, ...] = ("running", "finished", "stopped", "crashed")

_DECISIVE = frozenset({"started", "resumed", "signalled", "stopped", "finished"})
_EXCEPTION = re.compile(r"([A-Za-z_]\w*): ")
_ON_PURPOSE = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "Preempted"})
"""Exceptions that end a run because somebody wanted it to end."""


def state_of(directory: RunDirectory, env_steps: int | None = None, total: int | None = None) -> State | None:
    """What a run is doing.

    - `running`: a process holds its writer lock;
    - `finished`: it ended with `finish`, or its newest checkpoint stands at the horizon;
    - `stopped`: it ended before, on purpose: `close`, a signal, Ctrl-C; or it is a fork that nobody has opened yet;
    - `crashed`: it ended in an exception, or without a word.

    Args:
        directory: the run.
        env_steps: steps of its newest checkpoint.
        total: its horizon.

    Returns:
        None where neither the lock nor the lineage tells.
    """
    try:
        if is_held(directory.lock):
            return "running"
    except PermissionError:
        return None
    if env_steps is not None and total is not None and env_steps >= total:
        return "finished"
    event = _last_decisive(directory.lineage)
    return None if event is None else _judged(event)


def _last_decisive(lineage: Path) -> Mapping[str, Any] | None:
    """The last event that says whether a process has the run open; further back only where the tail tells nothing."""
    size = lineage.stat().st_size if lineage.exists() else 0
    for size_bytes in sorted({TAIL_BYTES, max(TAIL_BYTES, size)}):
        for event in last_documents(lineage, size_bytes):
            if event.get("event") in _DECISIVE:
                return event
    return None


def _judged(event: Mapping[str, Any]) -> State:
    match event["event"]:
        case "finished":
            return "finished"
        case "stopped":
            exception = _EXCEPTION.match(str(event.get("why")))
            return "crashed" if exception and exception[1] not in _ON_PURPOSE else "stopped"
        case "signalled":  # and killed before it had left
            return "stopped"
        case _:
            return "stopped" if event.get("forked_from") else "crashed"
