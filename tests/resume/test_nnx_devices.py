"""Environments split over two devices: the gradient is that of the whole, and every resume is exact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perdure.nnx import PPOConfig

SCRIPT = Path(__file__).with_name("nnx_devices.py")


@pytest.mark.full
def test_two_devices_resume_exactly_and_average_what_one_would_compute(tmp_path: Path) -> None:
    """A process of its own, because JAX decides once how many devices there are."""
    done = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, timeout=900)

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("equal\n")


def test_environments_that_cannot_be_dealt_evenly_are_refused() -> None:
    """Named with the multiple that would do."""
    message = r"n_envs=12 cannot be dealt to n_devices=2 with n_minibatches=4 each\. Choose a multiple of 8\."
    with pytest.raises(ValueError, match=message):
        PPOConfig(n_envs=12, n_minibatches=4, n_devices=2)
