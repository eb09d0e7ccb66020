"""A full disk: refused before anything is written where that can be foreseen, and harmless where it cannot."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import perdure
from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.save import SPARE_BYTES, About, save
from perdure.errors import CommitError
from perdure.store.filesystem import FileSystem
from perdure.store.local import LocalStore
from perdure.tree.leaves import Array
from perdure.tree.snapshot import Component, Snapshot


class NearlyFull(FileSystem):
    """A disk with so many bytes left; nothing may be written to it."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.written: list[str] = []

    def free_bytes(self, path: Path) -> int:
        return self.free

    def write_file(self, path: Path, pieces: object) -> None:
        self.written.append(path.name)
        super().write_file(path, pieces)  # type: ignore[arg-type]


def snapshot_of(number: int, size: int) -> Snapshot:
    array = np.full(size, number, np.uint8)
    return Snapshot({"x": Component("dict", {"w": Array(array)})}, number, number, number)


def test_a_checkpoint_that_cannot_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    disk = NearlyFull(SPARE_BYTES + 999_999)
    store = LocalStore(tmp_path / "checkpoints", tmp_path / "damaged", disk)
    save(store, "small", snapshot_of(1, 1000), About())
    disk.written.clear()

    with pytest.raises(CommitError, match=r"large was not committed: it needs 1,000,\d+ bytes and [\d,]+ to spare"):
        save(store, "large", snapshot_of(2, 1_000_000), About())

    assert disk.written == []
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["small"]
    open_checkpoint(store, "small")


def test_what_is_shared_needs_no_space(tmp_path: Path) -> None:
    """The next checkpoint of a large part that does not change fits on a disk that has no room for another."""
    disk = NearlyFull(1 << 40)
    store = LocalStore(tmp_path / "checkpoints", tmp_path / "damaged", disk)
    first = save(store, "1", snapshot_of(1, 1_000_000), About())
    disk.free = SPARE_BYTES + 100_000

    again = save(store, "2", snapshot_of(1, 1_000_000), About(), first)

    assert again.written_bytes < 10_000
    open_checkpoint(store, "2")


def test_a_run_says_that_the_disk_is_full_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = perdure.Run(tmp_path / "run", every=perdure.Every(updates=1), background=False)
    value = run.restore(value=np.zeros(1000)).value
    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "free_bytes", lambda self, path: 1000)
        with pytest.raises(CommitError, match="the disk has 1,000 left"):
            run.boundary(env_steps=1, value=value + 1)
    run.boundary(env_steps=2, value=value + 2)
    run.finish(value=value + 2)

    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == [
        "step_0000000000",
        "step_0000000002",
    ]


ON_A_SMALL_DISK = """
import errno, os, sys
from pathlib import Path
import numpy as np
import perdure
from perdure.store.filesystem import FileSystem

FileSystem.free_bytes = lambda self, path: 1 << 40   # so that the disk itself has to say no
here = Path(sys.argv[1])
background = sys.argv[2] == "background"
filler = here / "filler"

run = perdure.Run(here / "run", every=perdure.Every(updates=1), keep=perdure.Keep(last=1), background=background)
run.restore(value=np.zeros(1000))
run.boundary(env_steps=1, value=np.full(1000, 1.0), metrics={"x": 1})
run._opened("test").committer.wait()
errors = 0
for left in (0, 1, 2, 3, 5):                          # pages that stay free
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
        file.truncate(max(0, file.tell() - 4096 * left))
    step = run.env_steps + 1
    try:
        run.boundary(env_steps=step, value=np.full(1000, float(step)), metrics={"x": step})
        run._opened("test").committer.wait()
    except OSError as error:
        errors += 1
        assert "No space left" in str(error), error
        assert isinstance(error, perdure.CommitError) or left == 0, error
    intact = sorted((here / "run" / "checkpoints").glob("step_*"))
    assert intact
    for checkpoint in intact:
        perdure.read(checkpoint)
    filler.unlink()
last = run.env_steps + 1
run.boundary(env_steps=last, value=np.full(1000, float(last)), metrics={"x": last})
run.finish(value=np.full(1000, float(last)))
assert errors >= 3, errors

again = perdure.Run(here / "run", every=perdure.Every(updates=1))
assert (again.restore(value=np.zeros(1000)).value == last).all()
assert not [notice for notice in again.notices if "aside" in notice], again.notices
again.close()
from perdure.runs.lineage import read_lineage
read_lineage(here / "run" / "lineage.jsonl")
assert not [path.name for path in (here / "run" / "checkpoints").iterdir() if path.name.startswith(".")]
print("survived", errors)
"""

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def small_disk_refused() -> str | None:
    """Why a tmpfs cannot be mounted in a namespace of its own here; None if it can."""
    try:
        command = [*NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return result.stderr.strip() or f"exit code {result.returncode}" if result.returncode else None


@pytest.mark.parametrize("mode", ["at once", "background"])
def test_a_disk_that_really_is_full(tmp_path: Path, mode: str) -> None:
    """Real ENOSPC, with no, one, two … pages left: typed; the old one loads, and it goes on when there is room."""
    refused = small_disk_refused()
    if refused:
        pytest.skip(f"no tmpfs in a user namespace: {refused}")
    script = tmp_path / "script.py"
    script.write_text(ON_A_SMALL_DISK)
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" "$3" "$1" "$4"'
    command = [*NAMESPACE, "sh", "-c", mounted, "sh", str(disk), sys.executable, str(script), mode]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    assert "survived" in result.stdout
