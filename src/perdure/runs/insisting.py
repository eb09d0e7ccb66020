"""Insisting: what a signal's handler raises is raised again where Python could not raise it.

A handler runs before the next instruction of Python, wherever that is. In a callback of the garbage collector (JAX has
one, and after a long call in C it often comes first) or in `__del__`, nothing can be raised: the exception is told to
`sys.unraisablehook`, and the program goes on as if it had not been.
"""

import signal
import sys
import threading
import time
from typing import Any

AGAIN_S = 0.002
"""How long to wait until the callback is most likely over; if it is not, the same happens again."""


class Insistence:
    """Watches over one exception that a handler is about to raise. Made and ended by the main thread."""

    def __init__(self, error: BaseException, number: int) -> None:
        """Begins.

        Args:
            error: the exception.
            number: the signal, which is sent once more if the exception is lost.
        """
        self._error = error
        self._number = number
        self._handler_before: Any = None
        self._is_telling = False
        self._hook_before, self._hook = sys.unraisablehook, self._lost
        sys.unraisablehook = self._hook

    def end(self) -> None:
        """Puts back the hook from before, unless somebody else has taken over meanwhile."""
        if sys.unraisablehook == self._hook:
            sys.unraisablehook = self._hook_before

    def _lost(self, unraisable: Any) -> None:
        if unraisable.exc_value is not self._error:
            self._hook_before(unraisable)
            return
        self._is_telling = True
        self._handler_before = signal.signal(self._number, self._raise)
        threading.Thread(target=self._send_again, name="perdure-insists", daemon=True).start()
        self._is_telling = False

    def _send_again(self) -> None:
        """Beside the main thread: what is raised inside of a hook is not even told to the hook."""
        time.sleep(AGAIN_S)
        while self._is_telling:
            time.sleep(AGAIN_S)
        signal.pthread_kill(threading.main_thread().ident or 0, self._number)

    def _raise(self, number: int, _frame: object) -> None:
        signal.signal(number, self._handler_before)
        raise self._error
