"""Training with PyTorch in Gymnasium's environments: PPO that resumes bit for bit."""

from perdure.torch.config import PPOConfig
from perdure.torch.ppo import TrainResult, train

__all__ = ["PPOConfig", "TrainResult", "train"]
