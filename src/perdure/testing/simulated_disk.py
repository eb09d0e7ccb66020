"""A simulated disk: performs the store's operations in memory, and tells what a crash could leave of them.

The model is harsher than most file systems. Until a sync, every operation may be lost or kept on its own, whatever
came before or after it, and a write may be torn. What it does assume: a rename is atomic, a sync that returned is
true, and a directory entry written by an operation that survives points to a whole inode.

A power loss is a crash image: `crash_images` and `images_now` yield the disks that it could leave. A process that is
killed loses nothing: the disk itself, as it stands, is what its successor finds, and what was never synced can still
be lost then. So go on with the same disk after a call that was cut short (`perdure.testing.Fault` cuts one short), and
ask for images afterwards.
"""

import errno
import itertools
import threading
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
    """`enter` and `move`: the node that the entry stands for."""
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

    def torn(self) -> "Operation":
        """A write of which only the first half arrived."""
        return replace(self, data=self.data[: len(self.data) // 2])


def _flipped(operation: Operation, node: int, at: int) -> Operation:
    """The operation, if it wrote byte `at` of the file `node` with the lowest bit the other way round."""
    place = at - operation.offset
    if operation.kind != "write" or operation.node != node or not 0 <= place < len(operation.data):
        return operation
    data = bytearray(operation.data)
    data[place] ^= 1
    return replace(operation, data=bytes(data))


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
    """A `FileSystem` in memory that remembers every operation and every sync. Several threads may use it.

    ```python
    disk = SimulatedDisk()
    store = LocalStore(Path("/run/checkpoints"), Path("/run/damaged"), disk)
    save(store, "a", …)
    mark = len(disk.operations)
    save(store, "b", …)
    for image in disk.crash_images(mark):
        ...                                  # a store on `image` holds "a" alone, or both
    for image in disk.images_now():
        ...                                  # a store on `image` holds both
    ```
    """

    def __init__(self) -> None:
        self._now = _Nodes()
        self._base = _Nodes()
        self._next_node = 1
        self._directories: set[int] = {0}
        self._lock = threading.RLock()
        self.operations: list[Operation] = []
        """Everything that happened, in order."""
        self.durable_at: list[int | None] = []
        """For each operation: how many operations there were when a sync made it durable; None: not yet."""

    def contents(self) -> dict[str, bytes | None]:
        """All that can be reached from the root: path -> bytes of a file, None for a directory."""
        return dict(self._below(0, PurePosixPath("/")))

    def damage(self, path: Path, at: int = 0) -> None:
        """Flips a bit of byte `at` of a file, as a failing disk does: durable at once, and no operation.

        Raises:
            IndexError: the file is shorter.
        """
        with self._lock:
            node = self._find(path)
            if not 0 <= at < len(self._content(node)):
                raise IndexError(f"{path} has no byte {at}")
            for nodes in (self._now, self._base):
                data = bytearray(nodes.files.get(node, b""))
                if at < len(data):
                    data[at] ^= 1
                    nodes.files[node] = bytes(data)
            self.operations = [_flipped(operation, node, at) for operation in self.operations]

    def _below(self, node: int, path: PurePosixPath) -> Iterator[tuple[str, bytes | None]]:
        for name, child in self._now.directories.get(node, {}).items():
            is_directory = child in self._directories
            yield str(path / name), None if is_directory else self._content(child)
            if is_directory:
                yield from self._below(child, path / name)

    def _do(self, operation: Operation) -> None:
        with self._lock:
            self._now.apply(operation)
            self.operations.append(operation)
            self.durable_at.append(None)

    def _sync(self, node: int) -> None:
        with self._lock:
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

    def _refuse_existing(self, path: Path) -> None:
        if self._exists(path):
            raise FileExistsError(errno.EEXIST, "exists", str(path))

    def make_directory(self, path: Path) -> None:
        """See `FileSystem`."""
        if not self._exists(path):
            self.make_directory(path.parent)
            self.make_new_directory(path)
            self.sync_directory(path.parent)

    def make_new_directory(self, path: Path) -> None:
        """See `FileSystem`."""
        with self._lock:
            self._refuse_existing(path)
            parent, node = self._find(path.parent), self._new_node()
            self._directories.add(node)
            self._now.directories[node] = {}
            self._do(Operation("enter", parent, path.name, node))

    def write_file(self, path: Path, pieces: Iterable[Bytes]) -> None:
        """See `FileSystem`: each piece is an operation of its own."""
        with self._lock:
            self._refuse_existing(path)
            parent, node = self._find(path.parent), self._new_node()
            self._do(Operation("enter", parent, path.name, node))
        offset = 0
        for piece in pieces:
            self._do(Operation("write", node, data=bytes(piece), offset=offset))
            offset += memoryview(piece).nbytes

    def sync_file(self, path: Path) -> None:
        """See `FileSystem`. The file's name is not made durable: that takes a sync of the directory."""
        self._sync(self._find(path))

    def sync_directory(self, path: Path) -> None:
        """See `FileSystem`."""
        self._sync(self._find(path))

    def rename(self, source: Path, target: Path) -> None:
        """See `FileSystem`. A sync of either directory makes all of it durable."""
        with self._lock:
            node = self._find(source)
            self._refuse_existing(target)
            parents = self._find(source.parent), self._find(target.parent)
            self._do(Operation("move", parents[0], source.name, node, target=parents[1], target_name=target.name))

    def link(self, source: Path, target: Path) -> None:
        """See `FileSystem`."""
        with self._lock:
            self._refuse_existing(target)
            self._do(Operation("enter", self._find(target.parent), target.name, self._find(source)))

    def free_bytes(self, path: Path) -> int:
        """See `FileSystem`: a disk without end."""
        return 1 << 60

    def list_directory(self, path: Path) -> list[str]:
        """See `FileSystem`."""
        return sorted(self._entries(path)) if self._exists(path) else []

    def is_directory(self, path: Path) -> bool:
        """See `FileSystem`."""
        return self._exists(path) and self._find(path) in self._directories

    def file_sizes(self, path: Path) -> dict[str, int]:
        """See `FileSystem`."""
        entries = self._entries(path)
        return {name: len(self._content(node)) for name, node in entries.items() if node not in self._directories}

    def _entries(self, path: Path) -> Directory:
        """The entries of a directory: none, if a crash lost all of them."""
        node = self._find(path)
        if node not in self._directories:
            raise NotADirectoryError(errno.ENOTDIR, "is no directory", str(path))
        return self._now.directories.get(node, {})

    def _content(self, node: int) -> bytes:
        return self._now.files.get(node, b"")

    def read_file(self, path: Path) -> np.ndarray:
        """See `FileSystem`."""
        node = self._find(path)
        if node in self._directories:
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        return np.frombuffer(bytearray(self._content(node)), np.uint8)

    def read_file_into(self, path: Path, buffers: Sequence[memoryview], offset: int = 0) -> None:
        """See `FileSystem`."""
        scatter(self.read_file(path).data[offset:], buffers)

    def remove_tree(self, path: Path) -> None:
        """See `FileSystem`: one entry after another, as a real disk would."""
        node = self._find(path)
        for name, child in sorted(self._entries(path).items()):
            if child in self._directories:
                self.remove_tree(path / name)
            else:
                self._do(Operation("leave", node, name))
        self._do(Operation("leave", self._find(path.parent), path.name))

    def crash_images(self, start: int = 0, most_undecided: int = 8) -> Iterator["SimulatedDisk"]:
        """Every disk that a power loss could leave, at any instant after the first `start` operations, each once.

        `start` is a moment between two calls: the syncs up to then have returned. For each longer prefix, a sync that
        follows its last operation has not happened yet. Operations that a sync made durable are kept, each other one is
        kept or lost, and each write among these may be torn.

        Args:
            start: a former `len(disk.operations)`.
            most_undecided: where more operations than this are open, the newest of them are tried in all combinations,
                the older ones once all kept and once all lost. Exhaustive if it is not less than `most_open(start)`.
        """
        seen: set[frozenset[tuple[str, bytes | None]]] = set()
        for image in self._crash_images(start, most_undecided):
            contents = frozenset(image.contents().items())
            if contents not in seen:
                seen.add(contents)
                yield image

    def _crash_images(self, start: int, most_undecided: int) -> Iterator["SimulatedDisk"]:
        for length in range(start, len(self.operations) + 1):
            yield from self._images(length, self._open_operations(start, length), most_undecided)
        yield from self.images_now(most_undecided)

    def _open_operations(self, start: int, length: int) -> list[int]:
        """Those of the first `length` operations that no sync has made durable yet."""
        synced_by = max(start, length - 1)
        return [at for at in range(length) if (self.durable_at[at] or length + 1) > synced_by]

    def most_open(self, start: int = 0) -> int:
        """The greatest number of operations that were open at one time since `start`: images double with each."""
        lengths = range(start, len(self.operations) + 1)
        return max(len(self._open_operations(start, length)) for length in lengths)

    def images_now(self, most_undecided: int = 8) -> Iterator["SimulatedDisk"]:
        """Every disk that a power loss could leave now, after all calls have returned."""
        is_open = [at for at, when in enumerate(self.durable_at) if when is None]
        yield from self._images(len(self.operations), is_open, most_undecided)

    def _images(self, length: int, is_open: list[int], most_undecided: int) -> Iterator["SimulatedDisk"]:
        settled = self._base.copy()
        first = is_open[0] if is_open else length
        for operation in self.operations[:first]:
            settled.apply(operation)
        at_stake = max(0, len(is_open) - most_undecided)
        older, newest = is_open[:at_stake], is_open[at_stake:]
        for lost_before in (set(), set(older)) if older else (set(),):
            for choice in itertools.product((True, False), repeat=len(newest)):
                lost = {at for at, keep in zip(newest, choice, strict=True) if not keep}
                yield self._image(settled, range(first, length), lost | lost_before)
        for at in newest:
            if self.operations[at].kind == "write":
                yield self._image(settled, range(first, length), set(), torn=at)

    def _image(self, settled: _Nodes, rest: range, lost: set[int], torn: int = -1) -> "SimulatedDisk":
        nodes = settled.copy()
        for at in rest:
            if at not in lost:
                nodes.apply(self.operations[at].torn() if at == torn else self.operations[at])
        image = SimulatedDisk()
        image._now, image._base = nodes, nodes.copy()
        image._next_node, image._directories = self._next_node, set(self._directories)
        return image
