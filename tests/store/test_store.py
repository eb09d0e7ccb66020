"""The protocol of `Store`, as a set of tests that every store passes.

`StoreTests` is abstract: a subclass whose name begins with `Test` and that gives a `store` fixture runs all of it.
"""

from pathlib import Path

import numpy as np
import pytest

from perdure.store.local import LocalStore
from perdure.store.memory import MemoryStore
from perdure.store.store import Store

FILES = {"MANIFEST.json": b"{}", "a.safetensors": bytes(range(256)), "empty.bin": b""}


def commit(store: Store, name: str, files: dict[str, bytes] = FILES) -> None:
    with store.stage(name) as staging:
        for file, data in files.items():
            staging.write(file, [data])
        staging.commit()


def content(store: Store) -> dict[str, dict[str, bytes]]:
    """Everything that a reader of the store sees."""
    return {name: {file: store.read(name, file).tobytes() for file in store.files(name)} for name in store.names()}


class StoreTests:
    """What `perdure.store.store` promises."""

    def test_an_empty_store_has_no_names_and_no_leftovers(self, store: Store):
        assert store.names() == []
        assert store.remove_leftovers() == []

    def test_a_committed_entry_is_there_whole(self, store: Store):
        commit(store, "b")
        commit(store, "a", {"x": b"1"})

        assert store.names() == ["a", "b"]
        assert store.files("b") == {file: len(data) for file, data in FILES.items()}
        assert content(store) == {"a": {"x": b"1"}, "b": FILES}

    def test_nothing_is_visible_before_the_commit(self, store: Store):
        with store.stage("a") as staging:
            staging.write("x", [b"1"])
            assert store.names() == []
            with pytest.raises(FileNotFoundError):
                store.files("a")
            staging.commit()

        assert store.names() == ["a"]

    def test_an_entry_that_is_left_without_a_commit_leaves_nothing(self, store: Store):
        with store.stage("a") as staging:
            staging.write("x", [b"1"])

        assert store.names() == []
        assert store.remove_leftovers() == []

    def test_an_exception_abandons_the_entry_and_comes_out(self, store: Store):
        def stop() -> None:
            with store.stage("a") as staging:
                staging.write("x", [b"1"])
                raise ZeroDivisionError("mine")

        with pytest.raises(ZeroDivisionError, match="mine"):
            stop()
        assert store.names() == []
        assert store.remove_leftovers() == []

    def test_an_abandoned_name_can_be_committed_later(self, store: Store):
        with store.stage("a") as staging:
            staging.write("x", [b"old"])
        commit(store, "a", {"x": b"new"})

        assert content(store) == {"a": {"x": b"new"}}

    def test_a_taken_name_is_refused_and_nothing_changes(self, store: Store):
        commit(store, "a")

        def again() -> None:
            with store.stage("a") as staging:
                staging.write("x", [b"other"])
                staging.commit()

        with pytest.raises(FileExistsError):
            again()
        assert content(store) == {"a": FILES}
        assert store.remove_leftovers() == []

    def test_an_entry_without_files_is_an_entry(self, store: Store):
        commit(store, "a", {})

        assert content(store) == {"a": {}}

    def test_pieces_are_joined_whatever_buffer_they_come_in(self, store: Store):
        array = np.arange(3, dtype=np.int16)
        pieces = [b"ab", bytearray(b"c"), b"", memoryview(b"de"), array.data]
        with store.stage("a") as staging:
            staging.write("x", iter(pieces))
            staging.commit()

        assert store.read("a", "x").tobytes() == b"abcde" + array.tobytes()
        assert store.files("a") == {"x": 11}

    def test_pieces_may_change_once_the_write_has_returned(self, store: Store):
        """They are gathered, so none may change before; afterwards the writer reuses its memory, before the commit."""
        buffers = [bytearray(bytes([letter]) * 4) for letter in b"abc"]

        with store.stage("a") as staging:
            staging.write("x", iter(buffers))
            for buffer in buffers:
                buffer[:] = b"zzzz"
            staging.write("y", iter(buffers))
            staging.commit()

        assert store.read("a", "x").tobytes() == b"aaaabbbbcccc"
        assert store.read("a", "y").tobytes() == b"zzzzzzzzzzzz"

    def test_many_pieces_of_any_size_come_out_in_order(self, store: Store):
        """More pieces than one call of the system takes, and pieces that fill a call's batch alone."""
        pieces = [bytes([at % 251]) * (at % 7) for at in range(3_000)] + [b"x" * (3 << 20), b"y", b"z" * (1 << 20)]

        with store.stage("a") as staging:
            staging.write("x", iter(pieces))
            staging.commit()

        assert store.read("a", "x").tobytes() == b"".join(pieces)

    def test_a_file_is_written_once(self, store: Store):
        with store.stage("a") as staging:
            staging.write("x", [b"1"])
            with pytest.raises(FileExistsError):
                staging.write("x", [b"2"])

    def test_reading_gives_private_writable_bytes(self, store: Store):
        commit(store, "a")

        first, second = store.read("a", "a.safetensors"), store.read("a", "a.safetensors")
        first[:] = 7

        assert (first.dtype, first.ndim) == (np.uint8, 1)
        assert second.tobytes() == FILES["a.safetensors"]
        assert content(store) == {"a": FILES}

    def test_missing_entries_and_files_are_told(self, store: Store):
        commit(store, "a")

        with pytest.raises(FileNotFoundError):
            store.files("b")
        with pytest.raises(FileNotFoundError):
            store.read("b", "MANIFEST.json")
        with pytest.raises(FileNotFoundError):
            store.read("a", "b")

    def test_an_entry_set_aside_is_kept_and_its_name_is_free(self, store: Store):
        commit(store, "a", {"x": b"damaged"})
        commit(store, "b", {"x": b"good"})

        where = store.set_aside("a")

        assert store.names() == ["b"]
        assert self.kept(store, where) == {"x": b"damaged"}
        commit(store, "a", {"x": b"new"})
        assert content(store) == {"a": {"x": b"new"}, "b": {"x": b"good"}}

    def test_the_same_name_can_be_set_aside_again_and_again(self, store: Store):
        places = []
        for data in (b"1", b"2", b"3"):
            commit(store, "a", {"x": data})
            places.append(store.set_aside("a"))

        assert len(set(places)) == 3
        assert [self.kept(store, where) for where in places] == [{"x": b"1"}, {"x": b"2"}, {"x": b"3"}]

    def test_setting_aside_what_is_not_there_is_told(self, store: Store):
        with pytest.raises(FileNotFoundError):
            store.set_aside("a")

    def test_a_removed_entry_is_gone_and_its_name_is_free(self, store: Store):
        commit(store, "a", {"x": b"old"})
        commit(store, "b", {"x": b"good"})

        store.remove("a")

        assert content(store) == {"b": {"x": b"good"}}
        assert store.remove_leftovers() == []
        commit(store, "a", {"x": b"new"})
        assert content(store) == {"a": {"x": b"new"}, "b": {"x": b"good"}}

    def test_removing_what_is_not_there_is_told(self, store: Store):
        with pytest.raises(FileNotFoundError):
            store.remove("a")

    def test_a_file_of_a_committed_entry_is_taken_over_unchanged(self, store: Store):
        commit(store, "a")
        with store.stage("b") as staging:
            staging.reuse("a.safetensors", "a")
            staging.write("x", [b"new"])
            staging.commit()

        assert content(store)["b"] == {"a.safetensors": FILES["a.safetensors"], "x": b"new"}
        assert content(store)["a"] == FILES

    def test_each_entry_stands_alone_after_a_file_was_taken_over(self, store: Store):
        commit(store, "a")
        with store.stage("b") as staging:
            staging.reuse("a.safetensors", "a")
            staging.commit()

        store.remove("a")

        assert content(store) == {"b": {"a.safetensors": FILES["a.safetensors"]}}

    @pytest.mark.parametrize(("file", "entry"), [("a.safetensors", "missing"), ("missing", "a")])
    def test_taking_over_what_is_not_there_is_told(self, store: Store, file: str, entry: str):
        commit(store, "a")

        with store.stage("b") as staging, pytest.raises(FileNotFoundError):
            staging.reuse(file, entry)
        assert store.names() == ["a"]

    def test_a_file_taken_over_is_not_written_over(self, store: Store):
        commit(store, "a")

        with store.stage("b") as staging:
            staging.reuse("a.safetensors", "a")
            with pytest.raises(FileExistsError):
                staging.write("a.safetensors", [b"other"])
        assert content(store) == {"a": FILES}

    def test_free_space_is_a_number_of_bytes_or_unknown(self, store: Store):
        commit(store, "a")

        free = store.free_bytes()
        assert free is None or free > 0

    def kept(self, store: Store, where: str) -> dict[str, bytes]:
        """The files of an entry that was set aside; each store keeps them in its own way."""
        raise NotImplementedError


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
