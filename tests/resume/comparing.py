"""Comparing two runs boundary by boundary, in three ways that must agree: digests, perdure's diff, and our own."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import perdure
from perdure.checkpoint.opening import Opened, open_checkpoint
from perdure.runs.directory import open_directory
from perdure.tree.diff import diff_snapshots


def stopped_at(straight: Path, boundary: int, directory: Path) -> Path:
    """A copy of the run as a stop right after a boundary leaves it: later checkpoints were never made."""
    shutil.copytree(straight, directory)
    for later in sorted((directory / "checkpoints").iterdir())[boundary + 1 :]:
        shutil.rmtree(later)
    rows = (directory / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (directory / "metrics.jsonl").write_bytes(b"".join(rows[:boundary]))
    return directory


def checkpoints(directory: Path) -> dict[int, Opened]:
    """The run's checkpoints by boundary, verified."""
    store = open_directory(directory).store()
    opened = [open_checkpoint(store, name) for name in store.names()]
    return {each.manifest.boundary: each for each in opened}


def state_digests(directory: Path) -> dict[int, str]:
    """The state digest at each saved boundary."""
    return {boundary: opened.manifest.state_digest for boundary, opened in checkpoints(directory).items()}


def differences(first: Path, second: Path) -> list[str]:
    """Every difference in state at the boundaries that both runs saved, and in the metric streams.

    Each reads `boundary 8: weights/action: …` or `metrics.jsonl: row 3: …`.

    Raises:
        AssertionError: the runs share no boundary, or the three comparisons disagree.
    """
    left, right = checkpoints(first), checkpoints(second)
    shared = sorted(left.keys() & right.keys())
    assert shared, f"{first} and {second} have no boundary in common"
    found = []
    for boundary in shared:
        lines = [str(line) for line in diff_snapshots(left[boundary].snapshot, right[boundary].snapshot)]
        ours = _own_differences(*(path / "checkpoints" / left[boundary].name for path in (first, second)))
        same_digest = left[boundary].manifest.state_digest == right[boundary].manifest.state_digest
        assert same_digest == (not lines), f"boundary {boundary}: same digest: {same_digest}, but the diff says {lines}"
        assert same_digest or ours, f"boundary {boundary}: only the diff sees a difference: {lines}"
        assert not same_digest or not ours, f"boundary {boundary}: digests and diff miss {ours}"
        found += [f"boundary {boundary}: {line}" for line in lines]
    return found + metric_differences(first, second)


def metric_differences(first: Path, second: Path, *, ignore: frozenset[str] = frozenset()) -> list[str]:
    """The rows of the metric streams that are not equal byte for byte, or value for value where keys are ignored."""
    left, right = (_rows(directory, ignore) for directory in (first, second))
    found = [
        f"metrics.jsonl: row {number}: {a} | {b}"
        for number, (a, b) in enumerate(zip(left, right, strict=False), start=1)
        if a != b
    ]
    return found if len(left) == len(right) else [*found, f"metrics.jsonl: {len(left)} rows | {len(right)} rows"]


def _rows(directory: Path, ignore: frozenset[str]) -> list[Any]:
    lines = (directory / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    if not ignore:
        return lines
    return [{key: value for key, value in json.loads(line).items() if key not in ignore} for line in lines]


def _own_differences(first: Path, second: Path) -> list[str]:
    left, right = dict(flat(perdure.read(first))), dict(flat(perdure.read(second)))
    return sorted(path for path in left.keys() | right.keys() if left.get(path) != right.get(path))


def flat(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its path, as something that `==` compares bit by bit. Shares nothing with perdure's diff."""
    if isinstance(tree, dict | list | tuple) and tree:
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for step, child in items:
            yield from flat(child, f"{path}/{step}")
    elif isinstance(tree, np.ndarray | np.generic):
        yield path, (type(tree).__name__, str(tree.dtype), tree.shape, tree.tobytes())
    elif isinstance(tree, float):
        yield path, ("float", tree.hex())
    else:
        yield path, (type(tree).__name__, tree)


def starting_with(lines: list[str], path: str) -> list[str]:
    """The differences in state at or below a path."""
    return [line for line in lines if line.startswith("boundary") and line.split(": ", 1)[1].startswith(path)]
