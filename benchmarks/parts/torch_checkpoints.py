"""Part: what a checkpoint every 10 updates costs PPO with PyTorch."""

import statistics
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.common.report import Part, Target, number, table, time_table
from benchmarks.common.timing import Sample, interleaved, note
from benchmarks.parts.slow_down import AFFECTED, EVERY, Cycle, typical_cycle
from benchmarks.trainers.torch_ppo import config, ours
from perdure import Every, Run

UPDATES = 100
PLAIN, SAVING, RARELY = "no run", f"a run, a checkpoint every {EVERY} updates", "a run, no checkpoint is due"

TEXT = f"""\
The training of *Throughput* with 4 environments and 4 minibatches, {UPDATES} updates; trainings take turns. As in
`checkpointing`, the slow-down is taken within each training: what the first {AFFECTED} updates behind a due boundary
(its blocked time included) took longer than as many others, in percent of {EVERY} others, by medians. The trainings
that save nothing are the control: theirs should be 0."""


def measure(directory: Path, repeats: int) -> Part:
    """Milliseconds an update, and what checkpoints add to them."""
    note("checkpoints")
    cycles: dict[str, list[Cycle]] = {PLAIN: [], SAVING: [], RARELY: []}

    def training(name: str, every: int | None, turn: int) -> float:
        durations = _durations(None if every is None else directory / f"{every}_{turn}", every or 1)
        if turn:
            cycles[name].append(typical_cycle(durations))
        return statistics.mean(durations)

    samples = interleaved(
        {
            PLAIN: lambda turn: training(PLAIN, None, turn),
            SAVING: lambda turn: training(SAVING, EVERY, turn),
            RARELY: lambda turn: training(RARELY, 10_000, turn),
        },
        repeats,
    )
    slower = {name: Sample(tuple(cycle.slow_down for cycle in found)) for name, found in cycles.items()}
    rows = [
        (name, *(f"{100 * value:+.2f} %" for value in (sample.median, *sample.quartiles)))
        for name, sample in slower.items()
    ]
    shown = table(("slow-down within a training", "median", "first quartile", "third quartile"), rows)
    return Part(
        "A checkpoint every 10 updates", TEXT, ["Mean of an update:", time_table(samples), shown], [_target(cycles)]
    )


def _durations(directory: Path | None, every: int) -> list[float]:
    """Seconds of each update from the one on that follows the first due boundary.

    `log_fn` is called before the boundary, so the time between two calls holds the boundary of the first.
    """
    options, found = config(UPDATES + EVERY, 4, 4), []

    def on_update(_steps: int, _mean: float | None) -> None:
        found.append(time.perf_counter())

    if directory is None:
        ours(options, on_update)
    else:
        with Run(directory, config=options, horizon="total_timesteps", every=Every(updates=every)) as run:
            ours(options, on_update, run)
    return [after - before for before, after in pairwise(found[EVERY - 1 :])]


def _target(cycles: dict[str, list[Cycle]]) -> Target:
    found = statistics.median(cycle.slow_down for cycle in cycles[SAVING])
    extra, quiet = (statistics.median(getattr(cycle, name) for cycle in cycles[SAVING]) for name in ("extra", "quiet"))
    limit = (
        f"{EVERY} updates take only {number(1e3 * EVERY * quiet)} ms here, and a checkpoint adds {number(1e3 * extra)} "
        f"ms of Python, the writer's included, which shares the interpreter lock with it; 1 % needs updates of "
        f"{number(1e3 * extra * 100 / EVERY)} ms, or a checkpoint every {extra / quiet * 100:.0f}."
    )
    work = f"slow-down, a checkpoint every {EVERY} updates"
    return Target(work, "≤ 1 %", f"{100 * found:+.2f} %", is_met=found <= 0.01, limit=limit)
