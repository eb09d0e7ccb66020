"""`examples/sb3_ppo.py`: killed at any instant it goes on; it is a complete script without perdure's lines."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import ROOT

pytest.importorskip("stable_baselines3")
torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("global_generators")]

SCRIPT = ROOT / "examples" / "sb3_ppo.py"
MARK = "# perdure"
SMALL = ("--n-envs", "2", "--n-steps", "32", "--eval-every", "50")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(*words: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, *map(str, words)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def end(*words: Any) -> None:
    with start(*words) as process:
        error = process.communicate()[1]
    assert process.returncode == 0, error.decode()


def newest(run: Path) -> int:
    return max((int(path.name.removeprefix("step_")) for path in run.glob("checkpoints/step_*")), default=-1)


def kill_after(steps: int, delay_s: float, run: Path, *words: Any) -> None:
    """Kills the script some time after it has committed a checkpoint at `steps` or later."""
    with start(SCRIPT, "--run", run, *words) as process:
        while newest(run) < steps and process.poll() is None:
            time.sleep(0.001)
        time.sleep(delay_s)
        process.kill()
        error = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, error.decode()


@pytest.mark.slow
def test_killed_at_any_instant_and_resumed_in_new_processes_it_equals_the_run_never_stopped(tmp_path: Path):
    """Two SIGKILLs; then `perdure resume`. The state at the end, and every row."""
    draws, run = random.Random(8), tmp_path / "run"
    words = (*SMALL, "--total-steps", 3200, "--checkpoint-every", 100)
    end(SCRIPT, "--run", tmp_path / "straight", *words)
    kill_after(600, draws.uniform(0, 0.1), run, *words)
    first = newest(run)
    kill_after(first + 200, draws.uniform(0, 0.1), run, *words)
    second = newest(run)
    end("-m", "perdure", "resume", run)

    assert 0 < first < second <= 3200 - 500
    manifests = [
        json.loads((each / "checkpoints" / "step_0000003200" / "MANIFEST.json").read_text())
        for each in (tmp_path / "straight", run)
    ]
    assert manifests[0]["state_digest"] == manifests[1]["state_digest"]
    assert (run / "metrics.jsonl").read_bytes() == (tmp_path / "straight" / "metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_perdure_prove_says_exact(tmp_path: Path):
    words = (SCRIPT, *SMALL, "--total-steps", "512", "--run", "runs/x")
    parts = [sys.executable, "-m", "perdure", "prove", "--every", "--until", "4", "--", sys.executable, *words]
    command = list(map(str, parts))
    said = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd=tmp_path)

    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("exact: stopped after boundaries 1, 2, 3, and compared up to boundary 4"), said.stdout


def test_without_the_marked_lines_it_is_a_complete_script_that_learns_the_same(tmp_path: Path):
    lines = SCRIPT.read_text(encoding="utf-8").splitlines(keepends=True)
    learned = []
    for source in ("".join(lines), "".join(line for line in lines if not line.rstrip().endswith(MARK))):
        assert ("perdure." in source) == (source == "".join(lines))
        module: dict[str, Any] = {"__name__": "sb3_ppo"}
        exec(compile(source, str(SCRIPT), "exec"), module)
        words = [*SMALL, "--total-steps", "256"] + (["--run", str(tmp_path / "run")] if "perdure." in source else [])
        learned.append(module["main"](words).policy.state_dict())

    for name, tensor in learned[0].items():
        assert torch.equal(tensor, learned[1][name]), name


def test_it_is_short():
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 80
