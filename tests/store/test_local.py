"""The local store: the commit rule, the order of its operations, and what a failing disk leaves behind.

What every store promises stands in `test_store.py`.
"""

import errno
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock

import pytest

from perdure.store.filesystem import FileSystem
from perdure.store.local import STAGING_PREFIX, LocalStore
from perdure.store.store import Bytes

FILES = ("a.safetensors", "b.safetensors", "MANIFEST.json")


class Recorded(FileSystem):
    """The real file system, which writes down every operation that changes the disk, and can fail one of them."""

    def __init__(self, fails: Callable[[str, Path], bool] = lambda operation, path: False) -> None:
        self.operations: list[tuple[str, str]] = []
        self._fails = fails
        self._lock = Lock()

    def note(self, operation: str, path: Path) -> None:
        name = "STAGING" if path.name.startswith(STAGING_PREFIX) else path.name
        with self._lock:
            self.operations.append((operation, name))
        if self._fails(operation, path):
            raise OSError(errno.ENOSPC, f"no space for {operation}")

    def make_new_directory(self, path: Path) -> None:
        self.note("make", path)
        super().make_new_directory(path)

    def write_file(self, path: Path, pieces: Iterable[Bytes]) -> None:
        super().write_file(path, pieces)
        self.note("write", path)

    def sync_file(self, path: Path) -> None:
        super().sync_file(path)
        self.note("sync", path)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.note("sync", path)

    def rename(self, source: Path, target: Path) -> None:
        self.note("rename", target)
        super().rename(source, target)

    def remove_tree(self, path: Path) -> None:
        self.note("remove", path)
        super().remove_tree(path)


def store_on(path: Path, filesystem: FileSystem) -> LocalStore:
    (path / "checkpoints").mkdir(exist_ok=True)
    return LocalStore(path / "checkpoints", path / "damaged", filesystem)


def commit(store: LocalStore, name: str = "step") -> None:
    with store.stage(name) as staging:
        for file in FILES:
            staging.write(file, [file.encode()])
        staging.commit()


def test_everything_is_synced_before_the_rename_and_the_parent_after_it(tmp_path: Path):
    disk = Recorded()

    commit(store_on(tmp_path, disk))

    files = disk.operations[1:7]  # a file is synced while the next one is written
    assert disk.operations[0] == ("make", "STAGING")
    assert [(done, file) for done, file in files if done == "write"] == [("write", file) for file in FILES]
    assert sorted(file for done, file in files if done == "sync") == sorted(FILES)
    assert all(files.index(("write", file)) < files.index(("sync", file)) for file in FILES)
    assert disk.operations[7:] == [("sync", "STAGING"), ("rename", "step"), ("sync", "checkpoints")]


def test_setting_aside_is_durable_in_both_directories(tmp_path: Path):
    disk = Recorded()
    store = store_on(tmp_path, disk)
    commit(store)
    disk.operations.clear()

    assert store.set_aside("step") == str(tmp_path / "damaged" / "step")
    renamed = disk.operations.index(("rename", "step"))
    assert {("sync", "damaged"), ("sync", "checkpoints")} <= set(disk.operations[renamed:])


BEFORE_THE_RENAME = [
    ("make", "STAGING"),
    *(("write", file) for file in FILES),
    *(("sync", file) for file in FILES),
    ("sync", "STAGING"),
    ("rename", "step"),
]


@pytest.mark.parametrize(("operation", "name"), BEFORE_THE_RENAME)
def test_an_operation_that_fails_before_the_commit_leaves_nothing(tmp_path: Path, operation: str, name: str):
    """The error surfaces, nothing is visible, the staging directory is gone, and what was there is untouched."""
    commit(store_on(tmp_path, FileSystem()), "earlier")
    failing = Recorded(
        lambda done, path: (done, "STAGING" if path.name.startswith(".") else path.name) == (operation, name)
    )
    store = store_on(tmp_path, failing)

    with pytest.raises(OSError, match=f"no space for {operation}") as caught:
        commit(store)

    assert caught.value.errno == errno.ENOSPC
    assert (operation, name) in failing.operations
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["earlier"]
    assert store.files("earlier") == {file: len(file) for file in FILES}


def test_a_parent_that_cannot_be_synced_leaves_nothing_visible(tmp_path: Path):
    """The protocol: an OSError out of `commit` means that nothing is visible."""
    failing = Recorded(lambda done, path: (done, path.name) == ("sync", "checkpoints"))
    store = store_on(tmp_path, failing)

    with pytest.raises(OSError, match="no space for sync"):
        commit(store)

    assert store.names() == []


def test_no_file_is_synced_again_after_a_sync_failed(tmp_path: Path):
    """After a failed fsync the pages may be gone and marked clean: a retry would report a success that is none."""
    failing = Recorded(lambda done, path: (done, path.name) == ("sync", "a.safetensors"))

    with pytest.raises(OSError, match="no space for sync"):
        commit(store_on(tmp_path, failing))

    assert failing.operations.count(("sync", "a.safetensors")) == 1
    assert ("rename", "step") not in failing.operations


def test_a_staging_directory_that_cannot_be_removed_hides_no_error(tmp_path: Path):
    """The error of the write comes out; the next holder of the lock removes the leftover."""
    failing = Recorded(lambda done, path: done == "remove" or (done, path.name) == ("write", "b.safetensors"))

    with pytest.raises(OSError, match="no space for write"):
        commit(store_on(tmp_path, failing))

    store = store_on(tmp_path, FileSystem())
    assert store.names() == []
    assert len(store.remove_leftovers()) == 1


def test_leftovers_of_a_killed_writer_are_removed_and_named(tmp_path: Path):
    store = store_on(tmp_path, FileSystem())
    commit(store)
    for name in (".staging.00ff", ".staging.aa"):
        (tmp_path / "checkpoints" / name).mkdir()
        (tmp_path / "checkpoints" / name / "a.safetensors").write_bytes(b"half")

    assert store.names() == ["step"]
    assert store.remove_leftovers() == [".staging.00ff", ".staging.aa"]
    assert store.remove_leftovers() == []
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step"]


def test_files_and_links_among_the_entries_are_no_entries(tmp_path: Path):
    store = store_on(tmp_path, FileSystem())
    commit(store)
    (tmp_path / "checkpoints" / "notes.txt").write_text("mine")
    (tmp_path / "checkpoints" / "link").symlink_to(tmp_path / "checkpoints" / "step")

    assert store.names() == ["step"]


@pytest.mark.parametrize("kind", ["file", "empty directory", "directory", "dangling link"])
def test_whatever_stands_at_the_name_is_kept(tmp_path: Path, kind: str):
    store = store_on(tmp_path, FileSystem())
    target = tmp_path / "checkpoints" / "step"
    match kind:
        case "file":
            target.write_text("mine")
        case "dangling link":
            target.symlink_to(tmp_path / "nowhere")
        case _:
            target.mkdir()
    if kind == "directory":
        (target / "mine").write_text("mine")

    with pytest.raises(FileExistsError):
        commit(store)

    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step"]
    match kind:
        case "file":
            assert target.read_text() == "mine"
        case "dangling link":
            assert target.is_symlink()
        case _:
            assert [path.name for path in target.iterdir()] == (["mine"] if kind == "directory" else [])
