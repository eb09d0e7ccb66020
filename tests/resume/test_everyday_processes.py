"""What real scripts do with processes: copied directories, dropped runs, forks, the interpreter's end, several runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.errors import LockedError

EACH = perdure.Every(updates=1)


def other_process(directory: Path) -> "subprocess.CompletedProcess[str]":
    """A second process that opens the run."""
    program = f"import perdure\nwith perdure.Run({str(directory)!r}) as run: run.restore(x=0)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_a_lock_that_a_copy_of_the_directory_freed_is_taken_again(tmp_path: Path):
    """`shutil.copytree` reads the lock file, and closing it frees a record lock."""
    with perdure.Run(tmp_path / "x", every=EACH, background=False) as run:
        run.restore(x=0)
        shutil.copytree(tmp_path / "x", tmp_path / "backup")
        run.boundary(env_steps=1, x=1)
        assert "another process is training this run" in other_process(tmp_path / "x").stderr


def test_a_lock_that_went_to_another_process_meanwhile_stops_this_one(tmp_path: Path):
    """Before anything is written."""
    program = (
        "import sys; from pathlib import Path; from perdure.runs.lock import acquire\n"
        "lock = acquire(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with perdure.Run(tmp_path / "x", every=EACH, background=False) as run:
        run.restore(x=0)
        shutil.copytree(tmp_path / "x", tmp_path / "backup")
        command = [sys.executable, "-c", program, str(tmp_path / "x" / ".writer.lock")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as thief:
            assert thief.stdout is not None
            thief.stdout.readline()
            with pytest.raises(LockedError, match="the lock was lost"):
                run.boundary(env_steps=1, x=1)
            thief.communicate()
    assert (tmp_path / "x" / "checkpoints" / "step_0000000000").is_dir()


def test_a_run_that_is_dropped_frees_its_lock(tmp_path: Path):
    """A notebook's cell that runs again."""
    run = perdure.Run(tmp_path / "x")
    run.restore(x=0)
    del run

    with perdure.Run(tmp_path / "x") as again:
        again.restore(x=0)
        assert again.resumed


def test_finish_at_the_interpreter_s_end_saves(tmp_path: Path):
    """From `atexit` no thread takes jobs any more; the state is written all the same."""
    program = (
        f"import atexit, perdure\nrun = perdure.Run({str(tmp_path / 'x')!r})\nrun.restore(x=0)\n"
        "atexit.register(lambda: run.finish(env_steps=7, x=7))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

    assert perdure.read(tmp_path / "x" / "checkpoints" / "step_0000000007")["x"] == 7


def test_a_forked_child_may_not_write_and_leaves_in_peace(tmp_path: Path):
    """Neither a row nor a checkpoint; leaving the context neither hangs nor frees the parent's lock."""
    program = f"""
import os, perdure
with perdure.Run({str(tmp_path / "x")!r}, every=perdure.Every(updates=1)) as run:
    run.restore(x=0)
    run.boundary(env_steps=1, x=1, metrics={{"a": 1}})
    child = os.fork()
    if child == 0:
        try:
            run.boundary(env_steps=2, x=2, metrics={{"a": 2}})
        except perdure.UsageError as error:
            print(error, flush=True)
    else:
        _, status = os.waitpid(child, 0)
        run.boundary(env_steps=2, x=3, metrics={{"a": 3}})
        print("child", status)
if child == 0:
    os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.splitlines() == [
        "boundary: a forked child may not write; only the process that opened the run may.",
        "child 0",
    ]
    rows = (tmp_path / "x" / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == 2


def test_perdure_resume_insists_for_its_own_run_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A script that opens several runs may begin the others."""
    monkeypatch.setenv("PERDURE_MODE", "resume")
    monkeypatch.setenv("PERDURE_RUN_DIR", str(tmp_path / "a"))
    with pytest.raises(perdure.NoRunError), perdure.Run(tmp_path / "a") as run:
        run.restore(x=1)
    with perdure.Run(tmp_path / "b") as run:
        run.restore(x=1)
    assert os.listdir(tmp_path) == ["b"]
