"""Training with JAX and Flax NNX: networks with explicit state, environments, PPO that resumes bit for bit.

Environments of other libraries are in `perdure.nnx.envs.gymnax`, `.gymnasium`, `.brax` and `.playground`, each with its
own extra.
"""

from perdure.nnx.checkpointing import CheckpointCallback, load_checkpoint, make_checkpoint_fn
from perdure.nnx.config import EvalConfig, NetworkConfig, PPOConfig, TrainConfig, VideoConfig
from perdure.nnx.environment import ActionSpec, Environment, EnvState
from perdure.nnx.envs.wrappers import EpisodeWrapper, RewardScalingWrapper
from perdure.nnx.evaluation import eval_rollout
from perdure.nnx.from_nnx_ppo import ImportedTraining, load_nnx_ppo
from perdure.nnx.gae import gae
from perdure.nnx.launch import launch_ppo, resume_ppo
from perdure.nnx.loss import ppo_loss
from perdure.nnx.metrics import LoggingLevel
from perdure.nnx.networks import (
    LSTM,
    AR1VariationalBottleneck,
    CategoricalSampler,
    Concat,
    Delay,
    Dense,
    Filter,
    Flattener,
    Map,
    Merge,
    Normalizer,
    NormalTanhSampler,
    Parallel,
    PPOAdapter,
    PPONetworkOutput,
    SamplerOutput,
    Scale,
    Sequential,
    Splitter,
    StatefulModule,
    StatefulModuleOutput,
    VariationalBottleneck,
    make_mlp,
    make_mlp_actor_critic,
    make_mlp_layers,
)
from perdure.nnx.ppo import ppo_step
from perdure.nnx.rollout import Transition, unroll_env
from perdure.nnx.scan import scan
from perdure.nnx.state import TrainingState, new_training_state
from perdure.nnx.training import TrainResult, train_ppo
from perdure.nnx.video import VideoData

__all__ = [
    "LSTM",
    "AR1VariationalBottleneck",
    "ActionSpec",
    "CategoricalSampler",
    "CheckpointCallback",
    "Concat",
    "Delay",
    "Dense",
    "EnvState",
    "Environment",
    "EpisodeWrapper",
    "EvalConfig",
    "Filter",
    "Flattener",
    "ImportedTraining",
    "LoggingLevel",
    "Map",
    "Merge",
    "NetworkConfig",
    "NormalTanhSampler",
    "Normalizer",
    "PPOAdapter",
    "PPOConfig",
    "PPONetworkOutput",
    "Parallel",
    "RewardScalingWrapper",
    "SamplerOutput",
    "Scale",
    "Sequential",
    "Splitter",
    "StatefulModule",
    "StatefulModuleOutput",
    "TrainConfig",
    "TrainResult",
    "TrainingState",
    "Transition",
    "VariationalBottleneck",
    "VideoConfig",
    "VideoData",
    "eval_rollout",
    "gae",
    "launch_ppo",
    "load_checkpoint",
    "load_nnx_ppo",
    "make_checkpoint_fn",
    "make_mlp",
    "make_mlp_actor_critic",
    "make_mlp_layers",
    "new_training_state",
    "ppo_loss",
    "ppo_step",
    "resume_ppo",
    "scan",
    "train_ppo",
    "unroll_env",
]
