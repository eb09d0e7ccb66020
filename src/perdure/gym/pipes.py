"""The training process's end of a worker: a pipe that tells when the process behind it has died."""

from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any

from perdure import WorkerDiedError


class WorkerPipe:
    """Stands for a `Connection` in Gymnasium's code."""

    def __init__(self, connection: Connection, process: BaseProcess, index: int) -> None:
        self._connection = connection
        self._process = process
        self._index = index

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._connection.closed

    def send(self, message: Any) -> None:
        """Sends a message.

        Raises:
            WorkerDiedError: nobody can receive it.
        """
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._death() from error

    def recv(self) -> Any:
        """The next message.

        Raises:
            WorkerDiedError: the worker ended without one.
        """
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            raise self._death() from error

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Whether a message, or the news of a death, is there to be received."""
        return self._connection.poll(timeout)

    def close(self) -> None:
        """Closes this end."""
        self._connection.close()

    def _death(self) -> WorkerDiedError:
        self._process.join(1.0)  # the pipe breaks a moment before the exit code is known
        return WorkerDiedError(self._index, self._process.exitcode)


def end(pipes: Sequence[WorkerPipe | None], processes: Sequence[BaseProcess], seconds: float | None) -> None:
    """Lets workers close their environments and end; kills those that are not done after `seconds` (None: waits).

    Workers ignore SIGTERM, so that only SIGKILL ends one against its will.
    """
    for pipe in pipes:
        with suppress(WorkerDiedError, OSError):
            if pipe is not None:
                pipe.send(("close", None))
    for pipe in pipes:
        if pipe is not None:
            pipe.close()
    until = None if seconds is None else monotonic() + seconds
    for process in processes:
        process.join(None if until is None else max(0.0, until - monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
