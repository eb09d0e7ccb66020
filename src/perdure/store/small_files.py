"""Small files that stand alone, replaced durably."""

import os
from pathlib import Path

from perdure.store.filesystem import FileSystem


def replace_durably(path: Path, data: bytes) -> None:
    """Replaces a small file: after a crash it holds the old content or the new."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes a directory's entries durable."""
    FileSystem().sync_directory(path)
