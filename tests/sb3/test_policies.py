"""The policy of a training with Stable-Baselines3 is taken out of a checkpoint alone, with its statistics."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3.common.vec_env import VecNormalize

import perdure
from perdure.cli.main import main

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("global_generators")]


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_an_exported_policy_acts_as_the_model_does(
    name: str, trainings: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    make, _, _ = trainings.CASES[name]
    model = trainings.train(make, tmp_path / "run", 256)
    code = main(["export", str(tmp_path / "run"), "--components", "policy", "--to", str(tmp_path / "policy")])
    fresh = make()
    loaded = perdure.Policy(tmp_path / "policy").load(policy=fresh.policy)

    assert (code, capsys.readouterr().err) == (0, "")
    assert loaded["policy"] is fresh.policy
    expected = model.policy.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in loaded["policy"].state_dict().items())
    assert fresh.env is not None
    raw: Any = fresh.env.unwrapped.reset()
    seen = raw
    if isinstance(model.env, VecNormalize):
        seen = loaded["observation_normaliser"](raw)
        assert (seen == model.env.normalize_obs(raw)).all()
        assert (seen != fresh.env.normalize_obs(raw)).any()
    assert (loaded["policy"].predict(seen, deterministic=True)[0] == model.predict(seen, deterministic=True)[0]).all()
    for each in (model, fresh):
        each.env.close()


def test_a_policy_is_promoted_out_of_a_checkpoint(
    trainings: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    trainings.train(trainings.ppo, tmp_path / "run", 256).env.close()
    code = main(["promote", f"{tmp_path / 'run'}@latest", "--as", "best", "--components", "policy"])

    assert (code, capsys.readouterr().err) == (0, "")
    (promoted,) = (tmp_path / "policies" / "best").glob("step_*")
    assert set(perdure.Policy(promoted).components) == {"policy", "observation_normaliser"}
