"""The background writer: one job in flight, errors kept for the next call, and an exit that waits."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import perdure
from perdure.checkpoint.writer import BackgroundWriter
from perdure.errors import CommitError


def failing(error: BaseException) -> None:
    raise error


def test_a_job_runs_in_a_thread_of_its_own() -> None:
    writer, threads = BackgroundWriter(), []
    writer.submit(lambda: threads.append(threading.current_thread()))
    writer.wait()

    assert threads[0] is not threading.current_thread()
    assert not writer.is_busy
    writer.close()
    assert not threads[0].is_alive()


def test_a_second_job_waits_for_the_first() -> None:
    """One in flight: so that at most one snapshot is held beside the live state."""
    writer, may_end, order = BackgroundWriter(), threading.Event(), []

    def first() -> None:
        may_end.wait()
        order.append("first")

    writer.submit(first)
    second = threading.Thread(target=lambda: writer.submit(lambda: order.append("second")))
    second.start()
    assert writer.is_busy
    assert second.is_alive()
    assert order == []
    may_end.set()
    second.join()
    writer.wait()

    assert order == ["first", "second"]


def test_an_error_comes_out_of_the_next_call_once() -> None:
    for ask in ("wait", "submit", "raise_error"):
        writer = BackgroundWriter()
        writer.submit(lambda: failing(CommitError("mine")))
        while writer.is_busy:
            pass
        with pytest.raises(CommitError, match="mine"):
            writer.submit(lambda: None) if ask == "submit" else getattr(writer, ask)()
        writer.raise_error()
        writer.wait()


def test_whatever_the_job_raises_comes_out() -> None:
    """Also what is no Exception."""
    writer = BackgroundWriter()
    writer.submit(lambda: failing(KeyboardInterrupt("mine")))
    with pytest.raises(KeyboardInterrupt, match="mine"):
        writer.wait()


def test_asking_for_errors_does_not_wait() -> None:
    writer, may_end = BackgroundWriter(), threading.Event()
    writer.submit(may_end.wait)

    writer.raise_error()
    assert writer.is_busy
    may_end.set()
    writer.wait()


def test_a_failed_job_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """CASES 13: a script that ends without asking has been told."""
    writer = BackgroundWriter()
    writer.submit(lambda: failing(CommitError("mine")))
    with pytest.raises(CommitError):
        writer.wait()

    assert "a checkpoint failed in the background: mine" in caplog.text


LEAVES = """
import sys, time
from concurrent.futures import thread
import numpy as np
import perdure
from perdure.store.filesystem import FileSystem

write = FileSystem.write_file
main_has_ended = sys.argv[2] == "after the end"

def slow(self, path, pieces):
    while main_has_ended and path.name == "x.safetensors" and not thread._shutdown:
        time.sleep(0.01)
    write(self, path, pieces)

run = perdure.Run(sys.argv[1], every=perdure.Every(updates=1))
run.restore(x=np.zeros(100), y=np.zeros(100))
FileSystem.write_file = slow
run.boundary(env_steps=1, x=np.ones(100), y=np.ones(100))
if sys.argv[3] == "raising":
    raise ValueError("mine")
"""


@pytest.mark.parametrize(
    # An exception that nobody catches waits for the commit before Python tells of it, so never until after the end.
    ("when", "end"),
    [("at once", "returning"), ("after the end", "returning"), ("at once", "raising")],
)
def test_the_interpreter_s_exit_waits_for_the_commit_in_flight(tmp_path: Path, when: str, end: str) -> None:
    """Even if its first file is written when the interpreter is ending and starts no threads any more."""
    command = [sys.executable, "-c", LEAVES, str(tmp_path / "run"), when, end]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert result.returncode == (1 if end == "raising" else 0), result.stderr
    assert ("ValueError: mine" in result.stderr) == (end == "raising")
    assert "failed" not in result.stderr
    saved = perdure.read(tmp_path / "run" / "checkpoints" / "step_0000000001")
    assert saved["x"].tolist() == [1.0] * 100
    assert saved["y"].tolist() == [1.0] * 100


LEAVES_ON_A_FULL_DISK = """
import sys
import perdure
from perdure.store.filesystem import FileSystem
run = perdure.Run(sys.argv[1], every=perdure.Every(updates=1))
run.restore(x=0)
FileSystem.free_bytes = lambda self, path: 0
run.boundary(env_steps=1, x=1)
"""


def test_an_exit_without_finish_tells_what_failed(tmp_path: Path) -> None:
    """CASES 13: nobody asks any more, so it is said on stderr."""
    command = [sys.executable, "-c", LEAVES_ON_A_FULL_DISK, str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)

    assert "a checkpoint failed in the background: checkpoint step_0000000001 was not committed" in result.stderr
