"""Environments that are stepped in this process."""

import copy
from typing import Any

import gymnasium


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
