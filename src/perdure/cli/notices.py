"""What a run has to say while it opens (damage stepped back from, rows cut), made visible on stderr."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _ToStderr(logging.Handler):
    """One line a notice; looks stderr up each time, for it may have been replaced."""

    def __init__(self, clear: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._clear = clear

    def emit(self, record: logging.LogRecord) -> None:
        self._clear()
        try:
            print(f"perdure: {record.getMessage()}", file=sys.stderr, flush=True)
        except OSError:  # nobody reads it; that is no reason to stop training
            return


@contextmanager
def shown_notices(clear: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Shows the notices of every run that is opened inside.

    Args:
        clear: called before each: takes away an unfinished line that stands there.
    """
    logger, handler = logging.getLogger("perdure"), _ToStderr(clear)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
