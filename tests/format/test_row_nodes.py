"""The manifest's entry for rows: one spelling, and refused unless the segments hold exactly the rows."""

import copy
from typing import Any

import numpy as np
import pytest

from perdure.checkpoint.save import About, save
from perdure.errors import DamagedError
from perdure.format.row_nodes import BLOCK_ROWS, decode_rows, encode_rows, rows_form
from perdure.store.memory import MemoryStore
from perdure.tree.rows import Rows, split_at_blocks
from perdure.tree.snapshot import Component, Snapshot

PATH = ("replay",)


def entry() -> dict[str, Any]:
    """The entry of 2,500 rows in two segments."""
    ring = {"x": np.arange(3000, dtype=np.int32)}
    store, last = MemoryStore(), None
    for number in (2000, 2500):
        rows = Rows(0, number, ring)
        last = save(store, f"s{number}", Snapshot({"replay": Component("x-r", rows)}, number, 0, 0), About(), last)
    assert last is not None
    return encode_rows(Rows(0, 2500, ring), last.rows[PATH].segments)


def test_an_entry_comes_back():
    """What was encoded is what is decoded."""
    stored = decode_rows(entry(), PATH)

    assert (stored.start, stored.stop, stored.capacity) == (0, 2500, 3000)
    assert stored.columns == {"x": (np.dtype("int32"), ())}
    assert [(segment.start, segment.stop) for segment in stored.segments] == [(0, 2500)]


def change(**fields: Any) -> Any:
    """Sets fields of the entry."""
    return lambda document: document.update(fields)


def change_segment(**fields: Any) -> Any:
    """Sets fields of the entry's segment."""
    return lambda document: document["segments"][0].update(fields)


@pytest.mark.parametrize(
    "edit",
    [
        change(start=-1),
        change(start=1),
        change(stop=2501),
        change(stop=2499),
        change(stop=True),
        change(capacity=2499),
        change(capacity="3000"),
        change(capacity=1 << 70),
        change(block_rows=512),
        change(columns={}),
        change(columns={"x": {"dtype": "int32", "shape": []}, "y": {"dtype": "int32", "shape": []}}),
        change(columns={"x": {"dtype": "object", "shape": []}}),
        change(columns={"x": {"dtype": "int32", "shape": [-1]}}),
        change(columns={"x": {"dtype": "int32", "shape": [1 << 61, 8]}}),
        change(columns=[1]),
        change(segments=[]),
        change(segments={}),
        change(surprise=1),
        lambda document: document.pop("stop"),
        lambda document: document["segments"].append(copy.deepcopy(document["segments"][0])),
        change_segment(file=3),
        change_segment(used_from=1),
        change_segment(start=1),
        change_segment(columns={}),
        change_segment(more=1),
        lambda document: document["segments"][0]["columns"]["x"]["digests"].pop(),
        lambda document: document["segments"][0]["columns"]["x"].update(digests=["XXH3"] * 3),
        lambda document: document["segments"][0]["columns"]["x"].update(offset=-8),
    ],
)
def test_a_malformed_entry_is_refused_and_its_place_named(edit: Any):
    """Anything else than what perdure writes is damage."""
    document = entry()
    edit(document)

    with pytest.raises(DamagedError, match=r"^replay: "):
        decode_rows(document, PATH)


def test_blocks_are_cut_at_the_same_rows_whatever_the_range():
    """So that the digest of the same rows is the same in every checkpoint."""
    assert split_at_blocks(0, 2500, BLOCK_ROWS) == [(0, 1024), (1024, 2048), (2048, 2500)]
    assert split_at_blocks(1000, 2500, BLOCK_ROWS) == [(1000, 1024), (1024, 2048), (2048, 2500)]
    assert split_at_blocks(1024, 2048, BLOCK_ROWS) == [(1024, 2048)]
    assert split_at_blocks(5, 5, BLOCK_ROWS) == []


def test_what_stands_outside_of_the_rows_is_no_state():
    """Two rings that hold the same rows have the same digest, whatever lies in their other slots."""
    first, second = np.zeros(10, np.int8), np.full(10, 7, np.int8)
    first[3:8] = second[3:8] = range(5)

    assert rows_form(Rows(3, 8, {"x": first})) == rows_form(Rows(3, 8, {"x": second}))
    assert rows_form(Rows(3, 8, {"x": first})) != rows_form(Rows(3, 9, {"x": first}))
