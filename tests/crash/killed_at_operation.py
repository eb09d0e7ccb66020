"""The NumPy loop on a file system that kills the process just before its n-th change (a script for the crash tests).

    python killed_at_operation.py DIRECTORY --kill-before N --keep-last 1

Without N, it prints the changes that the loop makes, one a line. Checkpoints are written at each boundary, before it
returns, so that the changes come in the same order every time (but for the syncs of one checkpoint's files).
"""

import argparse
import importlib.util
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from perdure.store import local
from perdure.store.filesystem import FileSystem
from perdure.store.store import Bytes

CHANGES = ("make_directory", "make_new_directory", "sync_file", "sync_directory", "link", "rename", "remove_tree")
PIECE_BYTES = 64


def counting(kill_before: int | None) -> type[FileSystem]:
    """A file system that counts its changes and kills the process before one of them; writes count by small pieces."""
    numbers, one_at_a_time = itertools.count(), threading.Lock()

    def change(name: str, path: Path) -> None:
        with one_at_a_time:  # files are synced from several threads
            if next(numbers) == kill_before:
                os.kill(os.getpid(), signal.SIGKILL)
            if kill_before is None:
                print(name, path.name, flush=True)

    def counted(name: str) -> Callable[..., None]:
        def method(self: FileSystem, path: Path, *rest: Any) -> None:
            change(name, path)
            getattr(FileSystem, name)(self, path, *rest)

        return method

    def write_file(self: FileSystem, path: Path, pieces: Iterable[Bytes]) -> None:
        def small() -> Iterator[bytes]:
            change("write", path)
            whole = b"".join(bytes(piece) for piece in pieces)
            yield whole[:PIECE_BYTES]
            change("write the rest of", path)
            yield whole[PIECE_BYTES:]

        FileSystem.write_file(self, path, small())

    return type("Counting", (FileSystem,), {**{name: counted(name) for name in CHANGES}, "write_file": write_file})


def main() -> None:
    """Runs three updates of the loop, saved at every boundary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kill-before", type=int)
    parser.add_argument("--keep-last", type=int)
    flags = parser.parse_args()
    spec = importlib.util.spec_from_file_location(
        "numpy_loop", Path(__file__).parent.parent / "resume" / "numpy_loop.py"
    )
    assert spec is not None
    assert spec.loader is not None
    loop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loop)
    setattr(local, "FileSystem", counting(flags.kill_before))  # noqa: B010
    loop.train(flags.directory, updates=3, keep_last=flags.keep_last, background=False)


if __name__ == "__main__":
    main()
