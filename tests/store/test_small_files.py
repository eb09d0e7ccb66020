"""Small files are replaced whole and durably."""

import os
import stat
from pathlib import Path

import pytest

from perdure.store.small_files import replace_durably


def names(path: Path) -> list[str]:
    """What stands in a directory."""
    return sorted(entry.name for entry in path.iterdir())


def test_a_small_file_is_replaced_whole(tmp_path: Path):
    replace_durably(tmp_path / "run.json", b"old")
    replace_durably(tmp_path / "run.json", b"new")

    assert names(tmp_path) == ["run.json"]
    assert (tmp_path / "run.json").read_bytes() == b"new"


def test_a_small_file_is_synced_before_it_gets_its_name_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    operations: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_sync(descriptor: int) -> None:
        operations.append("sync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        fsync(descriptor)

    def note_replace(source: Path, target: Path) -> Path:
        operations.append("replace")
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    replace_durably(tmp_path / "run.json", b"x")

    assert operations == ["sync file", "replace", "sync directory"]
