"""Part: reading a file of storage-ckpt beside a raw read of the same bytes."""

from pathlib import Path

import numpy as np

from benchmarks.common.report import Part, Target, number, time_table
from benchmarks.common.scratch import warm
from benchmarks.common.timing import Sample, Work, interleaved, note, seconds
from perdure.interop.storage_ckpt import Section, read, write

RAW, ARRAYS, HEADERS = "raw read into new memory", "read(path).loaded(), every value in memory", "read, headers only"
MEBIBYTES = 256

TEXT = f"""\
{MEBIBYTES} MiB of version 3: 64 sections, every other one with Adam's moments. Reads come from the page cache, so
they show what processors do. The raw read is one `readinto` of the whole file; perdure's ends when every value and
moment stands in memory of its own, aligned, as a load needs it."""


def measure(directory: Path, repeats: int) -> Part:
    """Seconds of each."""
    note("storage-ckpt: reading")
    directory.mkdir()
    path = directory / "large.ckpt"
    _make(path)
    warm(directory)
    spare = path.stat().st_size
    samples = interleaved(
        {
            RAW: _timed(lambda: _raw(path), spare),
            ARRAYS: _timed(lambda: _copied(path), spare),
            HEADERS: _timed(lambda: read(path), spare),
        },
        repeats,
    )
    return Part("storage-ckpt", TEXT, [time_table(samples, ratio_to=RAW)], [_target(samples)])


def _make(path: Path) -> None:
    random = np.random.default_rng(0)
    size = MEBIBYTES * (1 << 20) // 4 // 128  # 32 sections of one array and 32 of three
    sections = []
    for at in range(64):
        moments = [random.random(size, np.float32) for _ in range(2)] if at % 2 else []
        sections.append(Section("P", f"{at}.weight", random.random(size, np.float32), *moments))
    write(path, sections, {"opt.t": 1.0})


def _raw(path: Path) -> object:
    buffer = np.empty(path.stat().st_size, np.uint8)
    with path.open("rb", buffering=0) as file:
        done = 0
        while done < buffer.size:
            done += file.readinto(buffer.data[done:])
    return buffer


def _copied(path: Path) -> object:
    return read(path).loaded()


def _timed(work: object, spare_bytes: int) -> Work:
    return lambda _turn: seconds(work, spare_bytes=spare_bytes)  # pyright: ignore[reportArgumentType]


def _target(samples: dict[str, Sample]) -> Target:
    ratio = samples[ARRAYS].median / samples[RAW].median
    limit = "the rest is the first touch of the pages of the file's mapping, which a raw read does not make."
    return Target("reading version 3", "≤ 1.2 × a raw read", f"{number(ratio)} ×", is_met=ratio <= 1.2, limit=limit)
