"""Python's own helper processes outlive signals to the process group, as the workers do.

If the fork server ended, Python would take all its children for dead. It imports `in_forkserver` before it serves;
whatever else it forks treats these signals as a fresh process does. The resource tracker ignores SIGINT and SIGTERM by
itself; if another signal ended it, it would leave tracebacks and shared memory behind.
"""

import os
import signal
import threading
from multiprocessing import forkserver, resource_tracker, set_forkserver_preload
from types import FrameType

from perdure.gym.worker import IGNORED


def outlive_signals() -> None:
    """Sees to it that both ignore signals to the group, if they are not running yet."""
    preloaded = list(getattr(forkserver._forkserver, "_preload_modules", ["__main__"]))
    if "perdure.gym.in_forkserver" not in preloaded:
        set_forkserver_preload([*preloaded, "perdure.gym.in_forkserver"])

    _start_tracker()


def _start_tracker() -> None:
    """A program that is started while a signal is ignored goes on to ignore it."""
    if threading.current_thread() is not threading.main_thread():
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    try:
        resource_tracker.ensure_running()
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def install(pid: int) -> None:
    """Lets the signals pass in the process `pid`; its forked children die of them by default."""

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != pid:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    for number in set(IGNORED) - {signal.SIGINT}:  # which it ignores by itself
        signal.signal(number, handle)
