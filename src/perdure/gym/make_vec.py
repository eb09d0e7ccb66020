"""`make_vec`: several environments as one, in this process or in processes of their own, restored bit for bit."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium
from gymnasium.vector import AutoresetMode

from perdure import UsageError
from perdure.adapters import Adapter
from perdure.gym.async_envs import AsyncVectorEnv
from perdure.gym.sync_envs import SyncVectorEnv

Factory = Callable[[], gymnasium.Env]

_MODES = tuple(mode.value for mode in AutoresetMode)


def make_vec(
    factories: Sequence[Factory],
    *,
    mode: Literal["sync", "async"] = "sync",
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    context: Literal["fork", "spawn", "forkserver"] | None = None,
    copy: bool = True,
    shared_memory: bool = True,
    observation_mode: Any = "same",
    daemon: bool = True,
    adapters: Sequence[tuple[type, Adapter]] = (),
) -> SyncVectorEnv | AsyncVectorEnv:
    """Gymnasium's vector environments, whose whole state a `perdure.Run` captures and restores.

    Both modes step alike, bit for bit, and a checkpoint of one fits the other. Environments must not share objects if
    it is to fit: in processes of their own they cannot.

    ```python
    envs = make_vec([lambda: gymnasium.make("CartPole-v1")] * 4, mode="async")
    run.restore(envs=envs, observations=envs.reset(seed=1)[0])
    ```

    Args:
        factories: one for each environment.
        mode: `sync` steps them in this process one after the other, `async` each in a process of its own. Workers
            ignore SIGINT, SIGTERM, SIGUSR1 and SIGUSR2, which terminals and schedulers send to whole process groups:
            the training process commits and ends them.
        autoreset_mode: what follows the end of an episode: `NextStep`, `SameStep` or `Disabled`.
        context: how `async` starts processes; None: Python's default.
        copy: whether each step returns observations of its own; else they are overwritten by the next step.
        shared_memory: whether workers write observations to shared memory.
        observation_mode: as for Gymnasium's own.
        daemon: whether workers are daemons, which may not start processes by `multiprocessing` themselves.
        adapters: the user's own, as for `perdure.Run`, for environments in workers. A worker started by `spawn` or
            `forkserver` gets a copy.

    Raises:
        UsageError: an argument cannot be right.
        WorkerDiedError: a worker died while it built its environment.
    """
    _check(factories, mode, autoreset_mode, context)
    options: dict[str, Any] = {"copy": copy, "observation_mode": observation_mode, "autoreset_mode": autoreset_mode}
    if mode == "sync":
        return SyncVectorEnv(list(factories), **options)
    processes = {"shared_memory": shared_memory, "context": context, "daemon": daemon}
    return AsyncVectorEnv(list(factories), adapters=tuple(adapters), **processes, **options)


def _check(factories: Any, mode: Any, autoreset_mode: Any, context: Any) -> None:
    if isinstance(factories, str) or not isinstance(factories, Sequence) or not factories:
        example = 'make_vec([lambda: gymnasium.make("CartPole-v1")] * 4)'
        raise UsageError(f"make_vec: factories={factories!r}: a list of functions that each make one: {example}.")
    for index, factory in enumerate(factories):
        if not callable(factory):
            problem = f"a {type(factory).__qualname__}, not a function that makes an environment"
            raise UsageError(f"make_vec: factories[{index}] is {problem}.")
    if mode not in ("sync", "async"):
        raise UsageError(f"make_vec: mode={mode!r}: one of 'sync', 'async'.")
    if not isinstance(autoreset_mode, AutoresetMode) and autoreset_mode not in _MODES:
        raise UsageError(f"make_vec: autoreset_mode={autoreset_mode!r}: one of {', '.join(map(repr, _MODES))}.")
    if context not in (None, "fork", "spawn", "forkserver"):
        raise UsageError(f"make_vec: context={context!r}: one of 'fork', 'spawn', 'forkserver', or None.")
