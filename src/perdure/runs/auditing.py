"""What `perdure audit` and `run.audit()` need of a run; nothing is loaded unless one of them is at work."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.adapters.resolve import Resolver
from perdure.errors import UsageError

if TYPE_CHECKING:
    from perdure.memory.examiner import Examiner
    from perdure.memory.suspects import Watch

ORDERS = "PERDURE_AUDIT"
"""The environment variable that names the file with an audit's orders."""


def examiner() -> "Examiner | None":
    """The examiner that `perdure audit` wants in this process."""
    orders = os.environ.get(ORDERS)
    if orders is None:
        return None
    from perdure.memory.examiner import Examiner

    return Examiner(Path(orders))


def new_watch(resolver: Resolver) -> "Watch":
    """What `run.audit()` remembers from call to call."""
    from perdure.memory.suspects import Watch

    return Watch(resolver)


def ignored(given: Any) -> dict[str, str]:
    """What `audit_ignore` says, as the contract keeps it.

    Raises:
        UsageError: it is no mapping from places to reasons.
    """
    texts = [text for pair in given.items() for text in pair] if isinstance(given, dict) else [None]
    if not all(isinstance(text, str) and text for text in texts):
        example = '{"frame main: start_time": "wall clock"}'
        raise UsageError(f"audit_ignore={given!r}: places and the reason for each, such as {example}.")
    return dict(given)
