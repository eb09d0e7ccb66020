"""The background writer: one save in flight beside the training loop."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for

_log = logging.getLogger("perdure")


class BackgroundWriter:
    """Runs one job at a time in a thread of its own.

    The interpreter's exit waits for the thread, so a script that ends without `finish` still commits what it handed
    over. An error of a job is logged at once, for the script may end without another call, and raised by the next call,
    once.
    """

    def __init__(self) -> None:
        # One thread for all jobs: starting one takes longer than handing a job over.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-writer")
        self._job: Future[object] | None = None
        # Started here and not at the first job, where an interrupt could leave a thread that nobody knows.
        self._thread.submit(int).result()

    @property
    def is_busy(self) -> bool:
        """Whether a job is in flight."""
        return self._job is not None and not self._job.done()

    def submit(self, job: Callable[[], object]) -> None:
        """Begins `job`; waits for the one before it, so that at most one snapshot is held in memory.

        Raises:
            BaseException: what the job before this one raised; this one is not begun.
        """
        self.wait()
        try:
            self._job = self._thread.submit(_run, job)
        except RuntimeError:  # the interpreter is ending (`finish` from atexit): no thread takes jobs any more
            job()

    def raise_error(self) -> None:
        """Raises what a finished job raised, without waiting for one in flight."""
        if self._job is not None and self._job.done():
            self.wait()

    def wait(self) -> None:
        """Waits for the job in flight.

        Raises:
            BaseException: what it raised.
        """
        job = self._job
        if job is not None:
            try:
                job.result()
            finally:
                # An interrupt while waiting leaves the job in flight; a finished one is forgotten, error and all.
                self._job = None if job.done() else job

    def settle(self) -> BaseException | None:
        """Waits for the job in flight; what it raised is returned, and stays for the next call that raises."""
        job = self._job
        if job is None:
            return None
        wait_for([job])
        return job.exception()

    def close(self) -> None:
        """Ends the thread, after the job in flight."""
        self._thread.shutdown()


def _run(job: Callable[[], object]) -> None:
    try:
        job()
    except BaseException as error:
        _log.error("a checkpoint failed in the background: %s", error)
        raise
