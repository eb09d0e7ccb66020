"""Part: half a gibibyte of arrays."""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.common.report import Part, Target, number, table, time_table
from benchmarks.common.scratch import PROJECT
from benchmarks.common.timing import Sample, note
from benchmarks.parts.blocked import measure_blocked
from benchmarks.peers.measuring import measure_loads, measure_saves
from benchmarks.peers.orbax import OrbaxStandard, OrbaxV1
from benchmarks.peers.ours import Perdure
from benchmarks.peers.pytorch import Dcp, TorchSave
from benchmarks.peers.raw import Raw
from benchmarks.peers.safetensors_file import Safetensors
from benchmarks.peers.states import as_jax, as_numpy, large_state, size_bytes

OURS, JAX = "perdure, NumPy arrays", "perdure, JAX arrays"
STANDARD, NEWER = "Orbax StandardCheckpointer, JAX arrays", "Orbax v1, JAX arrays"
MEBIBYTES = 512

TEXT = """\
512 MiB of float32 in 16 arrays and 4 components. Saves are durable when the clock stops. Reads come from the page
cache, so they show what processors do, not what the disk does. NumPy arrays are adopted by the restore; JAX arrays
are copied once more. The extra memory is how far a synchronous save in a fresh process raises the greatest resident
size; the kernel counts it to some 0.3 MiB, so no rise at all may come out as a little less than 0."""


def measure(directory: Path, repeats: int) -> Part:
    """Saves, loads, blocked times and memory."""
    state, turns = large_state(MEBIBYTES), max(1, repeats // 3)
    peers = [
        Perdure(OURS, as_numpy),
        Perdure(JAX, as_jax),
        Raw(),
        OrbaxStandard(STANDARD, as_jax),
        OrbaxV1(NEWER, as_jax),
        Dcp(),
        TorchSave(),
        Safetensors(),
    ]
    note("512 MiB: saves")
    saves = measure_saves(peers, lambda _: state, directory, turns)
    note("512 MiB: loads")
    loads = measure_loads(peers, lambda _: state, directory, turns)
    note("512 MiB: blocked time")
    blocked = measure_blocked(lambda turn: large_state(MEBIBYTES, seed=turn), as_jax, directory, max(1, turns // 2))
    extra = {name: _extra_bytes(name, directory) for name in ("numpy", "jax")}
    tables = [
        "Durable commit:",
        time_table(saves, unit="s", ratio_to=OURS),
        f"{_rates(saves, size_bytes(state))}",
        "Restore (perdure's is verified):",
        time_table(loads, unit="s", ratio_to=OURS),
        "Time the training loop is blocked, JAX arrays:",
        time_table(blocked),
        table(
            ("synchronous save of", "extra memory, MiB"),
            [(f"{name} arrays", number(size / 2**20)) for name, size in extra.items()],
        ),
    ]
    return Part("512 MiB of arrays", TEXT, tables, [*_save_targets(saves), *_load_targets(loads), _memory(extra)])


def _rates(saves: dict[str, Sample], size: int) -> str:
    return "In GB/s: " + ", ".join(f"{name} {size / sample.median / 1e9:.2f}" for name, sample in saves.items()) + "."


def _extra_bytes(kind: str, directory: Path) -> int:
    """Measured in a process of its own, whose memory nobody else has touched."""
    command = [sys.executable, "-m", "benchmarks.parts.memory", kind, str(directory / f"memory_{kind}")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=PROJECT)
    found = re.search(r"extra_bytes=(-?\d+)", done.stdout)
    if not found:
        raise ValueError(f"the child for memory said {done.stdout!r}")
    return int(found[1])


def _save_targets(saves: dict[str, Sample]) -> list[Target]:
    ours, raw, dcp = saves[OURS].median, saves[Raw.name].median, saves[Dcp.name].median
    orbax = min(saves[STANDARD].median, saves[NEWER].median)
    digests = "digests are computed by the thread that writes, which takes that time from the copy into the page cache."
    work = "512 MiB, durable commit"
    return [
        Target(work, "≥ 0.95 × raw speed", f"{number(raw / ours)} ×", is_met=raw / ours >= 0.95, limit=digests),
        _faster(work, "Orbax", orbax / ours, _disk("Orbax", orbax, raw, ours, 10)),
        _faster(work, "DCP", dcp / ours, _disk("DCP", dcp, raw, ours, 8)),
    ]


def _disk(peer: str, theirs: float, raw: float, ours: float, then: int) -> str:
    return (
        f"perdure writes at {number(raw / ours)} × the speed of raw files already: the disk is the limit, and {peer} "
        f"takes only {number(theirs / raw)} × the time of raw files here, about {then} × where the target was set."
    )


def _faster(work: str, peer: str, factor: float, limit: str) -> Target:
    return Target(work, f"≥ 5 × faster than {peer}", f"{number(factor)} ×", is_met=factor >= 5, limit=limit)


def _load_targets(loads: dict[str, Sample]) -> list[Target]:
    ours, raw = loads[OURS].median, loads[Raw.name].median
    limit = (
        f"of the {number((ours - raw) * 1e3)} ms beyond raw reading, nearly all goes to three passes of digests (file, "
        "array, and again after the restore), about 25 ms each where the processors have nothing else to do."
    )
    work = "512 MiB, verified restore into NumPy"
    return [Target(work, "≥ 0.8 × raw speed", f"{number(raw / ours)} ×", is_met=raw / ours >= 0.8, limit=limit)]


def _memory(extra: dict[str, int]) -> Target:
    worst = max(extra.values()) / 2**20
    limit = "arrays are streamed, so this is something else."
    return Target(
        "512 MiB, extra memory of a synchronous save",
        "≤ 64 MiB",
        f"{number(worst)} MiB",
        is_met=worst <= 64,
        limit=limit,
    )
