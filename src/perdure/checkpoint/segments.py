"""Segments: append-only rows are written once; later checkpoints share the files and add what is new."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from perdure.format.digests import Digest
from perdure.format.manifest import FileEntry
from perdure.format.row_nodes import BLOCK_ROWS, Segment, SegmentColumn, row_digest
from perdure.format.tensors import Layout, lay_out, pieces
from perdure.store.store import Staging
from perdure.tree.leaves import Array
from perdure.tree.rows import Rows, split_at_blocks

SMALLEST_SEGMENT_ROWS = 4 * BLOCK_ROWS
"""A shorter last segment is written again together with the next rows, so that files stay few."""

LARGE_SEGMENT_ROWS = 64 * BLOCK_ROWS
"""Many rows that are written at once go into segments of so many, below twice that: an edit costs one of them."""


@dataclass(frozen=True)
class WrittenRows:
    """The segments of one `Rows` leaf in a committed checkpoint."""

    segments: tuple[Segment, ...]
    """In order."""
    files: Mapping[str, FileEntry]
    """Size and digest of each segment's file."""


@dataclass(frozen=True)
class SegmentPlan:
    """How the rows of the next checkpoint come to disk."""

    shared: tuple[Segment, ...]
    """Segments of the checkpoint before that are taken over."""
    fresh: tuple[tuple[int, int], ...]
    """Row ranges that are written."""

    def fresh_bytes(self, rows: Rows) -> int:
        """Bytes that will be written, headers apart."""
        row_bytes = sum(column[:1].nbytes for column in rows.columns.values())
        return row_bytes * sum(stop - start for start, stop in self.fresh)


def plan_segments(rows: Rows, old: WrittenRows | None) -> SegmentPlan:
    """Which old segments still hold what the ring holds; every retained row whose digest is not known is hashed.

    Rows that somebody edited since are written again, with those before them in their segment; and so is the rest of
    a block whose first rows have left the ring: a digest covers whole blocks only.
    """
    shared: list[Segment] = []
    end = rows.start
    for segment in old.segments if old else ():
        if segment.stop > rows.stop or segment.columns.keys() != rows.columns.keys():
            continue
        begin = _unchanged_from(segment, rows, max(end, _first_shareable(segment, rows)))
        if begin >= segment.stop:
            continue
        if end < begin:
            _drop_short(shared, end)
        shared.append(replace(segment, used_from=begin))
        end = segment.stop
    if end < rows.stop:
        _drop_short(shared, end)
    return SegmentPlan(tuple(shared), tuple(_gaps(shared, rows)))


def _drop_short(shared: list[Segment], end: int) -> None:
    """Takes short segments away that end where rows are to be written, so that they are written together."""
    while shared and shared[-1].stop == end and shared[-1].stop - shared[-1].start < SMALLEST_SEGMENT_ROWS:
        end = shared.pop().used_from


def _gaps(shared: Sequence[Segment], rows: Rows) -> Iterator[tuple[int, int]]:
    """The row ranges that no shared segment holds, cut where segments end."""
    end = rows.start
    for begin, stop in (*((segment.used_from, segment.stop) for segment in shared), (rows.stop, rows.stop)):
        for part in _in_files(end, begin):
            yield from _cut(part, rows.cut)
        end = stop


def _in_files(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """A range cut into parts that are about equal, at block multiples; nothing if it is empty."""
    number = max(1, (stop - start) // LARGE_SEGMENT_ROWS)
    cuts = [(start + (stop - start) * part // number) // BLOCK_ROWS * BLOCK_ROWS for part in range(1, number)]
    yield from ((begin, end) for begin, end in pairwise([start, *cuts, stop]) if begin < end)


def _cut(part: tuple[int, int], at: int | None) -> list[tuple[int, int]]:
    """What follows is changed next: it would take the file of what precedes with it."""
    start, stop = part
    return [part] if at is None or not start < at < stop else [(start, at), (at, stop)]


def _first_shareable(segment: Segment, rows: Rows) -> int:
    if segment.used_from >= rows.start:
        return segment.used_from
    return -(-rows.start // BLOCK_ROWS) * BLOCK_ROWS


def _unchanged_from(segment: Segment, rows: Rows, begin: int) -> int:
    """From which row on a segment still holds what the ring holds; where it stops, if it does not at all."""
    changed = begin
    for name, column in segment.columns.items():
        parts = list(zip(segment.parts, column.digests, strict=True))
        for (start, stop), digest in reversed(parts):
            if start < changed:
                break
            if row_digest(rows, name, start, stop) != digest:
                changed = stop
                break
    return changed


def write_rows(
    staging: Staging, prefix: str, rows: Rows, plan: SegmentPlan, old: WrittenRows | None, entry: str | None
) -> WrittenRows:
    """Takes the shared segments over and writes the fresh ones.

    Args:
        staging: where to.
        prefix: of the files' names; the component, and a number where a component holds several rows.
        rows: the ring.
        plan: made from `rows` and `old`.
        old: the segments of the checkpoint before.
        entry: that checkpoint's name in the store.
    """
    segments, files = [], {}
    for segment in plan.shared:
        if old is None or entry is None or not share(staging, segment.file, entry):
            segment, files[segment.file] = write_segment(staging, prefix, rows, segment.used_from, segment.stop)
        else:
            files[segment.file] = old.files[segment.file]
        segments.append(segment)
    for start, stop in plan.fresh:
        segment, file_entry = write_segment(staging, prefix, rows, start, stop)
        segments.append(segment)
        files[segment.file] = file_entry
    return WrittenRows(tuple(sorted(segments, key=lambda segment: segment.used_from)), files)


def share(staging: Staging, file: str, entry: str) -> bool:
    """Whether a file of the checkpoint before could be taken over; it may be gone by now."""
    try:
        staging.reuse(file, entry)
    except FileNotFoundError:
        return False
    return True


def write_segment(staging: Staging, prefix: str, rows: Rows, start: int, stop: int) -> tuple[Segment, FileEntry]:
    """Writes one segment file: every column's rows `start` to `stop`.

    Args:
        staging: where to.
        prefix: of the file's name; the component, and its number where a component holds several rows.
        rows: the ring.
        start: first row.
        stop: one past the last row.
    """
    file = f"{prefix}.{start:08d}-{stop:08d}.safetensors"
    layout = lay_out({name: _blank(column, stop - start) for name, column in rows.columns.items()})
    whole = Digest()
    digests: dict[str, list[str]] = {name: [] for name in rows.columns}
    staging.write(file, _stream(rows, layout, split_at_blocks(start, stop, BLOCK_ROWS), whole, digests))
    columns = {name: SegmentColumn(layout.offsets[name], tuple(digests[name])) for name in rows.columns}
    return Segment(file, start, stop, start, columns), FileEntry(whole.length, whole.text())


def _blank(column: np.ndarray, number: int) -> Array:
    """Stands for so many rows in a layout, without their memory."""
    return Array(np.broadcast_to(np.zeros((), column.dtype), (number, *column.shape[1:])))


def _stream(
    rows: Rows,
    layout: Layout,
    parts: Sequence[tuple[int, int]],
    whole: Digest,
    digests: Mapping[str, list[str]],
) -> Iterator[bytes | memoryview]:
    whole.update(layout.header)
    yield layout.header
    for name in layout.arrays:
        for start, stop in parts:
            digest = Digest()
            for view in rows.views(name, start, stop):
                for piece in pieces(view, view.nbytes or 1):
                    whole.update(piece)
                    digest.update(piece)
                    yield piece
            rows.digests[name, start, stop] = digest.text()  # of what went to disk
            digests[name].append(digest.text())
