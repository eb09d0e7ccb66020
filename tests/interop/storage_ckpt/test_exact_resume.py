"""A network and its Adam, saved at step 9 and loaded in a fresh process, go on bit for bit as if never stopped."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

SCRIPT = Path(__file__).with_name("training.py")
STOP, END = 9, 20


def trained(*arguments: object) -> str:
    """The digest that a process of its own comes to."""
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("framework", ["torch", pytest.param("nnx", marks=pytest.mark.jax)])
def test_a_fresh_process_goes_on_exactly_and_not_without_moments_or_scalars(tmp_path: Path, framework: str):
    pytest.importorskip("torch" if framework == "torch" else "flax")
    file = tmp_path / "net.ckpt"
    straight = trained(framework, 0, END)
    trained(framework, 0, STOP, "--save", file)

    assert trained(framework, STOP, END, "--load", file) == straight
    for part in ("moments", "scalars"):  # the twins: each loses a part of the file
        assert trained(framework, STOP, END, "--load", file, "--drop", part) != straight
