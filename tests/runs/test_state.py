"""Running, finished, stopped, crashed: as each way to end leaves a run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.errors import LockedError
from perdure.runs.directory import RunDirectory
from perdure.runs.fork import fork
from perdure.runs.lock import acquire, is_held
from perdure.runs.state import state_of


def state(path: Path, *steps: int | None) -> str | None:
    return state_of(RunDirectory(path), *steps)


def opened(path: Path) -> perdure.Run:
    run = perdure.Run(path, every=perdure.Every(updates=1), keep=None, background=False)
    run.restore(x=0)
    return run


def test_running_and_the_lock_is_still_held_afterwards(tmp_path: Path):
    run = opened(tmp_path)

    assert (state(tmp_path), state(tmp_path)) == ("running", "running")
    run.boundary(env_steps=1, x=1)
    assert _elsewhere(tmp_path) == "running"
    run.close()
    assert state(tmp_path) == "stopped"


def _elsewhere(path: Path) -> str:
    """The state as another process sees it, which holds nothing."""
    program = (
        "import sys; from pathlib import Path; from perdure.runs.state import state_of\n"
        "from perdure.runs.directory import RunDirectory; print(state_of(RunDirectory(Path(sys.argv[1]))))"
    )
    return subprocess.check_output([sys.executable, "-c", program, str(path)], text=True).strip()


def test_looking_turns_no_writer_away(tmp_path: Path):
    """The look of another process takes no lock, not even a shared one for an instant."""
    opened(tmp_path).close()
    program = (
        "import sys; from pathlib import Path; from perdure.runs.lock import is_held\n"
        "print('looking', flush=True)\nwhile True: is_held(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / ".writer.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as looker:
        assert looker.stdout is not None
        looker.stdout.readline()
        for _ in range(2000):
            acquire(tmp_path / ".writer.lock").release()
        looker.kill()


def test_a_lock_that_is_held_elsewhere_is_seen_and_stays(tmp_path: Path):
    program = (
        "import sys; from pathlib import Path; from perdure.runs.lock import acquire\n"
        "lock = acquire(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    path = tmp_path / ".writer.lock"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert (is_held(path), is_held(path)) == (True, True)
        with pytest.raises(LockedError):
            acquire(path)
        holder.communicate()
    assert not is_held(path)


def test_there_is_no_lock_before_a_run_is_opened(tmp_path: Path):
    assert not is_held(tmp_path / ".writer.lock")
    assert state(tmp_path) is None


def test_finished(tmp_path: Path):
    run = opened(tmp_path)
    run.finish()

    assert state(tmp_path) == "finished"


def test_at_the_horizon_it_is_finished_though_it_ended_without_a_word(tmp_path: Path):
    run = opened(tmp_path)
    run.boundary(env_steps=10, x=1)
    run.close()

    assert (state(tmp_path, 10, 10), state(tmp_path, 10, 20)) == ("finished", "stopped")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no"), "crashed"),
        (ValueError(), "crashed"),
        (KeyboardInterrupt(), "stopped"),
        (SystemExit(75), "stopped"),
    ],
)
def test_an_exception_is_a_crash_unless_somebody_wanted_it(tmp_path: Path, error: BaseException, expected: str):
    with pytest.raises(type(error)), opened(tmp_path):
        raise error

    assert state(tmp_path) == expected


def test_a_killed_one_crashed_and_stopped_after_the_next_stop(tmp_path: Path):
    program = (
        "import os, signal, sys, perdure\n"
        "run = perdure.Run(sys.argv[1], every=perdure.Every(updates=1), background=False); run.restore(x=0)\n"
        "run.boundary(env_steps=1, x=1); os.kill(os.getpid(), signal.SIGKILL)"
    )
    code = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode

    assert code == -signal.SIGKILL
    assert state(tmp_path) == "crashed"
    opened(tmp_path).close()
    assert state(tmp_path) == "stopped"


def test_a_signal_stops_a_run_also_if_it_was_killed_before_it_had_left(tmp_path: Path):
    program = (
        "import os, signal, sys, perdure\n"
        "run = perdure.Run(sys.argv[1], every=perdure.Every(updates=1), background=False); run.restore(x=0)\n"
        "os.kill(os.getpid(), signal.SIGTERM); run.boundary(env_steps=1, x=1)"
    )
    code = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, capture_output=True).returncode

    assert code == 75
    assert state(tmp_path) == "stopped"
    lineage = tmp_path / "lineage.jsonl"
    lines = lineage.read_bytes().splitlines(keepends=True)
    while b'"stopped"' in lines[-1]:
        lines.pop()
    lineage.write_bytes(b"".join(lines))
    assert state(tmp_path) == "stopped"


def test_many_commits_after_the_opening_are_looked_past(tmp_path: Path):
    """The tail tells of commits alone."""
    run = opened(tmp_path)
    for step in range(1, 4):
        run.boundary(env_steps=step, x=step)
    run.close()
    lineage = tmp_path / "lineage.jsonl"
    lines = lineage.read_bytes().splitlines(keepends=True)
    assert b'"stopped"' in lines[-1]

    lineage.write_bytes(lines[0] + lines[1] * 2000)
    assert state(tmp_path) == "crashed"
    lineage.write_bytes(lines[-1] + lines[1] * 2000)
    assert state(tmp_path) == "stopped"


def test_a_fork_that_nobody_has_opened_is_stopped(tmp_path: Path):
    opened(tmp_path / "a").close()
    fork(tmp_path / "a", 0, tmp_path / "b")

    assert state(tmp_path / "b") == "stopped"


def test_a_lost_or_unreadable_lineage_tells_nothing(tmp_path: Path):
    opened(tmp_path).close()
    (tmp_path / "lineage.jsonl").write_bytes(b"\xff\n")
    assert state(tmp_path) is None
    (tmp_path / "lineage.jsonl").unlink()
    assert state(tmp_path) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_lock_that_may_not_be_read_tells_nothing(tmp_path: Path):
    opened(tmp_path).close()
    (tmp_path / ".writer.lock").chmod(0)

    assert state(tmp_path) is None
