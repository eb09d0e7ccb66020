"""`Snapshot`: the outermost wrapper of an environment in a worker of Stable-Baselines3."""

import multiprocessing
import threading
from typing import Any

import gymnasium

from perdure.adapters.remote import Reply, Request, answer
from perdure.adapters.resolve import Resolver
from perdure.gym.worker import ignore_signals


class Snapshot(gymnasium.Wrapper):
    """Lets a `SubprocVecEnv` be part of a run: the environment is captured and restored inside its worker.

    ```python
    envs = make_vec_env("CartPole-v1", 4, vec_env_cls=SubprocVecEnv, wrapper_class=perdure.gym.Snapshot)
    ```

    In a worker, it lets signals to the process group pass: Stable-Baselines3's would end before the run is saved.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        """Wraps an environment; nothing may be wrapped around it."""
        super().__init__(env)
        if multiprocessing.parent_process() is not None and threading.current_thread() is threading.main_thread():
            ignore_signals()
        self._reset_info: dict[str, Any] | None = None

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Resets the environment."""
        observation, info = self.env.reset(**options)
        self._reset_info = info
        return observation, info

    def answer_perdure(self, asked: Request) -> Reply:
        """Captures, checks or restores the environment; `perdure.adapters` calls it through `env_method`."""
        shown = self._reset_info
        reply = answer(self, asked, Resolver())
        if asked.verb == "restore" and shown is not None and self._reset_info is not None:
            # The worker holds this very dict in a local variable, and sends it with every step.
            restored = dict(self._reset_info)
            shown.clear()
            shown.update(restored)
            self._reset_info = shown
        return reply
