"""A worker: the process that steps one environment, and captures and restores it."""

import signal
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import write_to_shared_memory

from perdure.adapters import Adapter, process_rng
from perdure.adapters.remote import answer, refusal
from perdure.adapters.resolve import Resolver
from perdure.gym.layers import seed_layers

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that reach a whole process group. The training process acts on them; its end ends the workers."""

_DRAWS_GLOBALLY = (
    "the environment has drawn from a global generator of its worker process (random, numpy.random or torch), or has "
    "seeded it, and no checkpoint holds those. Let it draw from self.np_random, or a generator that is an attribute, "
    'or build the environments with mode="sync", where the global generators are those of the run.'
)

_NOT_BY_CALL = frozenset({"reset", "step", "close", "_setattr", "_check_spaces"})


def ignore_signals() -> None:
    """Lets signals to the process group pass: the process is a worker."""
    for number in IGNORED:
        # A function that does nothing, not SIG_IGN, which programs started by the environment would inherit.
        signal.signal(number, _do_nothing)


def work(
    index: int,
    env_fn: Callable[[], Any],
    pipe: Connection,
    parent_pipe: Connection,
    shared_memory: Any,
    error_queue: Any,
    autoreset_mode: AutoresetMode,
    semaphore: Any = None,
    *,
    adapters: Sequence[tuple[type, Adapter]] = (),
) -> None:
    """Serves the commands of a pipe until it is closed; Gymnasium's arguments, in its order.

    Args:
        index: which environment, from 0.
        env_fn: makes it.
        pipe: this end.
        parent_pipe: the other end; a fork inherits it.
        shared_memory: where observations go; None: into the pipe.
        error_queue: where the cause goes before a failed command is answered.
        autoreset_mode: what follows the end of an episode.
        semaphore: Gymnasium 1.4's limit of environments that step at the same time; None: no limit.
        adapters: users' own.
    """
    ignore_signals()
    parent_pipe.close()
    env = None
    try:
        env = env_fn()
        worker = _Worker(index, env, shared_memory, autoreset_mode, semaphore, Resolver(adapters))
        while True:
            command, data = pipe.recv()
            if command == "close":
                return
            pipe.send((worker.do(command, data), True))
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the training process is gone, or gave up
        return
    except Exception as error:  # noqa: BLE001 - the training process raises it
        error_queue.put((index, *_portable(error), traceback.format_exc()))
        pipe.send((None, False))
    finally:
        if env is not None:
            env.close()


class _Worker:
    """One environment, with what Gymnasium's worker keeps in local variables, out of reach."""

    def __init__(
        self, index: int, env: Any, memory: Any, mode: AutoresetMode, semaphore: Any, resolver: Resolver
    ) -> None:
        self._index = index
        self._env = env
        self._memory = memory
        self._mode = mode
        self._semaphore = semaphore
        self._resolver = resolver
        self._pending = False
        """Whether the last step ended the episode and no reset has followed."""
        self._observation: Any = None
        self._global_generators = process_rng.states()
        """What they held when the environment had been made."""
        self._commands = {
            "reset": self._reset,
            "reset-noop": lambda _: (self._shown(self._observation), {}),
            "step": self._step,
            "perdure": self._serve_state,
            "seed_spaces": lambda seed: seed_layers(self._env, seed),
            "_call": self._call,
            "_setattr": lambda data: self._env.set_wrapper_attr(*data),
            "_check_spaces": self._check_spaces,
        }

    def do(self, command: str, data: Any) -> Any:
        """Does what a command says; returns the answer."""
        if self._semaphore is None or command not in ("reset", "step"):
            return self._commands[command](data)
        with self._semaphore:
            return self._commands[command](data)

    def _reset(self, data: Any) -> Any:
        observation, info = self._env.reset(**data)
        self._pending = False
        return self._kept(observation), info

    def _step(self, action: Any) -> Any:
        if self._mode == AutoresetMode.NEXT_STEP and self._pending:
            observation, info = self._env.reset()
            self._pending = False
            return self._kept(observation), 0, False, False, info
        if self._mode == AutoresetMode.DISABLED and self._pending:
            raise AssertionError(f"environment {self._index} has ended: reset it, by options={{'reset_mask': …}}")
        observation, reward, terminated, truncated, info = self._env.step(action)
        self._pending = bool(terminated or truncated)
        if self._mode == AutoresetMode.SAME_STEP and self._pending:
            last = {"final_info": info, "final_obs": observation}
            observation, info = self._env.reset()
            info = {**last, **info}
        return self._kept(observation), reward, terminated, truncated, info

    def _kept(self, observation: Any) -> Any:
        self._observation = observation
        if self._memory is not None:
            write_to_shared_memory(self._env.observation_space, self._index, observation, self._memory)
        return self._shown(observation)

    def _shown(self, observation: Any) -> Any:
        return observation if self._memory is None else None

    def _serve_state(self, data: Any) -> Any:
        asked, kept = data
        if asked.verb == "capture" and process_rng.states() != self._global_generators:
            return refusal(asked, _DRAWS_GLOBALLY), self._pending
        reply = answer(self._env, asked, self._resolver)
        if kept is not None and reply.problem is None:
            self._pending, self._observation = kept
        return reply, self._pending

    def _call(self, data: Any) -> Any:
        name, args, kwargs = data
        if name in _NOT_BY_CALL:
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        attribute = self._env.get_wrapper_attr(name)
        return attribute(*args, **kwargs) if callable(attribute) else attribute

    def _check_spaces(self, data: Any) -> tuple[bool, bool]:
        mode, observation_space, action_space = data
        own = self._env.observation_space
        same = observation_space == own if mode == "same" else is_space_dtype_shape_equiv(observation_space, own)
        return same, action_space == self._env.action_space


def _portable(error: Exception) -> tuple[type[Exception], str]:
    """Class and text of an error, such that the other end can raise it again."""
    kind: Callable[[str], Exception] = type(error)
    try:
        ForkingPickler.dumps(kind)
        kind(str(error))
    except Exception:  # noqa: BLE001 - a class of the user's may do anything
        return RuntimeError, f"{type(error).__qualname__}: {error}"
    return type(error), str(error)


def _do_nothing(number: int, frame: object) -> None:
    pass
