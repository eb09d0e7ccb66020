"""Environments: small ones in pure JAX, wrappers, and adapters for other libraries (imported one by one)."""

from perdure.nnx.envs.move_to_center import MoveToCenter
from perdure.nnx.envs.recall_cue import RecallCue
from perdure.nnx.envs.two_goals import TwoGoals
from perdure.nnx.envs.wrappers import EpisodeWrapper, RewardScalingWrapper

__all__ = ["EpisodeWrapper", "MoveToCenter", "RecallCue", "RewardScalingWrapper", "TwoGoals"]
