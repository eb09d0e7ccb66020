"""Part: replay buffers as append-only rows: what a checkpoint writes beside what is new."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common.report import Part, Target, number, table
from benchmarks.common.timing import note, seconds
from perdure.checkpoint.save import About, Saved, save
from perdure.store.local import LocalStore
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Component, Snapshot

TEXT = """\
A ring of transitions saved again and again, each save after so many new ones; first until the ring is full, then while
the oldest rows are overwritten. *Written* counts every byte of every file that a checkpoint did not share with
the one before, manifests and headers too. Each save hashes all rows again, to prove that the shared ones are
unchanged."""


@dataclass(frozen=True)
class Buffer:
    """A replay buffer and its cadence."""

    name: str
    """What tables call it."""
    capacity: int
    """Transitions that it holds."""
    every: int
    """New transitions between two checkpoints."""
    columns: Mapping[str, tuple[type, tuple[int, ...]]]
    """By name: dtype and shape of a row."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one transition."""
        return sum(np.zeros(shape, dtype).nbytes for dtype, shape in self.columns.values())


SMALL = Buffer(
    "10^6 transitions of 25 bytes, a checkpoint every 50,000",
    1_000_000,
    50_000,
    {"observation": (np.float32, (4,)), "action": (np.int32, ()), "reward": (np.float32, ()), "done": (np.bool_, ())},
)
FRAMES = Buffer(
    "10^5 transitions of 7 KiB (a frame of 84 × 84), a checkpoint every 5,000",
    100_000,
    5_000,
    {"frame": (np.uint8, (84, 84)), "action": (np.int32, ()), "reward": (np.float32, ()), "done": (np.bool_, ())},
)


@dataclass(frozen=True)
class Written:
    """What the checkpoints of one stretch wrote."""

    new_bytes: int
    """Of new transitions."""
    written_bytes: int
    """Of files that are not shared."""
    manifest_bytes: int
    """Of these, manifests."""
    longest_s: float
    """The longest save."""

    @property
    def ratio(self) -> float:
        """Written over new."""
        return self.written_bytes / self.new_bytes


def measure(directory: Path, repeats: int) -> Part:
    """Bytes are exact, so they are counted once whatever `repeats` says."""
    rows, targets = [], []
    for number_of, buffer in enumerate((SMALL, FRAMES)):
        note(f"replay: {buffer.name}")
        turns = buffer.capacity // buffer.every
        saves = list(_saves(buffer, directory / str(number_of), turns + turns // 2))
        filling, wrapping = _sum(buffer, saves[:turns]), _sum(buffer, saves[turns:])
        rows += [_row(buffer, "filling", filling), _row(buffer, "overwriting", wrapping)]
        targets += [_target(buffer, "filling", filling), _target(buffer, "overwriting", wrapping)]
    head = ("buffer", "new, MB", "written, MB", "of that manifests, MB", "written / new", "longest save, ms")
    return Part("Replay rows", TEXT, [table(head, rows)], targets)


def _saves(buffer: Buffer, directory: Path, turns: int) -> Iterator[tuple[int, int, float]]:
    """Bytes written, those of the manifest, and the seconds of each save; the disk holds two at a time."""
    store = LocalStore(directory, directory / "damaged")
    rng = np.random.default_rng(0)
    columns = {name: np.zeros((buffer.capacity, *shape), dtype) for name, (dtype, shape) in buffer.columns.items()}
    previous: list[Saved] = []
    for turn in range(1, turns + 1):
        stop = turn * buffer.every
        _collect(columns, stop - buffer.every, stop, rng)
        rows = Rows(max(0, stop - buffer.capacity), stop, columns)
        snapshot = Snapshot({"replay": Component("replay", rows)}, stop, turn, turn)
        before = previous[-1] if previous else None
        taken = seconds(
            lambda snapshot=snapshot, before=before, turn=turn: previous.append(
                save(store, f"{turn:06d}", snapshot, About(), before)
            )
        )
        sizes = {
            file.name: file.stat().st_size
            for file in (directory / f"{turn:06d}").iterdir()
            if file.stat().st_nlink == 1
        }
        yield sum(sizes.values()), sizes["MANIFEST.json"], taken
        if before:
            store.remove(before.name)


def _collect(columns: Mapping[str, np.ndarray], start: int, stop: int, rng: np.random.Generator) -> None:
    """Fills the rows `start` to `stop`; they do not wrap around, for the capacity is a multiple of the cadence."""
    for column in columns.values():
        part = column[start % len(column) : start % len(column) + stop - start]
        part.reshape(-1).view(np.uint8)[:] = np.frombuffer(rng.bytes(part.nbytes), np.uint8) & 1


def _sum(buffer: Buffer, saves: list[tuple[int, int, float]]) -> Written:
    written, manifests, times = zip(*saves, strict=True)
    return Written(buffer.row_bytes * buffer.every * len(saves), sum(written), sum(manifests), max(times))


def _row(buffer: Buffer, stretch: str, found: Written) -> tuple[str, ...]:
    figures = (found.new_bytes / 1e6, found.written_bytes / 1e6, found.manifest_bytes / 1e6, found.ratio)
    return f"{buffer.name}, {stretch}", *(number(figure) for figure in figures), number(found.longest_s * 1e3)


def _target(buffer: Buffer, stretch: str, found: Written) -> Target:
    rest = (found.written_bytes - found.new_bytes - found.manifest_bytes) / found.new_bytes
    limit = (
        f"manifests alone are {found.manifest_bytes / found.new_bytes:.0%} of the new bytes (every block of 1,024 rows "
        f"of each column has its digest in each manifest), and rows that are written a second time {rest:.0%}."
    )
    text = f"{found.ratio:.3f} ×"
    return Target(f"{buffer.name}, {stretch}", "written ≤ 1.05 × new", text, is_met=found.ratio <= 1.05, limit=limit)
