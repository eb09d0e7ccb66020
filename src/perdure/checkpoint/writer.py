"""The background writer: one save in flight beside the training loop."""

import threading
from collections.abc import Callable


class BackgroundWriter:
    """Runs one job at a time in a thread of its own.

    The thread is no daemon: the interpreter's exit waits for it, so a script that ends without `finish` still
    commits what it handed over. An error of a job is kept and raised by the next call, once.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a job is in flight."""
        return self._thread is not None and self._thread.is_alive()

    def submit(self, job: Callable[[], object]) -> None:
        """Begins `job`; waits for the one before it, so that at most one snapshot is held in memory.

        Raises:
            BaseException: what the job before this one raised; this one is not begun.
        """
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(job,), name="perdure-writer")
        self._thread.start()

    def _run(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - handed to the training thread
            self._error = error

    def raise_error(self) -> None:
        """Raises what a finished job raised, without waiting for one in flight."""
        if not self.is_busy:
            self.wait()

    def wait(self) -> None:
        """Waits for the job in flight.

        Raises:
            BaseException: what it raised.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
