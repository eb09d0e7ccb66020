"""What is learned, and how fast: learning curves of `train_ppo` on three tasks, a line for each seed."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.common.machine import OtherWork, describe_machine, describe_versions
from benchmarks.common.report import Part, Target, render, table
from benchmarks.common.scratch import PROJECT
from benchmarks.common.timing import note
from benchmarks.curves.svg import Line, chart
from benchmarks.curves.tasks import EPISODES, TASKS, Task
from benchmarks.curves.training import Curve, train

RESULTS = Path(__file__).parent / "results" / "learning.md"
FIGURES = PROJECT / "docs" / "figures"
SEEDS = (11, 12, 13)
"""None of those that settings were chosen with (1 to 5)."""
HEAD = ("networks", "seed", "env-steps to the threshold", "below it again, of the evaluations after", "final return")


def main(argv: Sequence[str] | None = None) -> None:
    """Trains every task and writes results and figures; some tasks alone are only printed."""
    parser = argparse.ArgumentParser(prog="./dev bench learning", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help=f"how many of the seeds {SEEDS}")
    parser.add_argument("--part", choices=list(TASKS), action="append", help="only this task; print, write nothing")
    options = parser.parse_args(argv)
    seeds, others = SEEDS[: options.repeats], OtherWork()
    parts, figures = [], {}
    for name in options.part or TASKS:
        task = TASKS[name]()
        curves = [_trained(task, networks, seed) for networks in task.networks for seed in seeds]
        parts.append(report(task, curves))
        figures[f"learning-{name}.svg"] = figure(task, curves)
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": describe_versions(),
        "machine": describe_machine(PROJECT),
        "other work": others.describe(),
        "seeds": f"{', '.join(map(str, seeds))}; settings were chosen with others, 1 to 5",
    }
    text = render("Learning", facts, parts)
    print(text)
    if not options.part:
        write(text, figures)


def _trained(task: Task, networks: str, seed: int) -> Curve:
    note(f"{task.title}, {networks}, seed {seed}")
    return train(task, networks, seed)


def write(text: str, figures: dict[str, str]) -> None:
    """The results, and the figures that docs/learning.md shows."""
    RESULTS.write_text(text, encoding="utf-8")
    FIGURES.mkdir(exist_ok=True)
    for name, svg in figures.items():
        (FIGURES / name).write_text(svg, encoding="utf-8")


def figure(task: Task, curves: Sequence[Curve]) -> str:
    """A line for each training."""
    return chart(
        f"{task.title}: mean return of {EPISODES} episodes",
        [Line(f"{curve.networks}, seed {curve.seed}", curve.points) for curve in curves],
        threshold=task.threshold,
        x_label="env-steps",
        y_label="mean return",
        y_range=task.y_range,
    )


def report(task: Task, curves: Sequence[Curve]) -> Part:
    """The table of a task, and whether it was solved within the budget by those that can."""
    text = (
        f"Threshold {_signed(f'{task.threshold:g}')}, budget {task.budget:,} env-steps. {task.source} Returns are "
        f"means of {EPISODES} episodes of the deterministic policy, every {task.config.eval.every_steps:,} env-steps. "
        "The settings are in docs/learning.md."
    )
    rows = [_row(task, curve) for curve in curves]
    return Part(task.title, text, [table(HEAD, rows)], [_target(task, curves, networks) for networks in task.networks])


def _row(task: Task, curve: Curve) -> tuple[str, ...]:
    reached, (below, after) = curve.reached_at(task.threshold), curve.fallen_below(task.threshold)
    steps, lapses = ("–", "–") if reached is None else (f"{reached:,}", f"{below} of {after}")
    return curve.networks, str(curve.seed), steps, lapses, _signed(f"{curve.final:.4g}")


def _target(task: Task, curves: Sequence[Curve], networks: str) -> Target:
    reached = [curve.reached_at(task.threshold) for curve in curves if curve.networks == networks]
    solved = [steps for steps in reached if steps is not None and steps <= task.budget]
    found = ", ".join(f"{steps:,}" for steps in solved) or "by no seed"
    if networks in task.unsolvable:
        return Target(f"{task.title}, {networks}", f"never {task.threshold:g}", found, not solved, "see the curve.")
    wanted = f"≥ {_signed(f'{task.threshold:g}')} within {task.budget:,}, each seed"
    limit = f"{len(reached) - len(solved)} of {len(reached)} seeds did not reach it."
    return Target(f"{task.title}, {networks}", wanted, found, len(solved) == len(reached), limit)


def _signed(number: str) -> str:
    return number.replace("-", "−")


if __name__ == "__main__":
    main()
