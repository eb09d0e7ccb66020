"""`perdure resume` goes on with a script's run as it was launched, or says why not and changes nothing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("toy_script.py")
TOOL = [sys.executable, "-m", "perdure"]


def execute(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.fixture
def launched(tmp_path: Path) -> Path:
    """A run that was launched as `python toy_script.py run` in `tmp_path`, and left there."""
    shutil.copy(SCRIPT, tmp_path)
    done = execute(sys.executable, "toy_script.py", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_0000000060")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_0000000050")
    return tmp_path / "run"


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """What would have taken this process's place."""
    calls: list[dict[str, Any]] = []

    def note(program: str, argv: list[str], environment: dict[str, str]) -> None:
        calls.append({"program": program, "argv": argv, "mode": environment["PERDURE_MODE"], "cwd": Path.cwd()})
        raise SystemExit(0)

    monkeypatch.chdir(tmp_path)  # and back at the end
    monkeypatch.setattr(os, "execvpe", note)
    return calls


def test_a_script_s_run_goes_on_where_it_was_launched(launched: Path, toy: ModuleType, tmp_path: Path):
    result = execute(*TOOL, "resume", launched, cwd=SCRIPT.parent)

    assert result.returncode == 0, result.stderr
    assert f"perdure: in {tmp_path}: {sys.executable} toy_script.py run\n" in result.stderr
    toy.train(tmp_path / "straight")
    assert execute(*TOOL, "diff", launched, tmp_path / "straight").returncode == 0


def test_a_script_must_resume(run_path: Path, executed, perdure_cli):
    result = perdure_cli("resume", run_path)

    assert (result.code, result.out) == (0, "")
    assert [call["mode"] for call in executed] == ["resume"]


def test_another_command_takes_the_recorded_one_s_place(run_path: Path, executed, perdure_cli, tmp_path: Path):
    result = perdure_cli("resume", run_path, "--", "my-python", "x.py", "--flag", "--", "y")

    assert result.err == f"perdure: in {tmp_path}: my-python x.py --flag -- y\n"
    assert executed == [
        {
            "program": "my-python",
            "argv": ["my-python", "x.py", "--flag", "--", "y"],
            "mode": "resume",
            "cwd": tmp_path,
        }
    ]


def test_another_command_with_another_seed_is_refused_by_the_run(launched: Path, state_of):
    before = state_of(launched)
    words = [*TOOL, "resume", launched, "--", sys.executable, SCRIPT, launched, "--seed", "2"]
    result = execute(*words)

    assert result.returncode == 1  # the script's own: it sees an exception
    assert "seed.seed: 1 in the run, 2 here." in result.stderr
    assert state_of(launched) == before


def test_a_finished_run_is_left_alone(toy: ModuleType, tmp_path: Path, executed, perdure_cli):
    toy.train(tmp_path / "done", updates=2)
    result = perdure_cli("resume", tmp_path / "done")

    assert (result.code, result.err) == (0, "")
    assert result.out == f"{tmp_path}/done: finished already, at 20 of 20 steps (step_0000000020).\n"
    assert executed == []


def test_a_damaged_newest_checkpoint_is_stepped_back_from_and_said(launched: Path, flip: Callable, tmp_path: Path, toy):
    flip(launched / "checkpoints" / "step_0000000040" / "weights.safetensors")
    result = execute(*TOOL, "resume", launched)

    assert result.returncode == 0, result.stderr
    assert "stepped back over a damaged checkpoint: step_0000000040/weights" in result.stderr
    assert [path.name for path in (launched / "damaged").iterdir()] == ["step_0000000040"]
    toy.train(tmp_path / "straight")
    assert execute(*TOOL, "diff", launched, tmp_path / "straight").returncode == 0


def damage_all(run: Path, flip: Callable) -> None:
    for path in run.glob("checkpoints/step_*"):
        flip(path / "weights.safetensors")


def remove_all(run: Path, flip: Callable) -> None:
    shutil.rmtree(run / "checkpoints")


def set_all_aside(run: Path, flip: Callable) -> None:
    (run / "checkpoints").rename(run / "damaged")


def damage_the_record(run: Path, flip: Callable) -> None:
    flip(run / "run.json")


def remove_the_record(run: Path, flip: Callable) -> None:
    (run / "run.json").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_all, "all 4 checkpoints are damaged; nothing was changed.\n  step_0000000030/weights"),
        (remove_all, "its lineage tells of checkpoints, the last one step_0000000030, but there is none"),
        (set_all_aside, "every checkpoint was damaged; they stand under damaged/."),
        (damage_the_record, "run.json"),
        (remove_the_record, "not a run (no run.json in it). Check the spelling."),
    ],
)
def test_nothing_intact_to_load(run_path: Path, executed, perdure_cli, flip, damage: Callable, message: str, state_of):
    damage(run_path, flip)
    before = state_of(run_path)
    result = perdure_cli("resume", run_path)

    assert (result.code, result.out) == (4, "")
    assert result.err.startswith("perdure: ")
    assert message in result.err
    assert (executed, state_of(run_path)) == ([], before)


def test_a_mistyped_directory_is_not_created(perdure_cli, tmp_path: Path):
    result = perdure_cli("resume", tmp_path / "rnu")

    assert result.code == 4
    assert result.err == f"perdure: {tmp_path}/rnu: no such directory. Check the spelling; `perdure ls` lists runs.\n"
    assert list(tmp_path.iterdir()) == []


def test_another_process_is_training_there(perdure_cli, run_path: Path, executed, locked: int, state_of):
    before = state_of(run_path)
    result = perdure_cli("resume", run_path)

    assert (result.code, result.out) == (5, "")
    assert f"{run_path}: another process is training this run: pid {locked} on " in result.err
    assert (executed, state_of(run_path)) == ([], before)


def test_a_directory_of_another_user_s_executes_nothing(perdure_cli, run_path: Path, executed, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: run_path.stat().st_uid + 1)
    result = perdure_cli("resume", run_path)

    assert (result.code, executed) == (2, [])
    assert result.err.startswith(f"perdure: {run_path}: belongs to another user")
    assert f"perdure resume {run_path} -- CMD" in result.err


def test_a_record_that_everybody_can_write_executes_nothing(perdure_cli, run_path: Path, executed):
    (run_path / "run.json").chmod(0o666)
    result = perdure_cli("resume", run_path)

    assert (result.code, executed) == (2, [])
    assert result.err.startswith(f"perdure: {run_path}/run.json: can be written by every user")


def test_one_s_own_command_needs_no_ownership(perdure_cli, run_path: Path, executed, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: run_path.stat().st_uid + 1)

    assert perdure_cli("resume", run_path, "--", "true").code == 0
    assert len(executed) == 1


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({"kind": "trainer", "name": "sac", "config": {}}, "trainer 'sac'; this perdure has: ppo, torch-ppo."),
        ({"kind": "wish"}, "its record does not tell how it was launched. Give the command yourself: perdure resume"),
        ({"kind": "script", "argv": ["x"], "cwd": "/nowhere/at/all"}, "/nowhere/at/all: the folder in which the run"),
        ({"kind": "script", "argv": ["no-such-program"], "cwd": "/"}, "no-such-program: cannot be executed"),
    ],
)
def test_a_record_that_leads_nowhere(perdure_cli, toy, tmp_path: Path, monkeypatch, launch: dict, message: str):
    toy.train(tmp_path / "run", stop_after=1, launch=launch)
    monkeypatch.chdir(tmp_path)
    result = perdure_cli("resume", tmp_path / "run")

    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_schedules_are_refused_where_nothing_depends_on_the_total(perdure_cli, stopped: Path):
    result = perdure_cli("resume", stopped, "--total-steps", 128, "--schedules", "keep")

    assert result.code == 2
    assert result.err == "perdure: --schedules: in a run of ppo nothing depends on the total; leave it out.\n"


@pytest.mark.parametrize("words", [["--keep-last", "3"], ["--keep-last", "0", "--", "my-python", "x.py"]])
def test_how_many_checkpoints_a_script_keeps_is_its_own_affair(perdure_cli, run_path: Path, executed, words):
    result = perdure_cli("resume", run_path, *words)

    assert (result.code, executed) == (2, [])
    message = "--keep-last is for runs of `perdure train`; a script has its own options: perdure resume RUN -- CMD …"
    assert result.err == f"perdure: {message}\n"


@pytest.mark.parametrize("number", ["-1", "two"])
def test_how_many_to_keep_is_a_natural_number(perdure_cli, run_path: Path, executed, number: str):
    result = perdure_cli("resume", run_path, "--keep-last", number)

    assert (result.code, executed) == (2, [])
    assert "--keep-last" in result.err


@pytest.mark.parametrize("words", [["--"], ["--", "true", "extra"]])
def test_resume_needs_a_directory(perdure_cli, words: list[str]):
    assert perdure_cli("resume", *words).code == 2


def test_an_empty_command_is_usage(perdure_cli, run_path: Path):
    result = perdure_cli("resume", run_path, "--")

    assert (result.code, result.err) == (2, "perdure: resume: no command after `--`.\n")
