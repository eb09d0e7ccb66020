"""Signals of this process, heard by a thread at once and by the main thread between two of its instructions.

Python runs a signal's handler only when the main thread comes back to Python, which a compiled call may not do for
minutes. But the interpreter writes the signal's number into a pipe as it arrives (`signal.set_wakeup_fd`), and a thread
that reads the pipe can act meanwhile. Handlers are a process's: all runs that are open share them, a forked child gets
back those from before, and the last run that is closed puts them back here, too.
"""

import atexit
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Protocol

from perdure.runs.insisting import Insistence

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""Commit and leave."""

SAVE = signal.SIGUSR2
"""Commit and go on."""

LATE_S = 2.0
"""How long a second Ctrl-C waits for the main thread to come back to Python before the process ends without it."""

INTERRUPTED = 130
"""Exit code of a process that ends by a second Ctrl-C."""


class Listener(Protocol):
    """What a run does about signals."""

    def heard(self, number: int) -> None:
        """Called by a thread as soon as the signal has arrived. Must return soon."""
        ...

    def act(self, number: int) -> None:
        """Called by the main thread, between two instructions of whatever it does. May raise."""
        ...

    def failed(self, error: BaseException) -> None:
        """Called when the main thread ends by an exception that nobody caught."""
        ...


class Watch:
    """The handlers while runs are open. Made and closed by the main thread."""

    def __init__(self) -> None:
        """Installs the handlers, but not of signals that the process was told to ignore (by `nohup`, by a shell)."""
        self._pid = os.getpid()
        self._interrupts_heard = self._interrupts_acted = 0
        self.mask_before_fork: set[Any] | None = None
        """Signals that were blocked before a fork under way."""
        self.listeners: list[Listener] = []
        """Those to tell, in the order of their coming."""
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._other_fd = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._previous: dict[int, Any] = {}
        self._handlers_before: dict[int, Any] = {}  # for good: it is asked when the last run is closed
        for number in (*STOP, SAVE):
            before = signal.getsignal(number)
            if before is signal.SIG_IGN or before is None:  # None: not Python's to replace
                continue
            self._previous[number] = self._handlers_before[number] = signal.signal(number, self._handle)
        self._thread = threading.Thread(target=self._listen, name="perdure-signals", daemon=True)
        self._thread.start()
        self._hook_before, self._hook = sys.excepthook, self._uncaught
        sys.excepthook = self._hook

    def close(self) -> None:
        """Puts back what was there before, unless somebody else has taken over meanwhile."""
        for number, before in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)
        if (current := signal.set_wakeup_fd(self._other_fd)) != self._write_end:
            signal.set_wakeup_fd(current)
        self._previous.clear()
        if sys.excepthook == self._hook:
            sys.excepthook = self._hook_before
        os.close(self._write_end)  # which ends the thread
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join(LATE_S)  # else its end of the pipe would stay open for a moment

    def forget(self) -> None:
        """In a forked child: the parent's signals are none of its business, and its own go where they went before."""
        self.listeners.clear()
        self.close()
        os.close(self._read_end)  # there is no thread that would

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        for listener in tuple(self.listeners) if os.getpid() == self._pid else ():
            listener.failed(error)
        self._hook_before(kind, error, trace)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.listeners or os.getpid() != self._pid:
            self._as_before(number, frame)
            return
        if (current := signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)) != self._write_end:
            signal.set_wakeup_fd(current)  # an event loop has its own pipe there: the thread was not told
            with suppress(OSError):
                os.write(self._write_end, bytes([number]))
        if number == signal.SIGINT:
            self._interrupts_acted += 1
            if self._interrupts_acted > 1:
                raise KeyboardInterrupt
        raised: list[BaseException] = []
        for listener in tuple(self.listeners):  # each acts, whatever the one before it raises
            try:
                listener.act(number)
            except BaseException as error:  # noqa: BLE001 - raised below
                raised.append(error)
        if raised:
            _insist(raised[0], number)
            raise raised[0]

    def _as_before(self, number: int, frame: FrameType | None) -> None:
        before = self._previous.get(number, signal.SIG_DFL)
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, before)
            signal.raise_signal(number)

    def handles(self, number: int) -> bool:
        """Whether the signal is ours now."""
        return number in self._previous and signal.getsignal(number) == self._handle

    def call_previous(self, number: int) -> None:
        """Calls the handler of the user's own that was there before, if it was one; Python's for Ctrl-C is none."""
        before = self._handlers_before.get(number)
        if callable(before) and before is not signal.default_int_handler:
            before(number, None)

    def _listen(self) -> None:
        while numbers := os.read(self._read_end, 64):
            self._forward(numbers)
            for number in numbers:
                self._hear(number)
        os.close(self._read_end)

    def _forward(self, numbers: bytes) -> None:
        if self._other_fd != -1:  # whoever had asked to be told before
            with suppress(OSError):
                os.write(self._other_fd, numbers)

    def _hear(self, number: int) -> None:
        if not self.handles(number):
            return  # another signal, or one that the user's own code has taken over since
        if number == signal.SIGINT:
            self._interrupts_heard += 1
            if self._interrupts_heard == 2:
                threading.Thread(target=self._leave_if_late, daemon=True).start()
        for listener in tuple(self.listeners):
            listener.heard(number)

    def _leave_if_late(self) -> None:
        """Somebody pressed Ctrl-C twice; the main thread, deep in a compiled call, may not know for long."""
        time.sleep(LATE_S)
        if self._interrupts_acted < 2 and self.listeners:
            os._exit(INTERRUPTED)


_watch: Watch | None = None
"""Signal handlers are a process's, so is this."""

_insistence: Insistence | None = None
"""The last exception that a handler raised, which may still be lost; so is this."""


def _insist(error: BaseException | None, number: int = 0) -> None:
    global _insistence
    if _insistence is not None:
        _insistence.end()
    _insistence = None if error is None else Insistence(error, number)


def listen(listener: Listener) -> Watch | None:
    """Tells the listener of signals from now on; None outside the main thread, where nobody may install handlers."""
    global _watch
    if threading.current_thread() is not threading.main_thread():
        return None
    if _watch is None:
        _insist(None)
        _watch = Watch()
    _watch.listeners.append(listener)
    return _watch


def unlisten(listener: Listener) -> None:
    """Ends that. A second call does nothing."""
    global _watch
    if _watch is None:
        return
    with suppress(ValueError):
        _watch.listeners.remove(listener)
    # Elsewhere (a run that is closed by another thread) the handlers stay, and act as those before them.
    if not _watch.listeners and threading.current_thread() is threading.main_thread():
        _watch.close()
        _watch = None


def _at_exit() -> None:
    """A script that ends, by `sys.exit` or at its last line, without a word to its run."""
    for listener in tuple(_watch.listeners) if _watch is not None else ():
        listener.failed(SystemExit("the process ended without finish or close"))


# Registered when perdure is imported, hence called after what users register later: `finish`, for instance.
atexit.register(_at_exit)


def _before_fork() -> None:
    # Python forgets signals that reach a child before it knows itself as one; blocked, they wait.
    if _watch is not None:
        _watch.mask_before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, (*STOP, SAVE))


def _after_fork_in_parent() -> None:
    if _watch is not None and _watch.mask_before_fork is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _watch.mask_before_fork)


def _after_fork_in_child() -> None:
    global _watch
    watch, _watch = _watch, None
    if watch is not None:
        watch.forget()
        signal.pthread_sigmask(signal.SIG_SETMASK, watch.mask_before_fork or ())


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
