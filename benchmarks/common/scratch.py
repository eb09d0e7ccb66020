"""Scratch directories on the project's own disk, and making what others wrote durable."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory below the project's cache, so on the disk that runs are written to; removed afterwards."""
    parent = PROJECT / ".cache" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def sync_tree(path: Path) -> None:
    """Makes a directory durable: every file and directory below, itself, and its entry in its parent."""
    for directory, _, files in os.walk(path, topdown=False):
        for file in files:
            sync(Path(directory, file))
        sync(Path(directory))
    sync(path.parent)


def sync(path: Path) -> None:
    """Makes one file or directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def warm(path: Path) -> None:
    """Reads every file below, so that it is in the page cache."""
    for file in path.rglob("*"):
        if file.is_file():
            with file.open("rb", buffering=0) as opened:
                while opened.read(1 << 20):
                    pass
