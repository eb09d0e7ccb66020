"""Ended by a signal: a tool that has started processes takes them with it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""Those that would end Python at once, with everything that it has started left behind. Ctrl-C raises by itself."""


@contextmanager
def unwinding() -> Iterator[None]:
    """Within it these signals raise `SystemExit`, so that `finally` ends processes and removes folders.

    Whoever ignores one of them (`nohup`) goes on doing so. For the main thread.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [number for number, handler in before.items() if handler == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
