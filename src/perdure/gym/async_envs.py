"""Environments in processes of their own, whose state their workers capture and restore."""

import atexit
import os
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, cast

import gymnasium
from gymnasium.vector.async_vector_env import AsyncState

from perdure import CaptureError, WorkerDiedError
from perdure.adapters import Adapter
from perdure.adapters.remote import Reply, Request
from perdure.gym.forkserver import outlive_signals
from perdure.gym.pipes import WorkerPipe, end
from perdure.gym.worker import work

AT_EXIT_S = 5.0
"""Seconds that workers have to close their environments when the training process leaves without `close`."""

Asked = tuple[Request, tuple[bool, Any] | None]
"""A request and, to restore, whether the reset is pending, with the last observation."""
Answered = tuple[Reply, bool]
"""A reply, and whether the reset is pending."""


class AsyncVectorEnv(gymnasium.vector.AsyncVectorEnv):
    """Gymnasium's, with workers of its own (`worker.py`); see `make_vec`."""

    INTERNALS: ClassVar[frozenset[str]] = frozenset({"_pid", "_at_exit", "parent_pipes"})
    """Attributes that are no state."""

    def __init__(self, env_fns: Any, adapters: Sequence[tuple[type, Adapter]] = (), **options: Any) -> None:
        """Starts the workers.

        Args:
            env_fns: a factory for each environment.
            adapters: users' own, for the workers.
            options: those of Gymnasium's class.
        """
        self._pid = os.getpid()
        # Later than multiprocessing's own, hence called before it, which waits for workers that ignore its SIGTERM.
        self._at_exit = atexit.register(partial(_end_at_exit, weakref.ref(self)))
        outlive_signals()
        worker: Any = partial(work, adapters=tuple(adapters))
        super().__init__(env_fns, worker=worker, **options)
        self.metadata = dict(self.metadata)  # as in `SyncVectorEnv`

    def _check_spaces(self) -> None:
        """The first thing that Gymnasium asks of new workers."""
        pairs = enumerate(zip(self.parent_pipes, self.processes, strict=True))
        pipes = [WorkerPipe(pipe, process, index) for index, (pipe, process) in pairs]
        self.parent_pipes = cast("Any", pipes)
        super()._check_spaces()

    def ask(self, asked: Sequence[Asked]) -> list[Answered]:
        """Asks each worker for its part of the state, or to take or check one; `perdure.adapters` calls it.

        All workers work at the same time. None is asked anything if one of them is dead.

        Raises:
            CaptureError: the environments are in the middle of a step or a reset.
            WorkerDiedError: a worker is dead.
        """
        self._assert_is_running()
        if self._state != AsyncState.DEFAULT:
            method = f"{self._state.value}_wait"
            raise CaptureError(f"{self}: a {self._state.value} is under way. Call {method} before the boundary.")
        for index, process in enumerate(self.processes):
            if not process.is_alive():
                raise WorkerDiedError(index, process.exitcode)
        return self._answers("perdure", asked)

    def seed_spaces(self, seeds: Sequence[int]) -> None:
        """Seeds the spaces of each environment and of its wrappers; `perdure.gym.seed_spaces` calls it.

        Raises:
            WorkerDiedError: a worker is dead.
        """
        self._assert_is_running()
        self._answers("seed_spaces", seeds)

    def _answers(self, command: str, data: Sequence[Any]) -> list[Any]:
        for pipe, one in zip(self.parent_pipes, data, strict=True):
            pipe.send((command, one))
        answers, successes = zip(*(pipe.recv() for pipe in self.parent_pipes), strict=True)
        self._raise_if_errors(successes)
        return list(answers)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:  # noqa: FBT001, FBT002
        """Ends the workers: they close their environments first, unless `terminate`, or longer than `timeout` seconds.

        A step under way is given up.
        """
        if os.getpid() != self._pid:  # a forked child has no workers
            return
        atexit.unregister(self._at_exit)
        self._state = AsyncState.DEFAULT
        pipes = cast("list[WorkerPipe | None]", self.parent_pipes)
        end(pipes, self.processes, 0.0 if terminate else timeout)


def _end_at_exit(reference: "weakref.ref[AsyncVectorEnv]") -> None:
    envs = reference()
    if envs is not None and not envs.closed:
        envs.close(timeout=AT_EXIT_S)
