"""Training with PyTorch in Gymnasium's environments: PPO that resumes bit for bit."""

from perdure.torch.config import PPOConfig
from perdure.torch.launch import launch_ppo, resume_ppo
from perdure.torch.ppo import TrainResult, train

__all__ = ["PPOConfig", "TrainResult", "launch_ppo", "resume_ppo", "train"]
