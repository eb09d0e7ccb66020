"""Environments that are stepped in this process."""

import copy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, iterate

Stepped = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class SyncVectorEnv(gymnasium.vector.SyncVectorEnv):
    """Gymnasium's, with spaces and metadata of its own; see `make_vec`.

    The space that `single_action_space.sample` draws from is not the first environment's, as it is not where
    environments live in other processes.
    """

    def __init__(self, env_fns: Any, **options: Any) -> None:
        """Builds the environments; `options` are those of Gymnasium's class."""
        super().__init__(env_fns, **options)
        spaces = copy.deepcopy((self.single_observation_space, self.single_action_space))
        self.single_observation_space, self.single_action_space = spaces
        # Gymnasium writes the mode into the metadata of the environment's class, which all environments share.
        self.metadata = dict(self.metadata)

    def step(self, actions: Any) -> Stepped:
        """As Gymnasium's own, and what it returns is equal; arrays are filled at once and rows copied singly.

        For environments of a few microseconds, Gymnasium's bookkeeping takes as long as they do.
        """
        if self.autoreset_mode == AutoresetMode.DISABLED and self._autoreset_envs.any():
            raise AssertionError(f"{self._autoreset_envs=}")  # Gymnasium's own
        actions = actions if isinstance(actions, np.ndarray) and actions.ndim else iterate(self.action_space, actions)
        waiting = self._autoreset_envs.tolist() if self.autoreset_mode == AutoresetMode.NEXT_STEP else None
        infos: dict[str, Any] = {}
        for index, (action, env) in enumerate(zip(actions, self.envs, strict=True)):
            if waiting is not None and waiting[index]:
                (observation, info), reward, terminated, truncated = env.reset(), 0.0, False, False
            else:
                observation, reward, terminated, truncated, info = env.step(action)
            if self.autoreset_mode == AutoresetMode.SAME_STEP and (terminated or truncated):
                infos = self._add_info(infos, {"final_obs": observation, "final_info": info}, index)
                observation, info = env.reset()
            self._env_obs[index], self._rewards[index] = observation, reward
            self._terminations[index], self._truncations[index] = terminated, truncated
            if info:
                infos = self._add_info(infos, info, index)
        self._batch()
        self._autoreset_envs = self._terminations | self._truncations
        observations = copy.deepcopy(self._observations) if self.copy else self._observations
        return observations, self._rewards.copy(), self._terminations.copy(), self._truncations.copy(), infos

    def _batch(self) -> None:
        """The observations into the buffer that is handed out."""
        batch, rows = self._observations, self._env_obs
        if type(batch) is np.ndarray and all(
            type(row) is np.ndarray and row.dtype == batch.dtype and row.shape == batch.shape[1:] for row in rows
        ):
            for index, row in enumerate(rows):
                batch[index] = row
        else:
            self._observations = concatenate(self.single_observation_space, rows, batch)
