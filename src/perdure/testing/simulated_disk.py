"""A simulated disk: performs the store's operations in memory, and tells what a crash could leave of them.

The model is harsher than most file systems. Until a sync, every operation may be lost or kept on its own, whatever
came before or after it, and the last write to a file may be torn. What it does assume: a rename is atomic, a sync
that returned is true, and a directory entry written by an operation that survives points to a whole inode.
"""

import errno
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import numpy as np

from perdure.store.filesystem import FileSystem
from perdure.store.store import Bytes, scatter

Directory = dict[str, int]


@dataclass(frozen=True)
class Operation:
    """One change, as small as the disk makes it."""

    kind: str
    """`write`, `enter` (a name gets a node), `leave` (a name goes), `move` (an entry moves)."""
    node: int
    """The file written, or the directory whose entries change."""
    name: str = ""
    """The entry."""
    child: int = -1
    """`enter`: the node it gets."""
    data: bytes = b""
    """`write`: the bytes."""
    offset: int = 0
    """`write`: where they go; what lies before and was lost reads as zeros."""
    target: int = -1
    """`move`: the directory it moves to."""
    target_name: str = ""
    """`move`: the name it gets there."""

    def touches(self, node: int) -> bool:
        """Whether a sync of `node` makes this operation durable."""
        return node in (self.node, self.target)


@dataclass
class _Nodes:
    """Files and directories by number."""

    files: dict[int, bytes] = field(default_factory=dict)
    directories: dict[int, Directory] = field(default_factory=lambda: {0: {}})

    def apply(self, operation: Operation) -> None:
        """Performs one operation; on an image that lost others, it does what it still can."""
        match operation.kind:
            case "write":
                before = self.files.get(operation.node, b"")[: operation.offset].ljust(operation.offset, b"\0")
                self.files[operation.node] = before + operation.data
            case "enter":
                self._entries(operation.node)[operation.name] = operation.child
            case "leave":
                self._entries(operation.node).pop(operation.name, None)
            case "move":
                self._entries(operation.node).pop(operation.name, None)
                self._entries(operation.target)[operation.target_name] = operation.child
            case _:
                raise AssertionError(operation.kind)

    def copy(self) -> "_Nodes":
        """The same nodes, independent."""
        return _Nodes(dict(self.files), {node: dict(entries) for node, entries in self.directories.items()})

    def _entries(self, node: int) -> Directory:
        return self.directories.setdefault(node, {})


class SimulatedDisk(FileSystem):
    """A `FileSystem` in memory that remembers every operation and every sync."""

    def __init__(self) -> None:
        self._now = _Nodes()
        self._base = _Nodes()
        self._next_node = 1
        self._directories: set[int] = {0}
        self.operations: list[Operation] = []
        """Everything that happened, in order."""
        self.durable_at: list[int | None] = []
        """For each operation: how many operations there were when a sync made it durable; None: not yet."""

    def _do(self, operation: Operation) -> None:
        self._now.apply(operation)
        self.operations.append(operation)
        self.durable_at.append(None)

    def _sync(self, node: int) -> None:
        for at, operation in enumerate(self.operations):
            if self.durable_at[at] is None and operation.touches(node):
                self.durable_at[at] = len(self.operations)

    def _new_node(self) -> int:
        self._next_node += 1
        return self._next_node

    def _find(self, path: Path) -> int:
        node = 0
        for part in PurePosixPath(path).parts[1:]:
            entries = self._now.directories.get(node)
            if entries is None or part not in entries:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", str(path))
            node = entries[part]
        return node

    def _exists(self, path: Path) -> bool:
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def make_directory(self, path: Path) -> None:
        """See `FileSystem`."""
        if not self._exists(path):
            self.make_directory(path.parent)
            self.make_new_directory(path)
            self.sync_directory(path.parent)

    def make_new_directory(self, path: Path) -> None:
        """See `FileSystem`."""
        if self._exists(path):
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        node = self._new_node()
        self._now.directories[node] = {}
        self._directories.add(node)
        self._do(Operation("enter", self._find(path.parent), path.name, node))

    def write_file(self, path: Path, pieces: Iterable[Bytes]) -> None:
        """See `FileSystem`."""
        if self._exists(path):
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        node = self._new_node()
        self._now.files[node] = b""
        self._do(Operation("enter", self._find(path.parent), path.name, node))
        offset = 0
        for piece in pieces:
            self._do(Operation("write", node, data=bytes(piece), offset=offset))
            offset += memoryview(piece).nbytes

    def sync_file(self, path: Path) -> None:
        """See `FileSystem`."""
        self._sync(self._find(path))

    def sync_directory(self, path: Path) -> None:
        """See `FileSystem`."""
        self._sync(self._find(path))

    def rename(self, source: Path, target: Path) -> None:
        """See `FileSystem`."""
        node = self._find(source)
        if self._exists(target):
            raise FileExistsError(errno.EEXIST, "exists", str(target))
        parents = self._find(source.parent), self._find(target.parent)
        self._do(Operation("move", parents[0], source.name, node, target=parents[1], target_name=target.name))

    def link(self, source: Path, target: Path) -> None:
        """See `FileSystem`."""
        if self._exists(target):
            raise FileExistsError(errno.EEXIST, "exists", str(target))
        self._do(Operation("enter", self._find(target.parent), target.name, self._find(source)))

    def free_bytes(self, path: Path) -> int:
        """See `FileSystem`: a disk without end."""
        return 1 << 60

    def list_directory(self, path: Path) -> list[str]:
        """See `FileSystem`."""
        return sorted(self._now.directories[self._find(path)]) if self._exists(path) else []

    def is_directory(self, path: Path) -> bool:
        """See `FileSystem`."""
        return self._exists(path) and self._find(path) in self._directories

    def file_sizes(self, path: Path) -> dict[str, int]:
        """See `FileSystem`."""
        entries = self._now.directories[self._find(path)]
        return {name: len(self._content(node)) for name, node in entries.items() if node not in self._directories}

    def _content(self, node: int) -> bytes:
        return self._now.files.get(node, b"")

    def read_file(self, path: Path) -> np.ndarray:
        """See `FileSystem`."""
        node = self._find(path)
        if node in self._directories:
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        return np.frombuffer(bytearray(self._content(node)), np.uint8)

    def read_file_into(self, path: Path, buffers: Sequence[memoryview]) -> None:
        """See `FileSystem`."""
        scatter(self.read_file(path).data, buffers)

    def remove_tree(self, path: Path) -> None:
        """See `FileSystem`: one entry after another, as a real disk would."""
        node = self._find(path)
        for name in sorted(self._now.directories.get(node, {})):
            if self._now.directories[node][name] in self._directories:
                self.remove_tree(path / name)
            else:
                self._do(Operation("leave", node, name))
        self._do(Operation("leave", self._find(path.parent), path.name))

    def crash_images(self, start: int = 0, most_undecided: int = 8) -> Iterator["SimulatedDisk"]:
        """Every disk that a power loss could leave, at any instant after the first `start` operations.

        `start` is a moment between two calls: the syncs up to then have returned. For each longer prefix, a sync that
        follows its last operation has not happened yet. Operations that a sync made durable are kept, each other one is
        kept or lost, and the last write may be torn. Where more than `most_undecided` operations are open, the newest
        of them are tried in all combinations, the older ones once all kept and once all lost.
        """
        for length in range(start, len(self.operations) + 1):
            synced_by = max(start, length - 1)
            durable = {at for at in range(length) if (self.durable_at[at] or length + 1) <= synced_by}
            yield from self._images(length, durable, most_undecided)
        yield from self.images_now(most_undecided)

    def images_now(self, most_undecided: int = 8) -> Iterator["SimulatedDisk"]:
        """Every disk that a power loss could leave now, after all calls have returned."""
        durable = {at for at, when in enumerate(self.durable_at) if when is not None}
        yield from self._images(len(self.operations), durable, most_undecided)

    def _images(self, length: int, durable: set[int], most_undecided: int) -> Iterator["SimulatedDisk"]:
        is_open = [at for at in range(length) if at not in durable]
        older, newest = is_open[:-most_undecided], is_open[-most_undecided:]
        for lost_before in (set(), set(older)) if older else (set(),):
            for choice in itertools.product((True, False), repeat=len(newest)):
                lost = {at for at, keep in zip(newest, choice, strict=True) if not keep}
                yield self._image(length, lost | lost_before, torn=False)
        if is_open and self.operations[is_open[-1]].kind == "write":
            yield self._image(length, set(), torn=True)

    def _image(self, length: int, lost: set[int], *, torn: bool) -> "SimulatedDisk":
        nodes = self._base.copy()
        for at, operation in enumerate(self.operations[:length]):
            if at in lost:
                continue
            is_torn = torn and at == length - 1
            nodes.apply(replace(operation, data=operation.data[: len(operation.data) // 2]) if is_torn else operation)
        image = SimulatedDisk()
        image._now, image._base = nodes, nodes.copy()
        image._next_node, image._directories = self._next_node, set(self._directories)
        return image
