"""The writer lock: one process a run, whoever dies how."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.errors import LockedError
from perdure.runs.lock import acquire

HOLD = """
import sys
from pathlib import Path
from perdure.runs.lock import acquire
lock = acquire(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""

HOLD_AND_FORK = """
import os, sys
from pathlib import Path
from perdure.runs.lock import acquire
lock = acquire(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    os.read(0, 1)  # outlives its parent, until the test closes the pipe
    os._exit(0)
print(child, flush=True)
os.read(int(sys.argv[2]), 1)
"""


@contextmanager
def holder(
    program: str, *arguments: str, pass_fds: tuple[int, ...] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that holds a lock, and the first line it printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()


def test_a_lock_is_taken_released_and_taken_again(tmp_path: Path):
    for _ in range(2):
        acquire(tmp_path / ".writer.lock").release()


def test_releasing_twice_releases_nobody_else_s_lock(tmp_path: Path):
    first = acquire(tmp_path / ".writer.lock")
    first.release()
    second = acquire(tmp_path / ".writer.lock")
    first.release()

    with pytest.raises(LockedError):
        acquire(tmp_path / ".writer.lock")
    second.release()


def test_this_process_cannot_take_it_twice(tmp_path: Path):
    lock = acquire(tmp_path / ".writer.lock")

    with pytest.raises(LockedError) as caught:
        acquire(tmp_path / ".writer.lock")

    assert str(caught.value) == (
        f"{tmp_path}: this process has the run open already. Call finish() or close() on that Run first."
    )
    assert isinstance(caught.value, BlockingIOError)
    lock.release()


def test_another_name_of_the_same_directory_is_the_same_lock(tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    lock = acquire(tmp_path / "run" / ".writer.lock")

    with pytest.raises(LockedError):
        acquire(tmp_path / "link" / ".writer.lock")
    lock.release()


def test_two_runs_do_not_stand_in_each_other_s_way(tmp_path: Path):
    locks = [acquire(tmp_path / name) for name in ("a", "b")]

    for lock in locks:
        lock.release()


def test_another_process_that_holds_it_is_named_by_pid_and_host(tmp_path: Path):
    path = tmp_path / ".writer.lock"
    with holder(HOLD, str(path)) as (process, line):
        assert line == "locked"
        with pytest.raises(LockedError) as caught:
            acquire(path)

        assert str(caught.value) == (
            f"{tmp_path}: another process is training this run: pid {process.pid} on {os.uname().nodename}. "
            "Stop it, or wait for it."
        )
        with pytest.raises(LockedError, match=f"pid {process.pid}"):
            acquire(path)  # the refused try took nothing away from the holder


def test_a_lock_of_a_killed_process_is_free_at_once(tmp_path: Path):
    path = tmp_path / ".writer.lock"
    with holder(HOLD, str(path)) as (process, _):
        process.kill()
        process.wait()
        acquire(path).release()


def test_a_child_that_outlives_its_killed_parent_does_not_keep_the_lock(tmp_path: Path):
    """Environment workers are forked and may survive; `flock` would stay locked through them."""
    path = tmp_path / ".writer.lock"
    read_end, write_end = os.pipe()
    try:
        with holder(HOLD_AND_FORK, str(path), str(read_end), pass_fds=(read_end,)) as (process, line):
            child = int(line)
            process.send_signal(signal.SIGKILL)
            process.wait()
            os.kill(child, 0)  # it is alive

            acquire(path).release()
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_forked_child_neither_holds_nor_releases_its_parent_s_lock(tmp_path: Path):
    path = tmp_path / ".writer.lock"
    program = f"""
import os
from pathlib import Path
from perdure.errors import LockedError
from perdure.runs.lock import acquire
path = Path({str(path)!r})
lock = acquire(path)
child = os.fork()
if child == 0:
    lock.release()
    try:
        acquire(path)
    except LockedError as error:
        os._exit(0 if f"pid {{os.getppid()}}" in str(error) else 3)
    os._exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "0"


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"pid": 1}'])
def test_an_unreadable_holder_is_said(tmp_path: Path, content: str):
    path = tmp_path / ".writer.lock"
    with holder(HOLD, str(path)):
        path.write_text(content)

        with pytest.raises(LockedError, match="its entry in the lock file cannot be read"):
            acquire(path)


def _remove(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    path.unlink()
    path.write_text("{}")


def _move(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


@pytest.mark.parametrize("change", [_remove, _replace, _move])
def test_a_lock_on_a_file_that_is_not_there_any_more_keeps_nobody_out_and_is_lost(
    tmp_path: Path, change: Callable[[Path], None]
):
    place = tmp_path / "x" / ".writer.lock"
    place.parent.mkdir()
    lock = acquire(place)
    lock.reassert()
    change(place)

    with pytest.raises(LockedError, match="was removed, moved or replaced, perhaps with the whole run"):
        lock.reassert()
    lock.release()
