"""Part: what a checkpoint every 10 updates costs a training."""

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.common.report import Part, Target, number, table, time_table
from benchmarks.common.timing import Sample, interleaved, note
from perdure.nnx.config import EvalConfig, NetworkConfig, PPOConfig, TrainConfig
from perdure.nnx.environment import Environment
from perdure.nnx.launch import build
from perdure.nnx.training import train_ppo

UPDATES = 200
EVERY = 10
AFFECTED = 3
"""Updates after a due boundary in which its commit may still be going on."""
PLAIN, SAVING, RARELY = "no run", f"a run, a checkpoint every {EVERY} updates", "a run, no checkpoint is due"

TEXT = f"""\
PPO on CartPole (gymnax, 256 environments, 20 steps each an update: the defaults of `perdure train ppo`), {UPDATES}
updates; trainings take turns. Whole trainings differ by more than a checkpoint costs, so the slow-down is taken within
each: from the median of all first updates after a due boundary (its blocked time included), of all second ones, and so
on to the {EVERY}th. It is what the first {AFFECTED} took longer than as many others, in percent of {EVERY} others.
The trainings that save nothing are the control: theirs should be 0. Metrics are a row a boundary, due or not."""


def measure(directory: Path, repeats: int) -> Part:
    """Milliseconds an update, and what checkpoints add to them."""
    note("training slow-down")
    env, _ = build("CartPole-v1", NetworkConfig(), seed=0)
    cycles: dict[str, list[Cycle]] = {PLAIN: [], SAVING: [], RARELY: []}

    def training(name: str, every: int | None, turn: int) -> float:
        run = None if every is None else directory / f"{name.replace(' ', '_')}_{turn}"
        durations = _durations(env, run, every or 1)
        if turn:
            cycles[name].append(typical_cycle(durations))
        return statistics.mean(durations)

    samples = interleaved(
        {
            PLAIN: lambda turn: training(PLAIN, None, turn),
            SAVING: lambda turn: training(SAVING, EVERY, turn),
            RARELY: lambda turn: training(RARELY, 10_000, turn),
        },
        max(1, repeats // 4),
    )
    slower = {name: Sample(tuple(cycle.slow_down for cycle in found)) for name, found in cycles.items()}
    rows = [(name, *(f"{100 * value:+.2f} %" for value in _figures(sample))) for name, sample in slower.items()]
    blocked, commit = _timings(directory)
    tables = [
        "Mean of an update:",
        time_table(samples),
        table(("slow-down within a training", "median", "first quartile", "third quartile"), rows),
        f"By the runs' own `timings.jsonl`, a due boundary blocked the loop for {_ms(blocked.median)} and the commit "
        f"took {_ms(commit.median)} beside it (medians of {len(blocked.values)}).",
    ]
    return Part("Training slow-down", TEXT, tables, [_target(slower[SAVING], cycles[SAVING], blocked)])


@dataclass(frozen=True)
class Cycle:
    """The updates from one due boundary to the next."""

    extra: float
    """Seconds that the first ones took longer than as many of the others."""
    quiet: float
    """Seconds of one of the others."""

    @property
    def slow_down(self) -> float:
        """As a fraction of a cycle without a checkpoint."""
        return self.extra / (EVERY * self.quiet)


def typical_cycle(durations: Sequence[float]) -> Cycle:
    """The cycle whose updates are the medians of all updates that stand at the same place in theirs.

    Args:
        durations: seconds of each update from the one on that follows a due boundary.
    """
    places = [statistics.median(durations[place::EVERY]) for place in range(EVERY)]
    quiet = statistics.mean(places[AFFECTED:])
    return Cycle(sum(places[:AFFECTED]) - AFFECTED * quiet, quiet)


def _durations(env: Environment, run: Path | None, every: int) -> list[float]:
    """Seconds of each update from the one on that follows the first due boundary of a cadence of EVERY updates.

    `log_fn` is called before the boundary, so the time between two calls holds the boundary of the first.
    """
    batch = PPOConfig().steps_per_iteration
    config = TrainConfig(
        ppo=PPOConfig(total_steps=(UPDATES + EVERY) * batch),
        eval=EvalConfig(enabled=False),
        checkpoint_every_steps=every * batch,
    )
    _, networks = build("CartPole-v1", NetworkConfig(), seed=0)
    stamps: list[float] = []
    train_ppo(env, networks, config, run=run, log_fn=lambda _metrics, _steps: stamps.append(time.perf_counter()))
    return [after - before for before, after in pairwise(stamps[EVERY - 1 :])]


def _figures(sample: Sample) -> tuple[float, float, float]:
    return sample.median, *sample.quartiles


def _timings(directory: Path) -> tuple[Sample, Sample]:
    """What the runs noted themselves: the boundaries' blocked time, and that of the writer beside them."""
    lines = [line for file in directory.glob("*every*/timings.jsonl") for line in file.read_text().splitlines()]
    rows = [row for row in map(json.loads, lines) if not row["checkpoint"].endswith("_0000000000")]
    return Sample(tuple(row["blocked_s"] for row in rows)), Sample(tuple(row["save_s"] for row in rows))


def _target(slower: Sample, cycles: Sequence[Cycle], blocked: Sample) -> Target:
    extra, quiet = (statistics.median(getattr(cycle, name) for cycle in cycles) for name in ("extra", "quiet"))
    limit = (
        f"{EVERY} updates take only {_ms(EVERY * quiet)} here, and a checkpoint adds {_ms(extra)}: the loop is blocked "
        f"for {_ms(blocked.median)}, and the writer's Python competes with XLA for both cores and with the loop for "
        f"the interpreter lock; 1 % needs updates of {_ms(extra / EVERY * 100)}, or a checkpoint every "
        f"{extra / quiet * 100:.0f}."
    )
    found = f"{100 * slower.median:+.2f} %"
    work = f"training slow-down, a checkpoint every {EVERY} updates"
    return Target(work, "≤ 1 %", found, is_met=slower.median <= 0.01, limit=limit)


def _ms(seconds_taken: float) -> str:
    return f"{number(seconds_taken * 1e3)} ms"
