"""The port to the file system: no operation does more or less than its name."""

from pathlib import Path

import numpy as np
import pytest

from perdure.store.filesystem import FileSystem

DISK = FileSystem()
DESCRIPTORS = Path("/proc/self/fd")


def names(path: Path) -> list[str]:
    """What stands in a directory."""
    return sorted(entry.name for entry in path.iterdir())


def test_a_file_is_written_piece_by_piece_and_read_back(tmp_path: Path):
    DISK.write_file(tmp_path / "x", [b"ab", np.arange(2, dtype=np.uint16).data, b""])

    data = DISK.read_file(tmp_path / "x")

    assert data.tobytes() == b"ab" + np.arange(2, dtype=np.uint16).tobytes()
    assert data.flags.writeable


def test_an_empty_file_reads_as_no_bytes(tmp_path: Path):
    DISK.write_file(tmp_path / "x", [])

    assert DISK.read_file(tmp_path / "x").shape == (0,)


def test_a_file_is_never_written_over(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"old")

    with pytest.raises(FileExistsError):
        DISK.write_file(tmp_path / "x", [b"new"])
    assert (tmp_path / "x").read_bytes() == b"old"


def test_a_link_is_neither_read_nor_counted_nor_taken_for_a_directory(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dirlink").symlink_to(tmp_path / "real")

    assert DISK.file_sizes(tmp_path) == {"file": 1}
    assert [DISK.is_directory(tmp_path / name) for name in ("real", "file", "dirlink", "none")] == [
        True,
        False,
        False,
        False,
    ]
    with pytest.raises(OSError, match="link"):
        DISK.read_file(tmp_path / "link")


def test_directories_are_made_with_their_parents_but_a_new_one_must_be_new(tmp_path: Path):
    DISK.make_directory(tmp_path / "a" / "b")
    DISK.make_directory(tmp_path / "a" / "b")
    DISK.make_new_directory(tmp_path / "a" / "b" / "c")

    with pytest.raises(FileExistsError):
        DISK.make_new_directory(tmp_path / "a" / "b" / "c")
    with pytest.raises(FileNotFoundError):
        DISK.make_new_directory(tmp_path / "x" / "y")


def test_a_rename_never_replaces(tmp_path: Path):
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()

    with pytest.raises(FileExistsError, match="to exists"):
        DISK.rename(tmp_path / "from", tmp_path / "to")
    assert names(tmp_path) == ["from", "to"]

    DISK.rename(tmp_path / "from", tmp_path / "other")
    assert names(tmp_path) == ["other", "to"]


def test_names_are_listed_sorted_and_a_missing_directory_is_empty(tmp_path: Path):
    for name in ("b", ".a", "c"):
        (tmp_path / name).touch()

    assert DISK.list_directory(tmp_path) == [".a", "b", "c"]
    assert DISK.list_directory(tmp_path / "missing") == []


def test_syncing_what_is_missing_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        DISK.sync_file(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        DISK.sync_directory(tmp_path / "x")


def test_a_tree_is_removed_whole(tmp_path: Path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x").touch()

    DISK.remove_tree(tmp_path / "a")

    assert names(tmp_path) == []


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="only Linux lists a process's descriptors as files")
def test_no_descriptor_is_left_open(tmp_path: Path):
    before = names(DESCRIPTORS)

    DISK.write_file(tmp_path / "x", [b"1"])
    DISK.sync_file(tmp_path / "x")
    DISK.sync_directory(tmp_path)
    DISK.read_file(tmp_path / "x")

    assert names(DESCRIPTORS) == before
