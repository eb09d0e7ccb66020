"""More than one process at a run, and runs in unusual places."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.cli.verify import examine
from perdure.errors import LockedError, NoCheckpointError

TRAIN = """
import os, sys, time
import numpy as np
import perdure

path, until = sys.argv[1], int(sys.argv[2])
worker = 0
if "with a worker" in sys.argv:
    worker = os.fork() if "before" in sys.argv else 0
    if worker == 0 and "before" in sys.argv:
        time.sleep(600)
        os._exit(0)
run = perdure.Run(path, every=perdure.Every(updates=1), keep=perdure.Keep(last=2), background="background" in sys.argv)
value = run.restore(value=np.zeros(2000), fixed=np.arange(500.0)).value
if "with a worker" in sys.argv and "before" not in sys.argv:
    worker = os.fork()
    if worker == 0:
        time.sleep(600)
        os._exit(0)
for step in range(run.env_steps + 1, until + 1):
    value = value + 1
    run.boundary(env_steps=step, value=value, fixed=np.arange(500.0), metrics={"step": step})
    print(step, worker, flush=True)
if "and wait" in sys.argv:
    sys.stdin.read()
run.finish(value=value, fixed=np.arange(500.0))
"""


@contextmanager
def training(path: Path, until: int, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that trains there."""
    command = [sys.executable, "-c", TRAIN, str(path), str(until), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told_by(process: subprocess.Popen[str], step: int) -> int:
    """Waits for a step; returns the worker's pid."""
    assert process.stdout is not None
    for line in process.stdout:
        number, worker = map(int, line.split())
        if number == step:
            return worker
    raise AssertionError("the process ended before")


def train(path: Path, until: int) -> np.ndarray:
    with perdure.Run(path, every=perdure.Every(updates=1), keep=perdure.Keep(last=2)) as run:
        s = run.restore(value=np.zeros(2000), fixed=np.arange(500.0))
        value = s.value
        for step in range(run.env_steps + 1, until + 1):
            value = value + 1
            run.boundary(env_steps=step, value=value, fixed=np.arange(500.0), metrics={"step": step})
        run.finish(value=value, fixed=np.arange(500.0))
    return value


def content(path: Path) -> dict[str, bytes]:
    return {str(entry.relative_to(path)): entry.read_bytes() for entry in sorted(path.rglob("*")) if entry.is_file()}


def test_a_second_process_is_refused_changes_nothing_and_the_first_goes_on(tmp_path: Path) -> None:
    """The holder is named."""
    with training(tmp_path / "run", 3, "and wait") as process:
        told_by(process, 3)
        before = content(tmp_path / "run")
        with pytest.raises(LockedError, match=f"another process is training this run: pid {process.pid} on "):
            train(tmp_path / "run", 5)
        assert content(tmp_path / "run") == before
        _, _ = process.communicate("")
        assert process.returncode == 0

    assert (train(tmp_path / "run", 5) == 5).all()


def test_of_many_processes_that_begin_one_run_at_once_one_trains(tmp_path: Path) -> None:
    """The others are refused, whatever they saw before they had the lock."""
    command = [sys.executable, "-c", TRAIN, str(tmp_path / "run"), "3", "and wait"]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    processes = [subprocess.Popen(command, **pipes) for _ in range(4)]
    # The one that trains waits for its input to end; the others end by themselves.
    while sum(process.poll() is not None for process in processes) < 3:
        assert not any(process.poll() == 0 for process in processes)
    errors = [process.communicate()[1] for process in processes]

    assert sorted(process.returncode for process in processes) == [0, 1, 1, 1]
    assert sum("LockedError" in error for error in errors) == 3
    assert (train(tmp_path / "run", 4) == 4).all()
    assert (tmp_path / "run" / "lineage.jsonl").read_bytes().count(b'"started"') == 1


@pytest.mark.parametrize("forked", ["before", "after"])
def test_a_killed_run_whose_worker_lives_on_is_resumed_at_once(tmp_path: Path, forked: str) -> None:
    """Record locks die with the process that took them; a worker that inherited the descriptor holds nothing."""
    with training(tmp_path / "run", 3, "with a worker", forked, "and wait") as process:
        worker = told_by(process, 3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        try:
            assert os.kill(worker, 0) is None
            resumed = train(tmp_path / "run", 5)
        finally:
            os.kill(worker, signal.SIGKILL)

    assert (resumed == 5).all()
    assert [row["step"] for row in perdure.Run(tmp_path / "run").metrics_rows()] == [1, 2, 3, 4, 5]


def read_newest(run: Path) -> tuple[str, str]:
    """What a reader without a lock makes of the newest checkpoint: its step, or that it is gone."""
    names = sorted(path.name for path in (run / "checkpoints").glob("step_*"))
    if not names:
        return "gone", ""
    try:
        saved = perdure.read(run / "checkpoints" / names[0])  # the oldest: it is removed next
    except NoCheckpointError as error:
        return "gone", str(error)
    step = int(names[0].removeprefix("step_"))
    assert (saved["value"] == step).all()
    return "read", names[0]


@pytest.mark.full
@pytest.mark.parametrize("mode", ["at once", "background"])
def test_a_reader_during_saves_and_retention_sees_whole_checkpoints_or_that_they_are_gone(
    tmp_path: Path, mode: str
) -> None:
    """Never damage: a directory that has a final name is whole until it has another."""
    seen: dict[str, int] = {"read": 0, "gone": 0}
    steps = set()
    with training(tmp_path / "run", 150, mode) as process:
        told_by(process, 1)
        while process.poll() is None:
            kind, step = read_newest(tmp_path / "run")
            seen[kind] += 1
            steps.add(step)

    assert process.returncode == 0
    assert seen["read"] > 10
    assert len(steps) > 5


def test_a_checkpoint_that_is_removed_while_it_is_read_is_gone_and_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each call of the reader: the three errors stay three."""
    from perdure.store.filesystem import FileSystem
    from perdure.store.local import LocalStore

    for call in ("file_sizes", "read_file", "read_file_into"):
        perdure.save(tmp_path / call, x=np.ones(3))
        original = getattr(FileSystem, call)

        def removing(self: FileSystem, path: Path, *rest: Any, original: Any = original, call: str = call) -> Any:
            if (tmp_path / call).exists():
                LocalStore(tmp_path, tmp_path / "damaged").remove(call)
            return original(self, path, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(FileSystem, call, removing)
            with pytest.raises(NoCheckpointError, match="was removed while it was read"):
                perdure.read(tmp_path / call)


def test_a_run_that_is_copied_or_moved_goes_on_there(tmp_path: Path) -> None:
    """Nothing in it holds its own path; a copy is a run of its own from then on."""
    train(tmp_path / "first", 2)
    copied = Path(shutil.copytree(tmp_path / "first", tmp_path / "copied"))
    (tmp_path / "first").rename(tmp_path / "moved")

    assert (train(copied, 4) == 4).all()
    assert (train(tmp_path / "moved", 3) == 3).all()
    assert examine(str(copied)).sound
    assert examine(str(tmp_path / "moved")).sound
    assert not (tmp_path / "first").exists()


def long_path(below: Path) -> Path:
    """A path of at least 200 characters with spaces and letters outside of ASCII."""
    path = below
    while len(str(path)) < 200:
        path = path / "Läufe für später – 強化学習 'a b'\t$HOME;*"
    return path


def test_a_long_path_with_spaces_and_letters_of_any_kind(tmp_path: Path) -> None:
    path = long_path(tmp_path) / "run"
    train(path, 1)
    (path / "checkpoints" / "step_0000000001" / "value.safetensors").unlink()

    assert (train(path, 3) == 3).all()
    assert len(str(path)) > 200
    assert examine(str(path)).sound
    assert (perdure.read(path / "checkpoints" / "step_0000000003")["value"] == 3).all()
    with training(path, 4) as process:
        told_by(process, 4)
        process.communicate()
    assert process.returncode == 0


READ_ONLY = """
import sys
import numpy as np
import perdure
from perdure.cli.main import main
run = sys.argv[1]
assert (perdure.read(f"{run}/checkpoints/step_0000000002")["value"] == 2).all()
assert main(["verify", run]) == 0
assert main(["show", run]) == 0
assert main(["prune", run, "--last", "1", "--dry-run"]) == 0
try:
    with perdure.Run(run) as opened:
        opened.restore(value=np.zeros(2000), fixed=np.arange(500.0))
except OSError as error:
    print("refused:", error)
"""


def test_a_run_on_a_read_only_disk_can_be_read_and_not_resumed(tmp_path: Path) -> None:
    """Really read-only, for root too: a bind mount in a namespace of its own."""
    train(tmp_path / "run", 2)
    mounted = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$1"'
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    try:
        probe = subprocess.run(
            [*namespace, 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"', "sh", str(tmp_path / "run")],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        pytest.skip(f"no namespaces: {error}")
    if probe.returncode:
        pytest.skip(f"no mounts in a user namespace: {probe.stderr.strip()}")
    before = content(tmp_path / "run")
    command = [*namespace, mounted, "sh", str(tmp_path / "run"), sys.executable, READ_ONLY]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    assert "refused: [Errno 30] Read-only file system" in result.stdout
    assert content(tmp_path / "run") == before
    assert (train(tmp_path / "run", 3) == 3).all()


def test_stray_files_are_ignored_by_loading_and_reported_by_verify(tmp_path: Path) -> None:
    """Such as `.nfs…`, which network file systems leave where a file is open."""
    train(tmp_path / "run", 2)
    checkpoints = tmp_path / "run" / "checkpoints"
    strays = [
        checkpoints / "step_0000000002" / ".nfs0000000000a1b2c3",
        checkpoints / "step_0000000002" / "Thumbs.db",
        checkpoints / ".nfs0000000000000001",
        checkpoints / "notes.txt",
    ]
    for stray in strays:
        stray.write_bytes(b"stray")

    assert (perdure.read(checkpoints / "step_0000000002")["value"] == 2).all()
    report = examine(str(tmp_path / "run"))
    assert report.sound
    for stray in strays:
        assert any(stray.name in note for note in report.notes), stray
    assert (train(tmp_path / "run", 3) == 3).all()
    assert all(stray.exists() for stray in strays)


def test_leftovers_that_cannot_be_removed_stop_no_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is open elsewhere on a network disk comes back as `.nfs…` and keeps its directory from going."""
    train(tmp_path / "run", 2)
    leftover = tmp_path / "run" / "checkpoints" / ".removed.00"
    leftover.mkdir()

    def busy(path: Path) -> None:
        raise OSError(39, "Directory not empty", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("perdure.store.filesystem.shutil.rmtree", busy)
        with perdure.Run(tmp_path / "run", every=perdure.Every(updates=1)) as run:
            run.restore(value=np.zeros(2000), fixed=np.arange(500.0))
    assert "could not be removed ([Errno 39] Directory not empty" in run.notices[0]
    assert leftover.exists()

    assert (train(tmp_path / "run", 3) == 3).all()
    assert not leftover.exists()


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest checkpoint is the one with the greatest step, whatever its time."""

    class Backwards(datetime):
        hours = 0

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Backwards":
            cls.hours += 1
            return cls.fromtimestamp((datetime(2026, 1, 1, tzinfo=UTC) - timedelta(hours=cls.hours)).timestamp(), tz)

    for module in ("perdure.checkpoint.save", "perdure.runs.lineage", "perdure.runs.journal", "perdure.runs.record"):
        monkeypatch.setattr(f"{module}.datetime", Backwards)
    train(tmp_path / "run", 3)
    os.utime(tmp_path / "run" / "checkpoints" / "step_0000000003", (0, 0))

    assert (train(tmp_path / "run", 5) == 5).all()
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == [
        "step_0000000004",
        "step_0000000005",
    ]
    assert examine(str(tmp_path / "run")).sound
    assert Backwards.hours > 10
