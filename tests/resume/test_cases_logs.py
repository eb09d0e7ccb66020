"""Faults that users reported elsewhere of their loggers, by their numbers in CASES, and what happens here."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.sinks.test_kills import shown

import perdure
from perdure.sinks import Csv, TensorBoard, read_csv

pytest.importorskip("tensorboard")

pytestmark = pytest.mark.usefixtures("global_generators")


def train(directory: Path, boundaries: int, *, every: int) -> None:
    """Some boundaries of a noisy curve; the process then goes away without a word."""
    rng = np.random.default_rng(0)
    run = perdure.Run(directory, sinks=[Csv(), TensorBoard()], every=perdure.Every(updates=every), horizon=1000)
    run.restore(rng=rng)
    for _ in range(boundaries):
        run.boundary(env_steps=run.env_steps + 10, metrics={"return": float(rng.normal())})
        if run.is_finished:
            break
    run.close()


def jsonl(directory: Path) -> list[tuple[int, float]]:
    return [(row["env_steps"], row["return"]) for row in perdure.Run(directory).metrics_rows()]


def csv(directory: Path) -> list[tuple[int, float]]:
    return [(row["env_steps"], row["return"]) for row in read_csv(directory / "metrics.csv")]


def tensorboard(directory: Path) -> list[tuple[int, float]]:
    return shown(directory)["return"]


@pytest.mark.parametrize("read", [jsonl, csv, tensorboard])
def test_case_22_after_resumes_no_row_is_dropped_no_curve_overlaps_and_no_step_goes_back(
    read: Callable[[Path], list[tuple[int, float]]], tmp_path: Path
):
    """wandb #4482; tensorboard #3732."""
    train(tmp_path / "straight", 100, every=7)
    draw, starts = random.Random(22), 0
    while not (tmp_path / "run" / "metrics.jsonl").exists() or jsonl(tmp_path / "run")[-1][0] < 1000:
        train(tmp_path / "run", draw.randint(8, 30), every=7)
        starts += 1
    points = read(tmp_path / "run")

    assert starts > 3
    assert [step for step, _ in points] == list(range(10, 1010, 10))
    assert points == read(tmp_path / "straight")
