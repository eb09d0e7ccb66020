"""Options are checked when they are made, and survive a journey through JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from perdure.nnx import EvalConfig, LoggingLevel, NetworkConfig, PPOConfig, TrainConfig, VideoConfig
from perdure.nnx.config import from_mapping, to_mapping, with_overrides


def test_the_defaults_are_those_that_users_know():
    assert dataclasses.asdict(PPOConfig()) == {
        "n_envs": 256,
        "rollout_length": 20,
        "total_steps": 512_000,
        "gae_lambda": 0.95,
        "discounting_factor": 0.99,
        "clip_range": 0.2,
        "learning_rate": 1e-4,
        "normalize_advantages": True,
        "combine_advantages": False,
        "n_epochs": 4,
        "n_minibatches": 4,
        "critic_loss_weight": 1.0,
        "gradient_clipping": None,
        "weight_decay": None,
        "n_devices": 1,
        "logging_level": LoggingLevel.LOSSES,
        "logging_percentiles": None,
    }
    assert dataclasses.asdict(EvalConfig()) == {
        "enabled": True,
        "every_steps": 50_000,
        "n_envs": 64,
        "max_episode_length": 1000,
        "logging_level": LoggingLevel.BASIC,
        "logging_percentiles": (0, 25, 50, 75, 100),
    }
    assert dataclasses.asdict(VideoConfig()) == {
        "enabled": False,
        "every_steps": 200_000,
        "episode_length": 1000,
        "render_kwargs": {"height": 480, "width": 640},
    }
    assert (TrainConfig().seed, TrainConfig().checkpoint_every_steps) == (17, 500_000)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (PPOConfig, {"n_envs": 10, "n_minibatches": 4}, "n_minibatches=4 does not divide n_envs=10"),
        (PPOConfig, {"n_devices": 0}, "PPOConfig.n_devices must be a positive integer, got 0"),
        (PPOConfig, {"n_envs": 0}, "PPOConfig.n_envs must be a positive integer, got 0"),
        (PPOConfig, {"n_epochs": 2.0}, "PPOConfig.n_epochs must be a positive integer, got 2.0"),
        (PPOConfig, {"rollout_length": -1}, "PPOConfig.rollout_length must be a positive integer, got -1"),
        (PPOConfig, {"total_steps": True}, "PPOConfig.total_steps must be a positive integer, got True"),
        (PPOConfig, {"gae_lambda": 1.1}, r"PPOConfig.gae_lambda must lie in \[0, 1\], got 1.1"),
        (PPOConfig, {"discounting_factor": -0.1}, "PPOConfig.discounting_factor must lie in"),
        (PPOConfig, {"learning_rate": 0.0}, "PPOConfig.learning_rate must be positive, got 0.0"),
        (PPOConfig, {"learning_rate": float("nan")}, "PPOConfig.learning_rate must be positive, got nan"),
        (PPOConfig, {"clip_range": -0.2}, "PPOConfig.clip_range must be positive"),
        (PPOConfig, {"weight_decay": -1.0}, "PPOConfig.weight_decay must not be negative, got -1.0"),
        (PPOConfig, {"gradient_clipping": 0.0}, "None turns it off"),
        (EvalConfig, {"every_steps": 0}, "EvalConfig.every_steps must be a positive integer, got 0"),
        (EvalConfig, {"n_envs": -3}, "EvalConfig.n_envs must be a positive integer"),
        (VideoConfig, {"episode_length": 0}, "VideoConfig.episode_length must be a positive integer, got 0"),
        (PPOConfig, {"logging_level": "ALL"}, "PPOConfig.logging_level must be a LoggingLevel, got 'ALL'"),
        (PPOConfig, {"logging_percentiles": (5, 101)}, "PPOConfig.logging_percentiles must be a tuple of integers"),
        (EvalConfig, {"logging_percentiles": [50]}, "EvalConfig.logging_percentiles must be a tuple of integers"),
        (TrainConfig, {"seed": -1}, "TrainConfig.seed must be an integer in"),
        (TrainConfig, {"seed": 2**32}, "TrainConfig.seed must be an integer in"),
        (TrainConfig, {"checkpoint_every_steps": 0}, "TrainConfig.checkpoint_every_steps must be a positive"),
        (NetworkConfig, {"actor_hidden_sizes": (8, 0)}, "NetworkConfig.actor_hidden_sizes must hold positive"),
        (NetworkConfig, {"activation": "sine"}, "unknown activation 'sine'"),
        (NetworkConfig, {"min_std": -0.1}, "NetworkConfig.min_std must not be negative"),
    ],
)
def test_a_bad_value_is_refused_by_name(kind, changes, message):
    with pytest.raises(ValueError, match=message):
        kind(**changes)


@pytest.mark.parametrize(
    ("previous", "steps", "fires"),
    [(0, 99, False), (0, 100, True), (99, 101, True), (100, 199, False), (150, 450, True)],
)
def test_evaluation_fires_when_a_multiple_is_passed(previous, steps, fires):
    assert EvalConfig(every_steps=100).fires(previous, steps) is fires
    assert EvalConfig(every_steps=100, enabled=False).fires(previous, steps) is False


def test_a_configuration_survives_json():
    ppo = PPOConfig(
        n_envs=8,
        gradient_clipping=0.5,
        logging_level=LoggingLevel.GRAD_NORM | LoggingLevel.LOSSES,
        logging_percentiles=(5, 95),
    )
    video = VideoConfig(render_kwargs={"camera": "side"})
    config = TrainConfig(ppo, EvalConfig(enabled=False, logging_level=LoggingLevel.NONE), video, seed=3)
    networks = NetworkConfig(actor_hidden_sizes=(5, 6))

    assert from_mapping(TrainConfig, json.loads(json.dumps(to_mapping(config)))) == config
    assert from_mapping(NetworkConfig, json.loads(json.dumps(to_mapping(networks)))) == networks
    assert to_mapping(config)["ppo"]["logging_level"] == "LOSSES|GRAD_NORM"


def test_a_foreign_mapping_is_refused_by_field_and_an_old_one_takes_the_defaults():
    mapping = to_mapping(EvalConfig(every_steps=7))
    del mapping["n_envs"]

    assert from_mapping(EvalConfig, mapping) == EvalConfig(every_steps=7)
    with pytest.raises(ValueError, match=r"EvalConfig: unknown \['batch'\]; it has \['enabled', 'every_steps',"):
        from_mapping(EvalConfig, {**mapping, "batch": 3})


def test_overrides_replace_what_is_given_only():
    config = with_overrides(TrainConfig(), total_steps=5, seed=None)

    assert (config.ppo.total_steps, config.seed) == (5, 17)
    assert with_overrides(config, total_steps=None, seed=1).seed == 1
