"""`perdure fork` makes a run of its own, says how to go on with it, and ends with the right code where it cannot."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("toy_script.py")
TOOL = [sys.executable, "-m", "perdure"]


def test_a_script_s_fork_goes_on_by_the_words_that_it_prints(perdure_cli, tmp_path: Path):
    words = [sys.executable, str(SCRIPT), "run", "--stop-after", "6"]
    subprocess.run(words, cwd=tmp_path, check=True)
    forked = perdure_cli("fork", tmp_path / "run", "--at", 20, "--to", tmp_path / "new")
    assert (forked.code, forked.err) == (0, "")
    assert forked.out == (
        f"forked {tmp_path}/run at step 20 to {tmp_path}/new\ngo on with: perdure resume {tmp_path}/new\n"
    )
    advice = shlex.split(forked.out.splitlines()[-1].removeprefix("go on with: perdure "))
    done = subprocess.run([*TOOL, *advice], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stderr == f"perdure: in {tmp_path}: {sys.executable} {SCRIPT} {tmp_path}/new --stop-after 6\n"
    assert perdure_cli("diff", tmp_path / "new", tmp_path / "run").code == 0
    assert perdure_cli("verify", tmp_path / "new").code == 0


def test_a_script_that_does_not_name_its_run_must_be_given(perdure_cli, run_path: Path, tmp_path: Path):
    forked = perdure_cli("fork", run_path, "--at", 20, "--to", tmp_path / "a new one")
    resumed = perdure_cli("resume", tmp_path / "a new one")

    assert forked.out.endswith(f"go on with: perdure resume '{tmp_path}/a new one' -- CMD …\n")
    assert resumed.code == 2
    assert resumed.err.endswith(f"Give the command yourself: perdure resume '{tmp_path}/a new one' -- CMD …\n")


def launched(toy: ModuleType, run: Path, *, stop_after: int | None) -> Path:
    launch: dict[str, Any] = {"kind": "trainer", "name": "ppo", "config": {"ppo": {"total_steps": 60}}}
    toy.train(run, stop_after=stop_after, launch=launch)
    return run


@pytest.mark.parametrize(("at", "more"), [(20, ""), (60, " --total-steps N")])
def test_a_trainer_s_fork_that_is_at_its_end_needs_another_total(perdure_cli, toy, tmp_path: Path, at: int, more: str):
    run = launched(toy, tmp_path / "run", stop_after=None)
    forked = perdure_cli("fork", run, "--at", at, "--to", tmp_path / "new")

    assert forked.out.splitlines()[-1] == f"go on with: perdure resume {tmp_path}/new{more}"


def test_it_is_shown_with_its_parent(perdure_cli, run_path: Path, tmp_path: Path):
    perdure_cli("fork", run_path, "--at", 20, "--to", tmp_path / "new")
    parent = perdure_cli("show", run_path).out
    run_id = next(line.split()[1] for line in parent.splitlines() if line.startswith("id "))
    shown = perdure_cli("show", tmp_path / "new").out

    assert f"forked from  step_0000000020 of run {run_id}\n" in shown
    assert "steps        20 of 60\n" in shown
    assert "metrics      2 rows\n" in shown
    assert "forked from" not in parent


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "--at", "25", "--to", "new"], 4, "run: no checkpoint at 25 env-steps; there are: 30, 20, 10, 0."),
        (
            ["rnu", "--at", "20", "--to", "new"],
            4,
            "rnu: no such directory. Check the spelling; `perdure ls` lists runs.",
        ),
        (["run", "--at", "20", "--to", "run"], 2, "run: there is something already; give the new run a directory of"),
        (["run", "--at", "x", "--to", "new"], 2, "argument --at: invalid int value: 'x'"),
        (["run", "--at", "20"], 2, "the following arguments are required: --to"),
        (["run", "--at", "20", "--to", "run/run.json/new"], 2, "run.json"),
    ],
)
def test_what_cannot_be_forked(perdure_cli, run_path: Path, monkeypatch, words: list[str], code: int, message: str):
    monkeypatch.chdir(run_path.parent)
    result = perdure_cli("fork", *words)

    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert [path.name for path in run_path.parent.iterdir()] == ["run"]


def test_a_damaged_checkpoint_is_not_forked(perdure_cli, run_path: Path, step, flip: Callable):
    flip(step(20) / "weights.safetensors")
    result = perdure_cli("fork", run_path, "--at", 20, "--to", run_path.parent / "new")

    assert (result.code, result.out) == (4, "")
    assert result.err == (
        f"perdure: {run_path}: step_0000000020/weights.safetensors: not what was written. Fork at another step.\n"
    )
    assert [path.name for path in run_path.parent.iterdir()] == ["run"]


def test_a_run_that_is_training_is_forked(perdure_cli, run_path: Path, locked: int, tmp_path: Path):
    assert perdure_cli("fork", run_path, "--at", 20, "--to", tmp_path / "new").code == 0
