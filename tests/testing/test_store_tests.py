"""The conformance tests of stores: right stores pass them, wrong ones do not."""

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from perdure.store.filesystem import FileSystem
from perdure.store.local import LocalStore
from perdure.store.memory import MemoryStaging, MemoryStore
from perdure.store.store import Bytes, Store, scatter
from perdure.testing import Fault, FaultyFileSystem, FaultyStore, SimulatedDisk, StoreTests
from perdure.testing.store_tests import content

CHECKPOINTS, ASIDE = Path("/run/checkpoints"), Path("/run/damaged")


class TestMemoryStore(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()

    def kept(self, store: Store, where: str) -> dict[str, bytes]:
        assert isinstance(store, MemoryStore)
        return store.aside[where.removeprefix("aside/")]


class TestLocalStore(StoreTests):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "run" / "checkpoints", tmp_path / "run" / "damaged")

    def kept(self, store: Store, where: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in Path(where).iterdir()}


class TestLocalStoreOnASimulatedDisk(StoreTests):
    """The double of the file system is as good as the real one."""

    @pytest.fixture
    def store(self) -> Store:
        self.disk = SimulatedDisk()
        return LocalStore(CHECKPOINTS, ASIDE, self.disk)

    def kept(self, store: Store, where: str) -> dict[str, bytes]:
        return {name: self.disk.read_file(Path(where) / name).tobytes() for name in self.disk.file_sizes(Path(where))}


class TestWithoutLinks(TestLocalStore):
    """A file system without hard links: files are copied."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "run" / "checkpoints", tmp_path / "run" / "damaged", NoLinks())


class TestWrapped(TestLocalStore):
    """A faulty store and a faulty file system that are told to fail at nothing change nothing."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        filesystem = FaultyFileSystem(FileSystem(), Fault(None))
        inner = LocalStore(tmp_path / "run" / "checkpoints", tmp_path / "run" / "damaged", filesystem)
        return FaultyStore(inner, Fault(None))


class NoLinks(FileSystem):
    def link(self, source: Path, target: Path) -> None:
        if not source.exists():
            raise FileNotFoundError(source)
        raise PermissionError(1, "no links here")


class Wrong(MemoryStore):
    """A memory store, for twins that are wrong in one point."""

    def replaced(self, **methods: Callable) -> "Wrong":
        for name, method in methods.items():
            setattr(self, name, method)
        return self


class VisibleAtOnce(MemoryStaging):
    """The entry is there from the first file on."""

    def write(self, file: str, pieces: Iterable[Bytes]) -> None:
        super().write(file, pieces)
        self._entries[self._name] = self._files


class Overwrites(MemoryStaging):
    """A taken name is no matter."""

    def commit(self) -> None:
        self._entries[self._name] = self._files


class KeepsPieces(MemoryStaging):
    """Pieces are joined at the commit only."""

    def __init__(self, entries: dict[str, dict[str, bytes]], name: str) -> None:
        super().__init__(entries, name)
        self._late: dict[str, list[Bytes]] = {}

    def write(self, file: str, pieces: Iterable[Bytes]) -> None:
        super().write(file, [])
        self._late[file] = list(pieces)

    def commit(self) -> None:
        self._files.update({file: b"".join(map(bytes, pieces)) for file, pieces in self._late.items()})
        super().commit()


def staging_with(kind: type[MemoryStaging]) -> Callable[[], Wrong]:
    def make() -> Wrong:
        store = Wrong()
        return store.replaced(stage=lambda name: kind(store.entries, name))

    return make


def shared_reads() -> Wrong:
    store, memory = Wrong(), {}
    read = store.read
    return store.replaced(read=lambda name, file: memory.setdefault((name, file), read(name, file)))


def unsorted() -> Wrong:
    store = Wrong()
    return store.replaced(names=lambda: list(store.entries))


def forgets_what_is_set_aside() -> Wrong:
    store = Wrong()
    set_aside = store.set_aside

    def forgetting(name: str) -> str:
        where = set_aside(name)
        store.aside[where.removeprefix("aside/")] = {}
        return where

    return store.replaced(set_aside=forgetting)


def fills_in_part() -> Wrong:
    store = Wrong()

    def read_into(name: str, file: str, buffers: list[memoryview], offset: int = 0) -> None:
        data = store.read(name, file)[offset:]
        for buffer in buffers:
            part, data = data[: buffer.nbytes], data[buffer.nbytes :]
            np.frombuffer(buffer, np.uint8)[: part.size] = part

    return store.replaced(read_into=read_into)


def reads_from_the_start() -> Wrong:
    store = Wrong()

    def read_into(name: str, file: str, buffers: list[memoryview], offset: int = 0) -> None:
        scatter(store.read(name, file).data, buffers)

    return store.replaced(read_into=read_into)


TWINS: dict[str, tuple[Callable[[], Wrong], str]] = {
    "visible before the commit": (staging_with(VisibleAtOnce), "test_nothing_is_visible_before_the_commit"),
    "taken names are replaced": (staging_with(Overwrites), "test_a_taken_name_is_refused_and_nothing_changes"),
    "pieces are kept": (staging_with(KeepsPieces), "test_pieces_may_change_after_the_write"),
    "reads share memory": (shared_reads, "test_reading_gives_private_writable_bytes"),
    "names come as they were committed": (unsorted, "test_a_committed_entry_is_there_whole"),
    "what is set aside is lost": (forgets_what_is_set_aside, "test_an_entry_set_aside_is_kept_and_its_name_is_free"),
    "short files fill buffers in part": (fills_in_part, "test_buffers_larger_than_the_file_are_told"),
    "offsets are ignored": (reads_from_the_start, "test_a_file_can_be_read_from_its_middle"),
}


def failures(make: Callable[[], Store]) -> set[str]:
    """The conformance tests that a store does not pass."""
    suite, failed = TestMemoryStore(), set()
    for name, test in inspect.getmembers(suite, inspect.ismethod):
        if name.startswith("test_"):
            try:
                test(make())
            except (AssertionError, OSError, pytest.fail.Exception):
                failed.add(name)
    return failed


def test_a_right_store_passes_called_by_hand() -> None:
    """So that the twins fail for their own faults."""
    assert failures(MemoryStore) == set()


@pytest.mark.parametrize("twin", TWINS)
def test_a_store_that_is_wrong_on_purpose_is_found(twin: str) -> None:
    make, found_by = TWINS[twin]

    assert found_by in failures(make)


def test_the_place_of_what_was_set_aside_must_be_said() -> None:
    with pytest.raises(NotImplementedError, match="say in `kept`"):
        StoreTests().kept(MemoryStore(), "aside/a")


def test_content_is_everything() -> None:
    store = MemoryStore()
    store.entries = {"a": {"x": b"1"}}

    assert content(store) == {"a": {"x": b"1"}}
