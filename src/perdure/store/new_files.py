"""New files of any size, written piece by piece: durable and whole under their name, or not there at all."""

import secrets
from collections.abc import Iterable
from pathlib import Path

from perdure.errors import CommitError
from perdure.store.filesystem import FileSystem
from perdure.store.store import Bytes


def write_new_file(path: Path, pieces: Iterable[Bytes], *, files: FileSystem | None = None) -> None:
    """Writes a file where none stands.

    Args:
        path: its place.
        pieces: its bytes.
        files: what is written with.

    Raises:
        CommitError: the disk failed, or something stands there by now; nothing is left of it.
    """
    files = files or FileSystem()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        try:
            files.make_directory(path.parent)
            files.write_file(temporary, pieces)
            files.sync_file(temporary)
            files.link(temporary, path)  # unlike a rename, it replaces nothing
        finally:
            temporary.unlink(missing_ok=True)
        files.sync_directory(path.parent)
    except OSError as error:
        raise CommitError(f"{path}: was not written: {error.strerror or error}.") from error
