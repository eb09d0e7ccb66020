"""Large files are replaced whole and durably, whatever fails on the way."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.errors import CommitError
from perdure.store.filesystem import FileSystem
from perdure.store.streamed_files import create_streamed, replace_streamed
from perdure.testing import Fault, FaultyFileSystem


def names(path: Path) -> list[str]:
    """What stands in a directory."""
    return sorted(entry.name for entry in path.iterdir())


def test_a_file_is_replaced_whole(tmp_path: Path):
    replace_streamed(tmp_path / "a.bin", [b"old"])
    replace_streamed(tmp_path / "a.bin", (bytes([at]) for at in range(3)))

    assert names(tmp_path) == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == b"\0\1\2"


def test_it_is_synced_before_it_gets_its_name_and_the_directory_after(tmp_path: Path):
    fault = Fault(None)
    replace_streamed(tmp_path / "a.bin", [b"x"], FaultyFileSystem(FileSystem(), fault))

    assert fault.calls == ["write_file", "sync_file", "sync_directory"]


def test_whichever_call_fails_the_name_stands_for_the_old_content_or_the_new(tmp_path: Path):
    path = tmp_path / "a.bin"
    failures = []
    for fault in Fault.at_each_call(errno.ENOSPC, errno.EIO):
        path.write_bytes(b"old")
        try:
            replace_streamed(path, [b"new", b"er"], FaultyFileSystem(FileSystem(), fault))
        except OSError as error:
            failures.append(error.errno)
        assert names(tmp_path) == ["a.bin"]
        expected = b"newer" if not fault.fired or fault.calls[-1] == "sync_directory" else b"old"
        assert path.read_bytes() == expected

    assert failures == [errno.ENOSPC] * 3 + [errno.EIO] * 3


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_pieces_that_cannot_be_made_leave_what_was_there(tmp_path: Path, kind: type[BaseException]):
    def pieces() -> Iterator[bytes]:
        yield b"new"
        raise kind("half-way")

    (tmp_path / "a.bin").write_bytes(b"old")
    with pytest.raises(kind, match="half-way"):
        replace_streamed(tmp_path / "a.bin", pieces())

    assert names(tmp_path) == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == b"old"


def test_a_new_file_is_there_whole_or_not_at_all(tmp_path: Path):
    path = tmp_path / "deep" / "a.bin"
    failures = []
    for fault in Fault.at_each_call(errno.ENOSPC, errno.EIO):
        try:
            create_streamed(path, [b"new", b"er"], FaultyFileSystem(FileSystem(), fault))
        except CommitError as error:
            failures.append(str(error))
        if path.exists():
            assert path.read_bytes() == b"newer"
            path.unlink()
        if path.parent.exists():
            assert names(path.parent) == []

    assert len(failures) >= 10
    assert all(failure.startswith(f"{path}: was not written: ") for failure in failures)


def test_a_new_file_takes_nobody_s_place(tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(b"theirs")
    with pytest.raises(CommitError, match=r"a\.bin: was not written: .*a\.bin exists"):
        create_streamed(tmp_path / "a.bin", [b"ours"])

    assert names(tmp_path) == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == b"theirs"
