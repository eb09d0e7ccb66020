"""A run's return over its env-steps, in text, with its checkpoints, stops and resumes."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from perdure.cli.chart import Point, chart, style_for
from perdure.errors import UsageError
from perdure.runs.directory import RunDirectory, newest_first, steps_of
from perdure.runs.resumption import read_history
from perdure.runs.tails import last_documents, last_value, number_of

MOST_ROWS = 20_000
"""More rows are thinned out; a terminal shows a few hundred."""


def curve_of(run: RunDirectory, metric: str | None = None) -> list[str]:
    """The lines of the curve; none where there are fewer than two values.

    Args:
        run: the run.
        metric: what is drawn; None: what `perdure.runs.tails.return_name` takes for the return.

    Raises:
        UsageError: no row has the metric.
    """
    told = last_value(run.metrics, metric)
    name = metric if metric is not None else told and told[0]
    points = [] if name is None else read_points(run, name)
    if metric is not None and not points:
        there = sorted({key for row in last_documents(run.metrics) for key in row if number_of(row[key]) is not None})
        raise UsageError(
            f"{run.path}: no row has the metric {metric!r}; the last ones have {', '.join(there) or 'none'}."
        )
    steps = [steps_of(checkpoint) or 0 for checkpoint in newest_first(run.store().names())]
    marks = {"checkpoint": steps, **stops_and_resumes(read_history(run)[0])}
    style, width = style_for(sys.stdout.encoding), shutil.get_terminal_size().columns
    lines = chart(points, marks, width=width, style=style)
    return [f"{name} over env-steps", *lines] if lines else []


def read_points(run: RunDirectory, metric: str) -> list[Point]:
    """The metric's values by env-steps, thinned out where there are very many; lines that are no rows are left out."""
    data = run.metrics.read_bytes() if run.metrics.exists() else b""
    needle = json.dumps(metric).encode()
    lines = [line for line in data[: data.rfind(b"\n") + 1].splitlines() if needle in line]
    points = []
    for line in lines[:: -(-len(lines) // MOST_ROWS) or 1]:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        value = number_of(row.get(metric)) if isinstance(row, dict) else None
        if value is not None and type(row.get("env_steps")) is int:
            points.append((row["env_steps"], value))
    return points


def stops_and_resumes(history: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Where the run went on, and where it had come to before: at its last commit, as far as the lineage knows."""
    marks: dict[str, list[int]] = {"stop": [], "resume": []}
    committed, is_open = 0, False
    for event in history:
        match event["event"]:
            case "committed":
                committed = steps_of(event["checkpoint"]) or 0
            case "resumed":
                marks["stop"] += [committed] if is_open else []
                marks["resume"].append(event["env_steps"])
                committed, is_open = event["env_steps"], True
            case "started":
                is_open = not event.get("forked_from")
            case "stopped":
                marks["stop"].append(committed)
                is_open = False
            case "finished":
                is_open = False
    return marks
