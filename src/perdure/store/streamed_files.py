"""Files of any size that stand alone, written piece by piece, durably, whole or not at all."""

import secrets
from collections.abc import Iterable
from pathlib import Path

from perdure.errors import CommitError
from perdure.store.filesystem import FileSystem
from perdure.store.store import Bytes


def replace_streamed(path: Path, pieces: Iterable[Bytes], filesystem: FileSystem | None = None) -> None:
    """Replaces a file of any size: after a crash its name stands for the old content or the new, whole.

    The pieces are written to a file beside it, of a name that nobody else has, so that two writers at a time do not
    meet. Whatever is raised on the way, by the disk or by the pieces, leaves what was there before, and no other file.

    Args:
        path: the file; its directory must exist. A link is replaced, not what it leads to.
        pieces: the content; made one by one as they are written, so that a large file needs no memory.
        filesystem: how the disk is reached; tests put another one in its place.

    Raises:
        OSError: the disk failed. If only the directory could not be synced, the new file is there, but may not last.
    """
    disk = filesystem or FileSystem()
    temporary = path.with_name(f".{secrets.token_hex(8)}.new")
    try:
        disk.write_file(temporary, pieces)
        disk.sync_file(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    disk.sync_directory(path.parent)


def create_streamed(path: Path, pieces: Iterable[Bytes], filesystem: FileSystem | None = None) -> None:
    """Makes a file of any size where none stands: after a crash it is there whole, or not at all.

    Args:
        path: the file; directories that lead to it are made.
        pieces: the content; made one by one as they are written.
        filesystem: how the disk is reached.

    Raises:
        CommitError: the disk failed, or something stands there; nothing was left of it.
    """
    disk = filesystem or FileSystem()
    temporary = path.with_name(f".{secrets.token_hex(8)}.new")
    try:
        try:
            disk.make_directory(path.parent)
            disk.write_file(temporary, pieces)
            disk.sync_file(temporary)
            disk.rename(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        disk.sync_directory(path.parent)
    except OSError as error:
        raise CommitError(f"{path}: was not written: {error}.") from error
