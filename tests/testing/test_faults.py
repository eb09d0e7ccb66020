"""Faults come at the call that was asked for, once or ever after, and are counted across threads."""

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import perdure.testing
from perdure.store.filesystem import FileSystem
from perdure.store.memory import MemoryStore
from perdure.testing import Fault, FaultyFileSystem, FaultyStore
from perdure.testing.store_tests import commit


def test_the_public_names_are_all_there_and_no_others() -> None:
    public = {name for name in vars(perdure.testing) if name[0].isupper() or name.startswith("assert_")}

    assert sorted(public) == perdure.testing.__all__
    assert all(getattr(perdure.testing, name).__doc__ for name in public)


def test_one_call_fails_and_the_others_do_not() -> None:
    fault = Fault(1, errno.ENOSPC)
    fault.meet("first")
    with pytest.raises(OSError, match=r"No space left on device \(call 1, second\)") as caught:
        fault.meet("second")
    fault.meet("third")

    assert caught.value.errno == errno.ENOSPC
    assert (fault.fired, fault.calls) == (True, ["first", "second", "third"])
    assert str(fault) == "ENOSPC at call 1 (second)"


def test_a_lasting_fault_spares_what_only_reads() -> None:
    fault = Fault(0, errno.EROFS, lasting=True)
    for change in ("rename", "remove_tree"):
        with pytest.raises(OSError, match="Read-only"):
            fault.meet(change)
    fault.meet("read_file")
    assert str(fault) == "EROFS at call 0 (rename) and ever after"

    fault.end()
    fault.meet("rename")


def test_no_fault_only_counts() -> None:
    fault = Fault(None)
    fault.meet("any")

    assert not fault.fired
    assert str(fault) == "EIO at call None (no call)"


def test_faults_go_through_all_calls_for_each_error_and_end_with_one_that_is_spared() -> None:
    seen = []
    for fault in Fault.at_each_call(errno.EIO, errno.ENOSPC):
        for call in ("a", "b"):
            try:
                fault.meet(call)
            except OSError as error:
                seen.append((call, error.errno))
        if not fault.fired:
            seen.append(("spared", None))

    each = [(("a", number), ("b", number), ("spared", None)) for number in (errno.EIO, errno.ENOSPC)]
    assert seen == [*each[0], *each[1]]


def test_calls_of_many_threads_are_counted_once_each() -> None:
    fault = Fault(50)
    with ThreadPoolExecutor(8) as threads:
        errors = list(threads.map(lambda _: fault.take("call"), range(100)))

    assert len(fault.calls) == 100
    assert sum(error is not None for error in errors) == 1


def test_a_write_that_fails_leaves_a_part_behind(tmp_path: Path) -> None:
    disk = FaultyFileSystem(FileSystem(), Fault(0, errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        disk.write_file(tmp_path / "x", [b"1234", b"5678"])

    assert (tmp_path / "x").read_bytes() == b"1234"


def test_a_faulty_store_fails_at_each_of_its_calls_and_changes_nothing() -> None:
    calls, seen = set(), set()
    for fault in Fault.at_each_call():
        inner = MemoryStore()
        commit(inner, "a", {"x": b"1"})
        store = FaultyStore(inner, fault)
        try:
            store.free_bytes()
            store.remove_leftovers()
            with store.stage("b") as staging:
                staging.reuse("x", "a")
                staging.write("y", [b"2"])
                staging.commit()
            assert store.names() == ["a", "b"]
            assert store.files("b") == {"x": 1, "y": 1}
            assert store.read("b", "y").tobytes() == b"2"
            store.read_into("b", "y", [memoryview(bytearray(1))])
            store.set_aside("b")
            store.remove("a")
        except OSError:
            calls.add(fault.calls[-1])
            assert "a" in inner.names()
        seen |= set(fault.calls)

    assert calls == seen
    assert {"stage", "commit", "reuse", "set_aside", "remove", "read_into"} <= seen
