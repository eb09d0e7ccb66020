"""A run that was launched from plain values is resumed from its record alone."""

from __future__ import annotations

import dataclasses
import inspect
import json

import pytest

from perdure import ContractError, Every, Keep
from perdure.nnx import NetworkConfig, launch_ppo, resume_ppo
from perdure.nnx.launch import build

NETWORKS = NetworkConfig(actor_hidden_sizes=(8,), critic_hidden_sizes=(8,))


class Stop(Exception):
    """Raised by a log function, in place of a kill."""


def stop_at(steps: int):
    def log(metrics: dict, now: int) -> None:
        if now == steps:
            raise Stop

    return log


def record_of(directory) -> dict:
    return json.loads((directory / "run.json").read_bytes())["launch"]


def test_a_launched_run_resumes_from_its_record(toys, tmp_path):
    config, every = toys.small_config(), Every(updates=1)
    straight = launch_ppo("CartPole-v1", config, tmp_path / "a", networks=NETWORKS, checkpoint_every=every)
    with pytest.raises(Stop):
        launch_ppo(
            "CartPole-v1",
            config,
            tmp_path / "b",
            networks=NETWORKS,
            checkpoint_every=every,
            log_fn=stop_at(96),
        )
    resumed = resume_ppo(record_of(tmp_path / "b"), tmp_path / "b")

    assert toys.leaves_of_state(resumed.training_state) == toys.leaves_of_state(straight.training_state)
    assert resumed.eval_history == straight.eval_history
    assert record_of(tmp_path / "a") == record_of(tmp_path / "b")


@pytest.mark.parametrize(("keep", "left"), [(Keep(last=2), [96, 128]), (None, [0, 32, 64, 96, 128])], ids=str)
def test_a_launched_run_and_its_resume_keep_what_they_are_told(toys, tmp_path, keep: Keep | None, left: list[int]):
    options = {"checkpoint_every": Every(updates=1), "keep": keep, "background": False}
    with pytest.raises(Stop):
        launch_ppo(
            "CartPole-v1",
            toys.small_config(),
            tmp_path / "run",
            networks=NETWORKS,
            log_fn=stop_at(96),
            **options,
        )
    resume_ppo(record_of(tmp_path / "run"), tmp_path / "run", **options)

    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == [f"step_{steps:010d}" for steps in left]


def test_a_launch_keeps_two_by_default_and_a_resume_what_the_launch_kept():
    defaults = [inspect.signature(function).parameters for function in (launch_ppo, resume_ppo)]

    assert [each["keep"].default for each in defaults] == [Keep(last=2), "recorded"]
    assert [each["background"].default for each in defaults] == [True] * 2


def test_other_options_are_refused_and_named(toys, tmp_path):
    config = toys.small_config()
    launch_ppo("CartPole-v1", config, tmp_path / "run", networks=NETWORKS)
    with pytest.raises(ContractError, match="seed"):
        launch_ppo("CartPole-v1", dataclasses.replace(config, seed=1), tmp_path / "run", networks=NETWORKS)
    with pytest.raises(ContractError, match=r"networks\.entropy_weight"):
        launch_ppo(
            "CartPole-v1",
            config,
            tmp_path / "run",
            networks=dataclasses.replace(NETWORKS, entropy_weight=0.5),
        )


def test_a_foreign_record_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not a launch record of the trainer ppo: its kind is 'script'"):
        resume_ppo({"kind": "script", "argv": []}, tmp_path)


def test_networks_fit_the_environment():
    env, networks = build("Breakout-MinAtar", NETWORKS, seed=0)

    assert env.obs_shape == (10, 10, 4)  # pyright: ignore[reportAttributeAccessIssue]
    assert type(networks).__name__ == "Sequential", "images are flattened first"
