"""Gymnasium 0.29.1 and the newest 1.x: a run that is stopped equals one that is not, as under the locked version."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("gymnasium_versions.py")
OTHERS = {"gymnasium-0.29": "0.29.1", "gymnasium-1.4": "1.4.0"}


def told_by(python: Path, folder: Path) -> dict[str, object]:
    """What the script says under an interpreter. A warning is an error, but for those of Gymnasium 0.29 on itself."""
    command = [python, "-W", "error", "-W", "ignore::UserWarning", SCRIPT, folder]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.full
def test_under_the_locked_version(tmp_path: Path):
    told = told_by(Path(sys.executable), tmp_path)

    assert told["wrong"] == {"single": 0, "several": 0, "texts": 0, "workers": 0}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_under_another_version(tmp_path: Path, name: str):
    python = ROOT / ".cache" / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no .cache/{name}: ./dev test slow makes it")
    told = told_by(python, tmp_path)

    assert told["version"] == OTHERS[name]
    # `make_vec` needs the autoreset modes of 1.1.
    expected = {"single": 0, "several": 0, "texts": 0}
    assert told["wrong"] == (expected if name == "gymnasium-0.29" else {**expected, "workers": 0})
