"""`perdure train ppo --n-devices 2` makes two devices of a CPU, and `perdure resume` does so too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.jax, pytest.mark.full]


def perdure(*words: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, because JAX decides once how many devices there are."""
    command = [sys.executable, "-m", "perdure", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_a_training_on_two_devices_is_launched_and_resumed(tmp_path: Path) -> None:
    """Without a word about JAX from whoever types it."""
    run = str(tmp_path / "run")
    sizes = ("--n-envs", "8", "--rollout-length", "8", "--n-minibatches", "2", "--eval.no-enabled")
    begun = perdure(
        "train", "ppo", "--env", "CartPole-v1", "--run", run, "--total-steps", "128", "--n-devices", "2", *sizes
    )
    resumed = perdure("resume", run, "--total-steps", "256")

    assert begun.returncode == 0, begun.stderr
    assert resumed.returncode == 0, resumed.stderr
    assert "finished at 256 steps" in resumed.stdout
