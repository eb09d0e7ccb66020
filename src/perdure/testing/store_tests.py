"""The protocol of `Store` as a set of tests: what every store passes.

```python
class TestMyStore(StoreTests):
    @pytest.fixture
    def store(self, tmp_path):
        return MyStore(tmp_path)

    def kept(self, store, where):
        return …                  # the files of the entry that `set_aside` moved to `where`
```
"""

# ruff: noqa: S101 - assertions are what a test is made of

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from perdure.store.store import Store

FILES: Mapping[str, bytes] = {"MANIFEST.json": b"{}", "a.safetensors": bytes(range(256)), "empty.bin": b""}
"""A committed entry of the tests."""


def commit(store: Store, name: str, files: Mapping[str, bytes] = FILES) -> None:
    """Commits an entry with these files."""
    with store.stage(name) as staging:
        for file, data in files.items():
            staging.write(file, [data])
        staging.commit()


def content(store: Store) -> dict[str, dict[str, bytes]]:
    """Everything that a reader of the store sees: name -> file -> bytes."""
    return {name: {file: store.read(name, file).tobytes() for file in store.files(name)} for name in store.names()}


class StoreTests:
    """What `perdure.store.store` promises of one process that nothing happens to."""

    def kept(self, store: Store, where: str) -> dict[str, bytes]:
        """The files of an entry that was set aside; each store keeps them in its own way.

        Args:
            store: the store.
            where: what `set_aside` returned.
        """
        raise NotImplementedError("StoreTests: say in `kept` how to read an entry that was set aside")

    def test_an_empty_store_has_no_names_and_no_leftovers(self, store: Store) -> None:
        """Nothing needs to be prepared."""
        assert store.names() == []
        assert store.remove_leftovers() == []

    def test_a_committed_entry_is_there_whole(self, store: Store) -> None:
        """Names are sorted, files have their sizes and bytes."""
        commit(store, "b")
        commit(store, "a", {"x": b"1"})

        assert store.names() == ["a", "b"]
        assert store.files("b") == {file: len(data) for file, data in FILES.items()}
        assert content(store) == {"a": {"x": b"1"}, "b": FILES}

    def test_nothing_is_visible_before_the_commit(self, store: Store) -> None:
        """Not under its name, and not under another."""
        with store.stage("a") as staging:
            staging.write("x", [b"1"])
            assert store.names() == []
            with pytest.raises(FileNotFoundError):
                store.files("a")
            staging.commit()

        assert store.names() == ["a"]

    def test_an_entry_that_is_left_without_a_commit_leaves_nothing(self, store: Store) -> None:
        """Leaving the context abandons it."""
        with store.stage("a") as staging:
            staging.write("x", [b"1"])

        assert store.names() == []
        assert store.remove_leftovers() == []

    def test_an_exception_abandons_the_entry_and_comes_out(self, store: Store) -> None:
        """Whatever the writer raised."""

        def stop() -> None:
            with store.stage("a") as staging:
                staging.write("x", [b"1"])
                raise ZeroDivisionError("mine")

        with pytest.raises(ZeroDivisionError, match="mine"):
            stop()
        assert store.names() == []
        assert store.remove_leftovers() == []

    def test_pieces_that_raise_abandon_the_entry(self, store: Store) -> None:
        """An error in the middle of a file."""

        def pieces() -> Iterator[bytes]:
            yield b"1"
            raise ZeroDivisionError("mine")

        def stop() -> None:
            with store.stage("a") as staging:
                staging.write("x", pieces())

        with pytest.raises(ZeroDivisionError, match="mine"):
            stop()
        assert store.names() == []
        assert store.remove_leftovers() == []

    def test_an_abandoned_name_can_be_committed_later(self, store: Store) -> None:
        """A failed save takes no name."""
        with store.stage("a") as staging:
            staging.write("x", [b"old"])
        commit(store, "a", {"x": b"new"})

        assert content(store) == {"a": {"x": b"new"}}

    def test_a_taken_name_is_refused_and_nothing_changes(self, store: Store) -> None:
        """Entries are immutable."""
        commit(store, "a")

        def again() -> None:
            with store.stage("a") as staging:
                staging.write("x", [b"other"])
                staging.commit()

        with pytest.raises(FileExistsError):
            again()
        assert content(store) == {"a": FILES}
        assert store.remove_leftovers() == []

    def test_an_entry_without_files_is_an_entry(self, store: Store) -> None:
        """It has a name."""
        commit(store, "a", {})

        assert content(store) == {"a": {}}

    def test_pieces_are_joined_whatever_buffer_they_come_in(self, store: Store) -> None:
        """Bytes, bytearrays and views, empty ones too."""
        array = np.arange(3, dtype=np.int16)
        pieces = [b"ab", bytearray(b"c"), b"", memoryview(b"de"), array.data]
        with store.stage("a") as staging:
            staging.write("x", iter(pieces))
            staging.commit()

        assert store.read("a", "x").tobytes() == b"abcde" + array.tobytes()
        assert store.files("a") == {"x": 11}

    def test_pieces_larger_and_more_than_any_buffer_arrive(self, store: Store) -> None:
        """Whatever the store gathers and writes at once."""
        large = np.arange(3 << 18, dtype=np.int32)
        small = [bytes([number % 256]) for number in range(3_000)]
        with store.stage("a") as staging:
            staging.write("x", [b"head", large.data, *small])
            staging.commit()

        assert store.read("a", "x").tobytes() == b"head" + large.tobytes() + b"".join(small)

    def test_pieces_may_change_after_the_write(self, store: Store) -> None:
        """None may change before `write` returns; afterwards they are the writer's again."""
        buffer = bytearray(b"aaaa")
        with store.stage("a") as staging:
            staging.write("x", [buffer])
            buffer[:] = b"bbbb"
            staging.commit()

        assert store.read("a", "x").tobytes() == b"aaaa"

    def test_a_file_is_written_once(self, store: Store) -> None:
        """A second write under its name is refused."""
        with store.stage("a") as staging:
            staging.write("x", [b"1"])
            with pytest.raises(FileExistsError):
                staging.write("x", [b"2"])

    def test_reading_gives_private_writable_bytes(self, store: Store) -> None:
        """Restores adopt them."""
        commit(store, "a")

        first, second = store.read("a", "a.safetensors"), store.read("a", "a.safetensors")
        first[:] = 7

        assert (first.dtype, first.ndim) == (np.uint8, 1)
        assert second.tobytes() == FILES["a.safetensors"]
        assert content(store) == {"a": FILES}

    def test_buffers_are_filled_one_after_another(self, store: Store) -> None:
        """From the file's start; empty ones between them take nothing, and a rest of the file may stay unread."""
        commit(store, "a")
        buffers = [bytearray(3), bytearray(0), bytearray(200)]

        store.read_into("a", "a.safetensors", [memoryview(buffer) for buffer in buffers])

        whole = FILES["a.safetensors"]
        assert [bytes(buffer) for buffer in buffers] == [whole[:3], b"", whole[3:203]]

    def test_a_file_can_be_read_from_its_middle(self, store: Store) -> None:
        """From the byte `offset` on, so that large files need no memory of their size."""
        commit(store, "a")
        buffers = [bytearray(3), bytearray(5)]

        store.read_into("a", "a.safetensors", [memoryview(buffer) for buffer in buffers], 100)

        whole = FILES["a.safetensors"]
        assert [bytes(buffer) for buffer in buffers] == [whole[100:103], whole[103:108]]

    def test_buffers_larger_than_the_file_are_told(self, store: Store) -> None:
        """Never filled in part without a word."""
        commit(store, "a")

        with pytest.raises(OSError, match=r"."):
            store.read_into("a", "a.safetensors", [memoryview(bytearray(257))])

    def test_missing_entries_and_files_are_told(self, store: Store) -> None:
        """By FileNotFoundError."""
        commit(store, "a")

        for missing in (
            lambda: store.files("b"),
            lambda: store.read("b", "MANIFEST.json"),
            lambda: store.read("a", "b"),
            lambda: store.read_into("a", "b", [memoryview(bytearray(1))]),
            lambda: store.set_aside("b"),
            lambda: store.remove("b"),
        ):
            with pytest.raises(FileNotFoundError):
                missing()
        assert content(store) == {"a": FILES}

    def test_an_entry_set_aside_is_kept_and_its_name_is_free(self, store: Store) -> None:
        """Damage is evidence."""
        commit(store, "a", {"x": b"damaged"})
        commit(store, "b", {"x": b"good"})

        where = store.set_aside("a")

        assert store.names() == ["b"]
        assert self.kept(store, where) == {"x": b"damaged"}
        commit(store, "a", {"x": b"new"})
        assert content(store) == {"a": {"x": b"new"}, "b": {"x": b"good"}}

    def test_the_same_name_can_be_set_aside_again_and_again(self, store: Store) -> None:
        """None of them replaces another."""
        places = []
        for data in (b"1", b"2", b"3"):
            commit(store, "a", {"x": data})
            places.append(store.set_aside("a"))

        assert len(set(places)) == 3
        assert [self.kept(store, where) for where in places] == [{"x": b"1"}, {"x": b"2"}, {"x": b"3"}]

    def test_a_removed_entry_is_gone_and_its_name_is_free(self, store: Store) -> None:
        """And nothing of it is left over."""
        commit(store, "a", {"x": b"old"})
        commit(store, "b", {"x": b"good"})

        store.remove("a")

        assert content(store) == {"b": {"x": b"good"}}
        assert store.remove_leftovers() == []
        commit(store, "a", {"x": b"new"})
        assert content(store) == {"a": {"x": b"new"}, "b": {"x": b"good"}}

    def test_a_file_of_a_committed_entry_is_taken_over_unchanged(self, store: Store) -> None:
        """By its name, beside files that are written."""
        commit(store, "a")
        with store.stage("b") as staging:
            staging.reuse("a.safetensors", "a")
            staging.write("x", [b"new"])
            staging.commit()

        assert content(store)["b"] == {"a.safetensors": FILES["a.safetensors"], "x": b"new"}
        assert content(store)["a"] == FILES

    def test_each_entry_stands_alone_after_a_file_was_taken_over(self, store: Store) -> None:
        """The first may be removed."""
        commit(store, "a")
        with store.stage("b") as staging:
            staging.reuse("a.safetensors", "a")
            staging.commit()

        store.remove("a")

        assert content(store) == {"b": {"a.safetensors": FILES["a.safetensors"]}}

    def test_taking_over_what_is_not_there_is_told(self, store: Store) -> None:
        """The entry may have been retained away meanwhile: the caller writes the file then."""
        commit(store, "a")

        with store.stage("b") as staging:
            for file, entry in (("a.safetensors", "missing"), ("missing", "a")):
                with pytest.raises(FileNotFoundError):
                    staging.reuse(file, entry)
            staging.write("a.safetensors", [b"written after all"])
            staging.commit()
        assert content(store)["b"] == {"a.safetensors": b"written after all"}

    def test_a_file_taken_over_is_not_written_over(self, store: Store) -> None:
        """It belongs to the other entry as well."""
        commit(store, "a")

        with store.stage("b") as staging:
            staging.reuse("a.safetensors", "a")
            with pytest.raises(FileExistsError):
                staging.write("a.safetensors", [b"other"])
        assert content(store) == {"a": FILES}

    def test_free_space_is_a_number_of_bytes_or_unknown(self, store: Store) -> None:
        """Never negative."""
        commit(store, "a")

        free = store.free_bytes()
        assert free is None or free > 0
