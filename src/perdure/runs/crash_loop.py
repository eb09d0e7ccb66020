"""Crash loops: a run that fails again and again at the same place is not started once more without a word."""

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.contract.redaction import redacted
from perdure.errors import CrashLoopError, Preempted

LIMIT = 3
"""Resumes of one checkpoint, each of which ended in an error."""

_LONGEST_WHY, _LONGEST_TRACEBACK = 1000, 8000
"""Characters that the lineage keeps; of a traceback the last ones, where the error is."""


def facts_of_end(error: BaseException) -> dict[str, Any]:
    """What the lineage says of a run that an exception ended."""
    if isinstance(error, Preempted):
        return {"why": error.why}
    facts = {"why": redacted(f"{type(error).__name__}: {error}")[:_LONGEST_WHY]}
    if isinstance(error, Exception):
        facts["traceback"] = redacted("".join(traceback.format_exception(error)))[-_LONGEST_TRACEBACK:]
    return facts


def errors_in_a_row(events: Sequence[Mapping[str, Any]], checkpoint: str) -> list[Mapping[str, Any]]:
    """The errors that ended the latest resumes of `checkpoint`, newest first, up to a commit or another end."""
    ends: list[Mapping[str, Any]] = []
    latest = reversed(events)
    for event in latest:
        if event["event"] != "stopped" or "traceback" not in event:
            break
        begun = next((earlier for earlier in latest if earlier["event"] in _ENDS_A_SESSION), None)
        if begun is None or begun["event"] != "resumed" or begun["checkpoint"] != checkpoint:
            break
        ends.append(event)
    return ends


_ENDS_A_SESSION = frozenset({"started", "resumed", "committed", "stopped", "finished"})
"""What a search back from an error stops at: only the resume itself means that nothing was committed in between."""


def refuse_crash_loop(events: Sequence[Mapping[str, Any]], checkpoint: str, place: str) -> None:
    """Refuses another resume of a checkpoint whose last resumes all failed.

    Args:
        events: the lineage, oldest first.
        checkpoint: from which the run would go on.
        place: the run's directory, for the message.

    Raises:
        CrashLoopError: they did; with the last traceback.
    """
    ends = errors_in_a_row(events, checkpoint)
    if len(ends) < LIMIT:
        return
    raise CrashLoopError(
        f"{place}: the last {len(ends)} resumes of {checkpoint} each ended in an error before anything new was "
        f"committed. Another one would most likely do so again. Mend what is wrong, and then resume once with --retry "
        f"(a script: PERDURE_RETRY=1). The last error:\n\n{ends[0]['traceback'].rstrip()}"
    )
