"""Rows are read into empty rings at once, in groups of bounded size, and large reads are told of."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.checkpoint import filling
from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.save import About, save
from perdure.store.memory import MemoryStore
from perdure.tree.diff import diff_snapshots
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Component, Snapshot


class Watched(MemoryStore):
    """Notes how much is read at once."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int]] = []

    def read_into(self, name: str, file: str, buffers: Any, offset: int = 0) -> None:
        self.reads.append((offset, sum(buffer.nbytes for buffer in buffers)))
        super().read_into(name, file, buffers, offset)


def saved(store: MemoryStore, start: int = 0, stop: int = 20_000) -> Snapshot:
    """A ring in a checkpoint whose oldest rows have left it."""
    columns = {"x": np.arange(60_000.0).reshape(20_000, 3), "y": np.arange(20_000)}
    previous = save(store, "before", _snapshot(Rows(0, 20_000, columns)), About()) if start else None
    snapshot = _snapshot(Rows(start, stop, columns))
    save(store, "a", snapshot, About(), previous)
    return snapshot


def _snapshot(rows: Rows) -> Snapshot:
    return Snapshot({"ring": Component("x-ring", rows)}, 1, 1, 1)


def test_files_are_read_in_groups(monkeypatch: pytest.MonkeyPatch):
    """So that blocks which have left the ring, of which memory holds nothing, never take more than a group and one."""
    monkeypatch.setattr(filling, "GROUP_BYTES", 50_000)
    store = Watched()
    snapshot = saved(store, 9_000, 29_000)

    opened = open_checkpoint(store, "a")

    assert diff_snapshots(opened.snapshot, snapshot) == []
    assert len(store.reads) > 5
    assert max(size for _, size in store.reads) < 50_000 + 2 * 1_024 * 24
    ends = [offset + size for offset, size in store.reads]
    assert [offset for offset, _ in store.reads if offset] == [end for end in ends if end in dict(store.reads)]


@pytest.mark.parametrize("where", [3, 700, 40_000, 200_000, -1])
def test_a_flipped_bit_is_found_in_whatever_group_it_stands(where: int, monkeypatch: pytest.MonkeyPatch):
    """The header, a block that is used, and one that has left the ring."""
    monkeypatch.setattr(filling, "GROUP_BYTES", 50_000)
    store = MemoryStore()
    saved(store, 9_000, 29_000)
    file = next(file for file in store.entries["a"] if file.startswith("ring.00000000"))
    data = bytearray(store.entries["a"][file])
    data[where] ^= 2
    store.entries["a"][file] = bytes(data)
    with pytest.raises(perdure.DamagedError, match=r"^a/ring\.00000000-00020000\.safetensors: "):
        open_checkpoint(store, "a")


def test_rows_go_straight_into_an_empty_ring():
    """Its very memory; a ring of another layout gets none of it, and no ring is asked for where there are no rows."""
    store = MemoryStore()
    snapshot = saved(store)
    columns = {"x": np.zeros((20_000, 3)), "y": np.zeros(20_000, np.int64)}

    opened = open_checkpoint(store, "a", rings=lambda: {("ring",): Rows(0, 0, columns)})

    assert opened.snapshot.components["ring"].tree.columns["x"] is columns["x"]
    assert diff_snapshots(opened.snapshot, snapshot) == []
    other = {"x": np.zeros((20_000, 3), np.float32), "y": np.zeros(20_000, np.int64)}
    opened = open_checkpoint(store, "a", rings=lambda: {("ring",): Rows(0, 0, other)})
    assert diff_snapshots(opened.snapshot, snapshot) == []
    assert not other["y"].any()

    def never() -> dict[Any, Rows]:
        raise AssertionError

    save(store, "b", Snapshot({"n": Component("plain", 3)}, 1, 1, 1), About())
    open_checkpoint(store, "b", rings=never)


def test_the_progress_of_a_large_read_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    """Of more than 1 GiB in all; a small one is silent."""
    ring = perdure.Ring(200_000, {"x": np.float64})
    ring.extend(x=np.arange(200_000))
    perdure.save(tmp_path / "a", ring=ring)
    with caplog.at_level(logging.WARNING, "perdure"):
        perdure.load(tmp_path / "a", ring=perdure.Ring(200_000, {"x": np.float64}))
        assert caplog.messages == []
        monkeypatch.setattr(filling, "TOLD_BYTES", 500_000)
        perdure.load(tmp_path / "a", ring=perdure.Ring(200_000, {"x": np.float64}))
    assert caplog.messages[-1] == "a: 0.0 of 0.0 GB read and verified"
    assert len(caplog.messages) == 3
