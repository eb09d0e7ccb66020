"""`prove` and `audit` that are ended by a signal leave no process behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure.cli.ending import unwinding

SCRIPT = """
import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(99)
"""


@pytest.mark.full
@pytest.mark.parametrize("verb", ["prove", "audit"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_the_script_ends_too(verb: str, number: signal.Signals, tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "perdure", verb, "--", sys.executable, "train.py", "pid"]
    told = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    process = subprocess.Popen(command, cwd=tmp_path, env=told, stderr=subprocess.PIPE, text=True)
    pid = int(_wait_for(tmp_path / "pid"))

    process.send_signal(number)
    _, said = process.communicate(timeout=60)

    assert process.returncode == (130 if number == signal.SIGINT else 128 + number)
    left = list((tmp_path / "tmp").iterdir())
    assert [str(folder) in said for folder in left] == ([True] if verb == "prove" else [])
    deadline = time.monotonic() + 20
    while _is_running(pid):
        assert time.monotonic() < deadline, "the script is still there"


def test_signals_that_somebody_handles_or_ignores_are_left_alone():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with unwinding():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            with pytest.raises(SystemExit, match=r"^143$"):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def _wait_for(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} never comes"
    return path.read_text()


def _is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()  # a zombie: nobody has waited for it yet
    except FileNotFoundError:
        return False
