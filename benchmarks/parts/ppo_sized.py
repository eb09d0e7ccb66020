"""Part: a state of the size of a PPO run's."""

from functools import partial
from pathlib import Path

from benchmarks.common.report import Part, Target, number, time_table
from benchmarks.common.scratch import sync
from benchmarks.common.timing import Sample, note, seconds
from benchmarks.parts.blocked import BACKGROUND, ORBAX, ORBAX_V1, measure_blocked
from benchmarks.peers.measuring import measure_loads, measure_saves
from benchmarks.peers.nowhere import Nowhere
from benchmarks.peers.orbax import OrbaxStandard, OrbaxV1
from benchmarks.peers.ours import Perdure
from benchmarks.peers.pytorch import Dcp, TorchSave
from benchmarks.peers.raw import Raw
from benchmarks.peers.safetensors_file import Safetensors
from benchmarks.peers.states import as_jax, as_numpy, made, ppo_state
from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.save import About, save

OURS, NUMPY = "perdure, JAX arrays", "perdure, NumPy arrays"
STANDARD, NEWER = "Orbax StandardCheckpointer", "Orbax v1"
NOWHERE = "perdure, JAX arrays, all but the disk"
ONE_FILE = "one file of 450 KiB, written and fsynced"

TEXT = """\
80 float32 arrays in 6 components, 2.6 MiB, other numbers at each turn. Saves are durable when the clock stops: raw
files, safetensors, `torch.save`, DCP and Orbax are followed by an fsync of every file and directory that they made.
Raw and perdure write one file a component, torch.save and safetensors one in all. Reads come from the page cache."""


def measure(directory: Path, repeats: int) -> Part:
    """Saves, loads and blocked times."""
    peers = [
        Perdure(OURS, as_jax),
        Perdure(NUMPY, as_numpy),
        Raw(),
        OrbaxStandard(STANDARD, as_jax),
        OrbaxV1(NEWER, as_jax),
        Dcp(),
        TorchSave(),
        Safetensors(),
    ]
    note("PPO-sized state: saves")
    others = {NOWHERE: _all_but_the_disk, ONE_FILE: partial(_one_file, directory)}
    saves = measure_saves(peers, ppo_state, directory, repeats, others)
    note("PPO-sized state: loads")
    loads = measure_loads(peers, ppo_state, directory, repeats)
    note("PPO-sized state: blocked time")
    blocked = measure_blocked(ppo_state, as_jax, directory, repeats)
    tables = [
        "Durable commit:",
        time_table(saves, ratio_to=OURS),
        "Restore (perdure's is verified):",
        time_table(loads, ratio_to=OURS),
        "Time the training loop is blocked (the synchronous boundary includes retention and the lineage):",
        time_table(blocked, ratio_to=BACKGROUND),
    ]
    targets = [*_save_targets(saves), *_blocked_targets(blocked), *_load_targets(loads)]
    return Part("PPO-sized state", TEXT, tables, targets)


def _all_but_the_disk(turn: int) -> float:
    """Capture, digests, layout, manifest."""
    state = made(ppo_state(turn), as_jax)
    return seconds(lambda: save(Nowhere(), "it", capture(state, Resolver(), Counters()).snapshot, About()))


def _one_file(directory: Path, turn: int) -> float:
    """What the disk asks for one file."""
    path, data = directory / f"one_{turn}", bytes(450 << 10)

    def write() -> None:
        path.write_bytes(data)
        sync(path)

    return seconds(write)


def _save_targets(saves: dict[str, Sample]) -> list[Target]:
    ours, raw = saves[OURS].median, saves[Raw.name].median
    orbax = min(saves[STANDARD].median, saves[NEWER].median)
    limit = (
        f"of perdure's {_ms(ours)}, {_ms(saves[NOWHERE].median)} are Python's (capture, digests, layout, manifest) and "
        f"the rest waits for three fsyncs in a row (files in one batch, directory, parent); one file costs "
        f"{_ms(saves[ONE_FILE].median)} on this disk now, 3 to 4 ms where the target was set"
    )
    than_raw = f"{limit}, so there is little to gain from syncing files together."
    than_orbax = f"{limit}; Orbax took {_ms(orbax)}, 221 ms where the target was set."
    work = "PPO-sized, durable commit"
    wanted = "≤ 0.6 × raw files, one after another"
    return [
        Target(work, wanted, f"{number(ours / raw)} ×", is_met=ours / raw <= 0.6, limit=than_raw),
        _faster(work, "Orbax", orbax / ours, 20, than_orbax),
    ]


def _blocked_targets(blocked: dict[str, Sample]) -> list[Target]:
    ours = blocked[BACKGROUND].median
    orbax = min(blocked[ORBAX].median, blocked[ORBAX_V1].median)
    limit = (
        f"about 1 ms is the walk over 80 leaves; the rest is the wait for Python's interpreter lock, which the writer "
        f"has taken as soon as it was woken. Orbax blocked for {_ms(orbax)}, 27 ms where the target was set."
    )
    work = "PPO-sized, loop blocked"
    return [
        Target(work, "≤ 2 ms", _ms(ours), is_met=ours <= 2e-3, limit=limit),
        _faster(work, "Orbax's async save", orbax / ours, 10, limit),
    ]


def _load_targets(loads: dict[str, Sample]) -> list[Target]:
    ours = loads[OURS].median
    orbax = min(loads[STANDARD].median, loads[NEWER].median)
    limit = (
        f"{_ms(loads[NUMPY].median)} are reading, proof and three walks over 80 leaves in Python (the row of NumPy "
        f"arrays), the rest makes 80 JAX arrays one by one; Orbax took {_ms(orbax)}, 161 ms where the target was set."
    )
    work = "PPO-sized, verified restore"
    return [
        Target(work, "≤ 10 ms", _ms(ours), is_met=ours <= 10e-3, limit=limit),
        _faster(work, "Orbax", orbax / ours, 15, limit),
    ]


def _faster(work: str, peer: str, factor: float, least: float, limit: str) -> Target:
    wanted = f"≥ {least} × faster than {peer}"
    return Target(work, wanted, f"{number(factor)} ×", is_met=factor >= least, limit=limit)


def _ms(seconds_taken: float) -> str:
    return f"{number(seconds_taken * 1e3)} ms"
