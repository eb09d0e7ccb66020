"""Helpers for users of Gymnasium: vector environments whose state can be saved, level pools, recordings, players."""

from perdure.gym.async_envs import AsyncVectorEnv
from perdure.gym.level_pool import LevelPool
from perdure.gym.make_vec import make_vec
from perdure.gym.normalised import Normalised, as_trained
from perdure.gym.player import Player
from perdure.gym.probing import Probe, probe
from perdure.gym.recorded import Recorded
from perdure.gym.seeding import seed_spaces
from perdure.gym.snapshot import Snapshot
from perdure.gym.sync_envs import SyncVectorEnv

__all__ = [
    "AsyncVectorEnv",
    "LevelPool",
    "Normalised",
    "Player",
    "Probe",
    "Recorded",
    "Snapshot",
    "SyncVectorEnv",
    "as_trained",
    "make_vec",
    "probe",
    "seed_spaces",
]
