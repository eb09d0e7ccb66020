"""Rows: append-only data by absolute index, such as the transitions of a replay buffer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from perdure.errors import UsageError


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows `start` to `stop` of a ring: row `i` stands at index `i % capacity` of every column.

    A leaf of a tree. The memory is borrowed from the ring; what stands outside of the rows is no state.
    """

    start: int
    """The oldest row that is still there; rows are counted from the first that was ever added."""
    stop: int
    """One past the newest row."""
    columns: Mapping[str, np.ndarray]
    """By name: an array with `capacity` as its first axis, in C order."""
    cut: int | None = None
    """The row that is overwritten next, where rows stand for positions: a file had better end there."""
    digests: dict[tuple[str, int, int], str] = field(default_factory=dict, repr=False)
    """Digests that are known already, by column, first row and one past the last; whoever makes the rows answers for
    them. What is hashed is noted here, so that one save hashes nothing twice."""

    def __post_init__(self) -> None:
        """Refuses rows that the columns cannot hold."""
        capacities = {len(column) for column in self.columns.values()}
        if len(capacities) != 1 or not all(column.flags.c_contiguous for column in self.columns.values()):
            raise UsageError("Rows: every column is an array in C order, all with the same first axis.")
        if not 0 <= self.start <= self.stop <= self.start + self.capacity:
            raise UsageError(f"Rows: {self.start} to {self.stop} do not fit a capacity of {self.capacity}.")

    @property
    def capacity(self) -> int:
        """Rows that the ring can hold."""
        return len(next(iter(self.columns.values())))

    def owned(self) -> "Rows":
        """The same rows in memory of their own; that of rows which are not there is never touched."""
        columns = {name: np.zeros(column.shape, column.dtype) for name, column in self.columns.items()}
        copied = Rows(self.start, self.stop, columns)
        copied.fill_from(self)
        return copied

    def fill_from(self, other: "Rows") -> None:
        """Copies the rows `start` to `stop` of another ring of these columns; nothing where it is the same memory."""
        for name, column in self.columns.items():
            if column is other.columns[name]:
                continue
            pairs = zip(self.views(name, self.start, self.stop), other.views(name, self.start, self.stop), strict=True)
            for to, of in pairs:
                to[...] = of

    def views(self, name: str, start: int, stop: int) -> Iterator[np.ndarray]:
        """The rows `start` to `stop` of a column as views of the ring: two where they wrap around."""
        while start < stop:
            at = start % self.capacity
            length = min(stop - start, self.capacity - at)
            yield self.columns[name][at : at + length]
            start += length


def split_at_blocks(start: int, stop: int, block_rows: int) -> list[tuple[int, int]]:
    """The range cut at every multiple of `block_rows`, so that all ranges are cut at the same rows."""
    first = (start // block_rows + 1) * block_rows
    return list(pairwise([start, *range(first, stop, block_rows), stop])) if start < stop else []
