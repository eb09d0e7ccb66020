"""`Ring`: a replay buffer in plain NumPy, of which a checkpoint writes only what is new."""

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from perdure.adapters.ring_columns import Column, fitting, kind_of, memory_of, natural
from perdure.errors import UsageError
from perdure.format.row_nodes import BLOCK_ROWS
from perdure.tree.rows import Rows


class Ring:
    """A ring of transitions: row `i`, counted from the first ever added, stands at index `i % capacity` of each column.

    ```python
    replay = perdure.Ring(1_000_000, {"observation": (np.uint8, (84, 84)), "action": np.int64, "reward": np.float32})
    replay.add(observation=observation, action=action, reward=reward)
    batch = replay.sample(rng, 32)  # a dict of arrays; rng is a numpy.random.Generator
    ```

    A live component: a run restores it in place. Rows are written to a checkpoint once, and later checkpoints share
    them; whatever `update` changed is written again. The columns can be read as they are, but not written to: an edit
    that the ring does not know of would be in no checkpoint.

    Attributes:
        capacity: rows that it can hold.
        num_envs: transitions in one row; None: one, without an axis of its own.
        total: rows that were ever added.
    """

    def __init__(
        self,
        capacity: int,
        columns: Mapping[str, Column],
        *,
        num_envs: int | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        """Makes an empty ring.

        Args:
            capacity: rows that it can hold.
            columns: by name: a dtype, or a pair of a dtype and the shape of one transition's value.
            num_envs: environments that are stepped together: a row holds a transition of each, along its first axis.
            directory: where the columns are memory-mapped files, `NAME.column`, for rings beyond the memory. They hold
                what is newest; what a run goes on from are its checkpoints, and a restore rolls the files back. One
                ring at a time may use a directory.

        Raises:
            UsageError: an argument cannot be right, or a file of another size stands in `directory`.
        """
        self.capacity = natural("capacity", capacity)
        self.num_envs = None if num_envs is None else natural("num_envs", num_envs)
        self.total = 0
        if not columns:
            raise UsageError("Ring: at least one column, such as {'reward': np.float32}.")
        axes = (self.capacity,) if self.num_envs is None else (self.capacity, self.num_envs)
        kinds = {name: kind_of(name, column) for name, column in columns.items()}
        folder = None if directory is None else Path(directory).expanduser().absolute()
        self._lend({name: memory_of(folder, name, dtype, axes + shape) for name, (dtype, shape) in kinds.items()})

    def _lend(self, columns: dict[str, np.ndarray], *, is_theirs: bool = False) -> None:
        self._columns = columns
        axes = 1 if self.num_envs is None else 2
        self._flat = {name: column.reshape(-1, *column.shape[axes:]) for name, column in columns.items()}
        self._digests: dict[tuple[str, int, int], str] = {}
        self._is_theirs = is_theirs

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: the columns once, for views of them would become arrays of their own."""
        return {name: value for name, value in vars(self).items() if name not in ("_flat", "_digests")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Makes the views anew."""
        vars(self).update(state)
        self._lend(state["_columns"], is_theirs=state["_is_theirs"])

    def __copy__(self) -> Self:
        """A deep copy, in memory: two rings on one memory would not know of each other's edits."""
        return copy.deepcopy(self)

    @classmethod
    def over(cls, columns: Mapping[str, np.ndarray], total: int) -> Self:
        """A ring on arrays of the user's own, which go on being written to without it.

        For buffers that keep their arrays themselves: their `state_dict()` returns such a ring in place of the arrays,
        made anew each time, and a restore fills them in place (docs/replay.md). Nobody tells it of edits: each save
        looks for them in all that the arrays hold.

        Args:
            columns: by name, arrays in C order with the capacity as their first axis; `columns` gives them back as
                they are.
            total: rows that were ever added: row `i` stands at index `i % capacity`.

        Raises:
            UsageError: they are no such arrays.
        """
        ring = cls.__new__(cls)
        arrays = [column for column in columns.values() if isinstance(column, np.ndarray) and column.ndim]
        sizes = {len(column) for column in arrays if column.flags.c_contiguous}
        if len(arrays) < len(columns) or len(sizes) != 1 or not all(column.flags.c_contiguous for column in arrays):
            raise UsageError("Ring.over: arrays in C order, all with the same first axis.")
        if not isinstance(total, int | np.integer) or isinstance(total, bool) or total < 0:
            raise UsageError(f"Ring.over: total={total!r}; a whole number, of all rows that were ever added.")
        ring.capacity, ring.num_envs, ring.total = natural("capacity", sizes.pop()), None, int(total)
        ring._lend(dict(columns), is_theirs=True)
        return ring

    def __len__(self) -> int:
        """Transitions that it holds: rows times environments."""
        return (self.total - self.start) * (self.num_envs or 1)

    def __repr__(self) -> str:
        """How full it is, and of what."""
        kinds = ", ".join(f"{name}: {column.dtype}{list(column.shape[1:])}" for name, column in self._columns.items())
        return f"Ring({self.total - self.start:,} of {self.capacity:,} rows, {self.total:,} added; {kinds})"

    @property
    def start(self) -> int:
        """The oldest row that is still there."""
        return max(0, self.total - self.capacity)

    @property
    def cursor(self) -> int:
        """The index that the next row goes to."""
        return self.total % self.capacity

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Read-only views: (capacity, *shape), or (capacity, num_envs, *shape). Rows that were not added are noise."""
        if self._is_theirs:
            return MappingProxyType(self._columns)
        views = {name: column.view(np.ndarray) for name, column in self._columns.items()}
        for view in views.values():
            view.flags.writeable = False
        return MappingProxyType(views)

    def add(self, **columns: Any) -> int:
        """Adds one row, over the oldest where the ring is full.

        Args:
            **columns: a value for every column: of the shape of one transition, or of `num_envs` of them.

        Returns:
            Its index.

        Raises:
            UsageError: a column is missing or unknown, or a value has another shape or kind; nothing was added.
        """
        row = {name: value[None] for name, value in self._checked("add", columns, 0).items()}
        self._write(row, 1)
        return (self.total - 1) % self.capacity

    def extend(self, **columns: Any) -> None:
        """Adds several rows, in order; of more than `capacity` only the last stay.

        Args:
            **columns: for every column an array with the rows along its first axis.

        Raises:
            UsageError: as for `add`, or the columns have not equally many rows.
        """
        rows = self._checked("extend", columns, 1)
        lengths = {len(value) for value in rows.values()}
        if len(lengths) != 1:
            raise UsageError(f"Ring.extend: columns of {sorted(lengths)} rows; each must have as many.")
        self._write(rows, lengths.pop())

    def update(self, places: np.ndarray, **columns: Any) -> None:
        """Changes transitions that are there already; the next checkpoint writes their blocks again.

        Args:
            places: which, as `draw` gives them, shape (number,).
            **columns: for each column to change the new values, shape (number, *shape).

        Raises:
            UsageError: there is no such place or column, or a value has another shape or kind.
        """
        places = self._places(places)
        if unknown := sorted(columns.keys() - self._columns):
            raise UsageError(f"Ring.update: no columns {unknown}; there are {list(self._columns)}.")
        checked = {name: fitting("update", name, value, self._flat[name][places]) for name, value in columns.items()}
        for name, value in checked.items():
            self._flat[name][places] = value
        slots = places // (self.num_envs or 1)
        newest = self.total - 1
        blocks = set(((newest - (newest - slots) % self.capacity) // BLOCK_ROWS).tolist())
        for key in [key for key in self._digests if key[0] in columns and key[1] // BLOCK_ROWS in blocks]:
            del self._digests[key]

    def draw(self, generator: np.random.Generator, batch: int) -> np.ndarray:
        """Places of transitions, drawn uniformly and with replacement.

        Args:
            generator: drawn from once; hand it to the run as well.
            batch: how many.

        Returns:
            int64, shape (batch,): index of the row times the number of environments plus that of the environment.

        Raises:
            UsageError: the ring is empty, or `generator` is none.
        """
        self._refuse_draw(generator)
        return generator.integers(len(self), size=batch)

    def take(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """Copies of the transitions at `places`: by column, shape (number, *shape)."""
        places = self._places(places)
        return {name: column[places] for name, column in self._flat.items()}

    def sample(self, generator: np.random.Generator, batch: int) -> dict[str, np.ndarray]:
        """A batch drawn uniformly: `take(draw(generator, batch))`."""
        return self.take(self.draw(generator, batch))

    def n_step(
        self, places: np.ndarray, steps: int, gamma: float, *, reward: str, ended: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Discounted sums of the rewards from each place on, until `steps` are done, an episode ends or the rows do.

        Args:
            places: where to begin, shape (number,).
            steps: how many rewards at most.
            gamma: discount factor.
            reward: the column of rewards, one number a transition.
            ended: the column that is not 0 where an episode ended, by termination or truncation.

        Returns:
            The sums, float64; the places of the last transitions, from whose next observations to go on; and the
            factors of what is expected there: `gamma` to the power of the rewards added. Each of shape (number,).
        """
        envs = self.num_envs or 1
        last, sums = self._places(places), np.zeros(len(places))
        factors, goes_on = np.ones(len(sums)), np.ones(len(sums), bool)
        newest = (self.total - 1) % self.capacity
        at = last
        for _ in range(steps):
            last = np.where(goes_on, at, last)
            sums += np.where(goes_on, factors * self._flat[reward][last], 0.0)
            factors = np.where(goes_on, factors * gamma, factors)
            goes_on = goes_on & (self._flat[ended][last] == 0) & (last // envs != newest)
            at = np.where(goes_on, (last + envs) % (self.capacity * envs), last)
        return sums, last, factors

    def rows(self) -> Rows:
        """What adapters store: the rows with their memory, and the digests of blocks that are known to be unchanged."""
        if self._is_theirs:
            return Rows(self.start, self.total, self._columns)
        whole = {key: digest for key, digest in self._digests.items() if key[2] - key[1] == BLOCK_ROWS}
        self._digests = {key: digest for key, digest in whole.items() if key[1] >= self.start}
        return Rows(self.start, self.total, self._columns, digests=self._digests)

    def restore(self, rows: Rows) -> None:
        """Takes the rows of another ring with the same columns, in place."""
        self._digests = {}
        self.total = rows.stop
        Rows(rows.start, rows.stop, self._columns).fill_from(rows)

    def _refuse_draw(self, generator: np.random.Generator) -> None:
        if not isinstance(generator, np.random.Generator):
            raise UsageError(f"Ring.draw: {generator!r} is no numpy.random.Generator; make one by default_rng(seed).")
        if self.total == 0:
            raise UsageError("Ring.draw: the ring is empty.")

    def _write(self, rows: Mapping[str, np.ndarray], number: int) -> None:
        done = max(0, number - self.capacity)
        self.total += done
        while done < number:
            part = min(number - done, self.capacity - self.cursor)
            for name, value in rows.items():
                self._columns[name][self.cursor : self.cursor + part] = value[done : done + part]
            done += part
            self.total += part

    def _checked(self, verb: str, columns: Mapping[str, Any], axes: int) -> dict[str, np.ndarray]:
        if columns.keys() != self._columns.keys():
            missing, unknown = sorted(self._columns.keys() - columns.keys()), sorted(columns.keys() - self._columns)
            raise UsageError(f"Ring.{verb}: columns {missing} are missing, {unknown} are none; give each one.")
        checked = {}
        for name, value in columns.items():
            like = self._columns[name][0]
            if axes:
                like = np.broadcast_to(like, (len(np.atleast_1d(value)), *like.shape))
            checked[name] = fitting(verb, name, value, like)
        return checked

    def _places(self, places: Any) -> np.ndarray:
        places = np.asarray(places)
        if places.ndim != 1 or places.dtype.kind not in "iu":
            raise UsageError(f"Ring: places are {places.dtype} of shape {places.shape}; integers of shape (number,).")
        if places.size and not 0 <= places.min() <= places.max() < len(self):
            raise UsageError(f"Ring: places from {places.min()} to {places.max()}; it holds {len(self)} transitions.")
        return places
