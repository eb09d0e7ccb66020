"""Part: a boundary that is not due."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import perdure
from benchmarks.common.report import Part, Target, number, time_table
from benchmarks.common.timing import Sample, interleaved, note
from benchmarks.peers.states import as_jax, made, ppo_state

CALLS = 2000
WITHOUT, ONE_METRIC, METRICS = "without metrics", "with 1 metric", "with 5 metrics"

TEXT = f"""\
One call of `boundary` that saves nothing: the PPO-sized state is one value, a NumPy generator is live, no cadence is
due. The mean of {CALLS:,} calls in a row is one measurement. A row of metrics is one write to `metrics.jsonl`."""


def measure(directory: Path, repeats: int) -> Part:
    """Microseconds a call."""
    note("boundaries that are not due")
    state = made(ppo_state(0), as_jax)
    metrics = {"loss": 0.25, "return": 21.0, "entropy": 0.6, "kl": 1e-3, "clipped": 0.1}
    with perdure.Run(directory / "run", every=perdure.Every(minutes=10_000)) as run:
        run.restore(rng=np.random.default_rng(0), state=state)
        calls: dict[str, dict[str, Any] | None] = {
            WITHOUT: None,
            ONE_METRIC: {"loss": 0.25},
            METRICS: metrics,
        }
        works = {name: _batch(run, state, row) for name, row in calls.items()}
        samples = interleaved(works, repeats)
    return Part("A boundary that is not due", TEXT, [time_table(samples, unit="µs")], [_target(samples)])


def _batch(run: perdure.Run, state: Any, metrics: dict[str, Any] | None) -> Callable[[int], float]:
    def work(_turn: int) -> float:
        first = run.env_steps + 1
        started = time.perf_counter()
        for env_steps in range(first, first + CALLS):
            run.boundary(env_steps=env_steps, state=state, metrics=metrics)
        return (time.perf_counter() - started) / CALLS

    return work


def _target(samples: dict[str, Sample]) -> Target:
    found = samples[WITHOUT].median * 1e6
    limit = "checks of counters and names in Python."
    return Target("a boundary that is not due", "≤ 10 µs", f"{number(found)} µs", is_met=found <= 10, limit=limit)
