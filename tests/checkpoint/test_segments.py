"""Append-only rows are written once, shared by later checkpoints, verified when written and when loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.save import About, Saved, save
from perdure.checkpoint.segments import SMALLEST_SEGMENT_ROWS
from perdure.errors import DamagedError, UsageError
from perdure.format.row_nodes import BLOCK_ROWS
from perdure.store.local import LocalStore
from perdure.store.memory import MemoryStore
from perdure.tree.diff import diff_snapshots
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Component, Snapshot


class Ring:
    """A ring of transitions that is saved again and again."""

    def __init__(self, capacity: int, store: Any) -> None:
        self.columns = {"obs": np.zeros((capacity, 3), np.float32), "done": np.zeros(capacity, bool)}
        self.capacity, self.added, self.saves, self.store = capacity, 0, 0, store
        self.last: Saved | None = None
        self.generator = np.random.default_rng(0)

    def add(self, number: int) -> None:
        """Adds so many rows, over the oldest ones where the ring is full."""
        at = np.arange(self.added, self.added + number) % self.capacity
        self.columns["obs"][at] = self.generator.normal(size=(number, 3))
        self.columns["done"][at] = self.generator.random(number) < 0.1
        self.added += number

    @property
    def rows(self) -> Rows:
        """What is in it now."""
        return Rows(max(0, self.added - self.capacity), self.added, self.columns)

    def snapshot(self) -> Snapshot:
        """The ring as the only component."""
        return Snapshot({"replay": Component("x-ring", {"ring": self.rows})}, self.added, self.saves, self.saves)

    def save(self) -> Saved:
        """Commits, sharing what can be shared."""
        self.saves += 1
        self.last = save(self.store, f"save_{self.saves}", self.snapshot(), About(), self.last)
        return self.last

    def check(self, saved: Saved) -> None:
        """What is on disk is the ring, and the digest does not depend on the segments."""
        opened = open_checkpoint(self.store, saved.name)
        assert diff_snapshots(opened.snapshot, self.snapshot()) == []
        alone = save(MemoryStore(), "alone", self.snapshot(), About())
        assert saved.state_digest == opened.manifest.state_digest == alone.state_digest


ROW_BYTES = 3 * 4 + 1


@settings(max_examples=25, deadline=None)
@given(
    capacity=st.integers(1, 9000),
    steps=st.lists(st.tuples(st.integers(0, 6000), st.booleans()), min_size=1, max_size=6),
)
def test_any_history_of_adding_and_editing_comes_back(capacity: int, steps: list[tuple[int, bool]]):
    """Whatever was added, overwritten or edited in between, each checkpoint holds the ring as it was."""
    ring = Ring(capacity, MemoryStore())
    for number, edit in steps:
        ring.add(min(number, capacity))
        if edit and ring.added:
            ring.columns["done"][ring.generator.integers(min(ring.added, capacity))] ^= True
        ring.check(ring.save())


def test_only_new_rows_are_written():
    """A checkpoint writes the new rows and at most one block of old ones, and headers."""
    ring = Ring(20_000, MemoryStore())
    ring.add(20_000)
    ring.save()
    for _ in range(4):
        ring.add(5_000)
        saved = ring.save()
        headers = 4_000
        assert saved.written_bytes <= (5_000 + BLOCK_ROWS) * ROW_BYTES + headers
        assert saved.size_bytes >= 20_000 * ROW_BYTES
        ring.check(saved)


def test_an_edited_row_is_written_again():
    """A row that somebody changed after it was saved is on disk as it is now; later ones of its file stay shared."""
    ring = Ring(30_000, MemoryStore())
    ring.add(10_000)
    ring.save()
    ring.columns["obs"][5_000, 1] = 77.0
    ring.add(5_000)

    saved = ring.save()

    ring.check(saved)
    headers = 4_000
    assert 10_120 * ROW_BYTES < saved.written_bytes < 10_120 * ROW_BYTES + headers


def test_short_segments_are_joined_so_that_files_stay_few():
    """Saving every few rows does not make a file each."""
    ring = Ring(30_000, MemoryStore())
    for _ in range(40):
        ring.add(512)
        ring.save()
    assert ring.last is not None
    files = [file for file in ring.store.files(ring.last.name) if file.startswith("replay.")]
    assert len(files) <= 40 * 512 // SMALLEST_SEGMENT_ROWS + 1
    ring.check(ring.last)


def test_segments_are_hard_links_and_survive_the_removal_of_the_first_checkpoint(tmp_path: Path):
    """Each checkpoint stands alone: the file lives as long as one of them does."""
    ring = Ring(30_000, LocalStore(tmp_path / "c", tmp_path / "d"))
    ring.add(8_000)
    first = ring.save()
    ring.add(8_000)
    second = ring.save()
    name = "replay.00000000-00008000.safetensors"
    inodes = {(tmp_path / "c" / saved.name / name).stat().st_ino for saved in (first, second)}
    assert len(inodes) == 1

    ring.store.remove(first.name)

    ring.check(second)


def test_a_segment_that_is_gone_is_written_again(tmp_path: Path):
    """The checkpoint before may have been removed by hand: nothing is believed of it."""
    ring = Ring(30_000, LocalStore(tmp_path / "c", tmp_path / "d"))
    ring.add(8_000)
    ring.store.remove(ring.save().name)
    ring.add(100)

    ring.check(ring.save())


@pytest.mark.parametrize("where", [0, 20, 700, 50_000, -1])
def test_damage_to_a_segment_is_named(tmp_path: Path, where: int):
    """One flipped bit anywhere in a segment file is refused with the file's name."""
    ring = Ring(30_000, LocalStore(tmp_path / "c", tmp_path / "d"))
    ring.add(8_000)
    saved = ring.save()
    path = tmp_path / "c" / saved.name / "replay.00000000-00008000.safetensors"
    data = bytearray(path.read_bytes())
    data[where] ^= 4
    path.write_bytes(data)

    with pytest.raises(DamagedError, match=r"save_1/replay\.00000000-00008000\.safetensors: "):
        open_checkpoint(ring.store, saved.name)


def test_two_rings_in_one_component_have_files_of_their_own():
    """Names do not clash."""
    first, second = Ring(10, MemoryStore()), Ring(10, MemoryStore())
    first.add(7)
    second.add(9)
    rows = {"a": first.rows, "b": [second.rows]}
    snapshot = Snapshot({"replay": Component("x-rings", rows)}, 1, 1, 1)

    save(first.store, "both", snapshot, About())

    assert diff_snapshots(open_checkpoint(first.store, "both").snapshot, snapshot) == []
    assert sorted(first.store.files("both")) == [
        "MANIFEST.json",
        "replay.00000000-00000007.safetensors",
        "replay.1.00000000-00000009.safetensors",
    ]


@pytest.mark.parametrize(
    ("start", "stop", "columns", "message"),
    [
        (0, 11, {"x": np.zeros(10)}, "0 to 11 do not fit a capacity of 10"),
        (3, 2, {"x": np.zeros(10)}, "3 to 2 do not fit"),
        (0, 1, {"x": np.zeros(10), "y": np.zeros(9)}, "the same first axis"),
        (0, 1, {"x": np.zeros((10, 2), order="F")}, "in C order"),
    ],
)
def test_rows_that_cannot_be_are_refused(start: int, stop: int, columns: dict[str, np.ndarray], message: str):
    """A ring that cannot hold its rows is an error where it is made."""
    with pytest.raises(UsageError, match=message):
        Rows(start, stop, columns)


@settings(max_examples=25, deadline=None)
@given(
    capacity=st.integers(1, 9000),
    steps=st.lists(st.tuples(st.integers(0, 6000), st.booleans()), min_size=1, max_size=6),
)
def test_rows_by_position_come_back_whatever_was_overwritten(capacity: int, steps: list[tuple[int, bool]]):
    """A ring without a count of what was ever added: changes are found by digests alone."""

    class Positions(Ring):
        @property
        def rows(self) -> Rows:
            """From the first index, whatever has been overwritten."""
            return Rows(0, min(self.added, self.capacity), self.columns, cut=self.added % self.capacity)

    ring = Positions(capacity, MemoryStore())
    for number, edit in steps:
        ring.add(min(number, capacity))
        if edit and ring.added:
            ring.columns["done"][ring.generator.integers(min(ring.added, capacity))] ^= True
        ring.check(ring.save())
