"""A run killed ten times tells each sink's reader the rows of the run that was never stopped, each once."""

import signal
from pathlib import Path

import numpy as np
import pytest
from tests.sinks.killed_loop import train
from tests.sinks.killing import live_through

import perdure
from perdure.sinks import Csv, TensorBoard, read_csv

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEventAccumulator

KILLS = 10


def shown(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Step and value of every point that TensorBoard shows of a run, in the order in which it draws them.

    Its two readers must agree: the one that other programs use, and the one behind its own pages.
    """
    older = EventAccumulator(str(directory / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    points = {tag: older.Scalars(tag) for tag in sorted(older.Tags()["scalars"])}
    newer = PluginEventAccumulator(str(directory / "tensorboard"), size_guidance={"tensors": 0}).Reload()
    for tag, expected in points.items():
        found = [(point.step, point.tensor_proto.float_val[0]) for point in newer.Tensors(tag)]
        assert repr(found) == repr([(point.step, point.value) for point in expected]), tag
    return {tag: [(point.step, point.value) for point in of_tag] for tag, of_tag in points.items()}


def numbers_of(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """The same of the metric stream: its numbers, as float32."""
    expected: dict[str, list[tuple[int, float]]] = {}
    for row in perdure.Run(directory).metrics_rows():
        for name in ("norm", "zero", "late/nan", "late/big"):
            if name in row:
                expected.setdefault(name, []).append((row["env_steps"], float(np.float32(row[name]))))
    return expected


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that was never stopped."""
    directory = tmp_path_factory.mktemp("straight") / "run"
    train(directory, [Csv(), TensorBoard()])
    return directory


def test_without_a_kill_every_reader_sees_the_rows_of_the_stream(straight: Path):
    rows = perdure.Run(straight).metrics_rows()
    own = shown(straight).pop("own/first")

    assert [row["boundary"] for row in rows] == list(range(1, 61))
    assert repr(read_csv(straight / "metrics.csv")) == repr([in_order(row, straight) for row in rows])
    assert repr({tag: points for tag, points in shown(straight).items() if tag != "own/first"}) == repr(
        dict(sorted(numbers_of(straight).items()))
    )
    assert own == [(row["env_steps"], float(np.float32(row["weights"][0]))) for row in rows]


def in_order(row: dict[str, object], directory: Path) -> dict[str, object]:
    """A row with its names in the order of the file's columns."""
    columns = (directory / "metrics.csv").read_text().partition("\n")[0].split(",")
    return {name: row[name] for name in columns if name in row}


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_ten_times_jsonl_csv_and_tensorboard_are_those_of_the_run_never_stopped(
    seed: int, straight: Path, tmp_path: Path
):
    kills = live_through(tmp_path / "run", ["csv", "tensorboard"], kills=KILLS, seed=seed)

    assert kills == KILLS
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (straight / name).read_bytes()
    assert repr(shown(tmp_path / "run")) == repr(shown(straight))


@pytest.mark.full
def test_told_to_stop_three_times_they_are_those_of_the_run_never_stopped(straight: Path, tmp_path: Path):
    """A signal may come while a sink is at work: the commit that it asks for tells the sinks all the same."""
    stops = live_through(tmp_path / "run", ["csv", "tensorboard"], kills=3, seed=2, by=signal.SIGTERM)

    assert stops == 3
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (straight / name).read_bytes()
    assert repr(shown(tmp_path / "run")) == repr(shown(straight))


@pytest.mark.full
def test_the_twins_that_do_not_rebuild_and_do_not_purge_differ(straight: Path, tmp_path: Path):
    twins = ["csv-without-rebuild", "tensorboard-without-purge"]
    kills = live_through(tmp_path / "run", twins, kills=KILLS, seed=0)

    assert kills == KILLS
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
    assert (tmp_path / "run" / "metrics.csv").read_bytes() != (straight / "metrics.csv").read_bytes()
    steps = [step for step, _ in shown(tmp_path / "run")["norm"]]
    assert len(steps) > len(set(steps)) == 60
