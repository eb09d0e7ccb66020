"""Event files show each step once: what a resume went back behind is taken back, what a kill lost is written again."""

import itertools
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sinks.driving import Driver
from tests.sinks.killed_loop import TensorBoardWithoutPurge
from tests.sinks.test_kills import shown

import perdure
from perdure.errors import UsageError
from perdure.runs.lineage import read_lineage
from perdure.sinks import TensorBoard

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEventAccumulator

from perdure.sinks.tensorboard_files import EventFile, shown_scalars
from perdure.sinks.tensorboard_writer import SummaryWriter


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path / "run", TensorBoard)


def steps(driver: Driver, tag: str = "loss") -> list[int]:
    return [step for step, _ in shown(driver.directory).get(tag, [])]


def go(driver: Driver, boundaries: int, **options: Any) -> None:
    with driver.open(**options) as run:
        for _ in range(boundaries):
            driver.step(run, loss=(run.env_steps + 10) / 3)


def test_numbers_become_scalars_at_env_steps_and_the_rest_is_left_out(driver: Driver):
    with driver.open() as run:
        driver.step(run, loss=0.1, flag=True, big=2**2000, small=-(2**2000), text="x", none=None, many=[1, 2])
        driver.step(run, loss=float("-inf"))

    assert shown(driver.directory) == {
        "big": [(10, float("inf"))],
        "flag": [(10, 1.0)],
        "loss": [(10, float(np.float32(0.1))), (20, float("-inf"))],
        "small": [(10, float("-inf"))],
    }


def test_steps_after_the_resumed_boundary_are_taken_back(driver: Driver):
    go(driver, 5)
    assert steps(driver) == [10, 20, 30, 40, 50]
    with driver.open():
        assert steps(driver) == [10, 20, 30, 40]
    go(driver, 3)

    assert steps(driver) == [10, 20, 30, 40, 50, 60, 70]


def test_the_twin_that_takes_nothing_back_shows_steps_twice(driver: Driver):
    driver.make = TensorBoardWithoutPurge
    go(driver, 5)
    go(driver, 3)

    assert steps(driver) == [10, 20, 30, 40, 50, 50, 60, 70]


def test_a_resume_in_the_same_second_or_under_a_clock_that_went_back_is_read_last(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
):
    """Readers go by the names of files, which begin with a time."""
    times = itertools.chain([2_000_000_000.0, 2_000_000_000.0, 1_000_000_000.0])
    monkeypatch.setattr("perdure.sinks.tensorboard_files.time.time", lambda: next(times, 1_000_000_000.0))
    for _ in range(3):
        go(driver, 3)

    names = sorted(path.name.split(".")[3] for path in (driver.directory / "tensorboard").glob("events.*"))
    assert names == ["2000000000", "2000000001", "2000000002"]
    assert steps(driver) == [10, 20, 30, 40, 50, 60, 70]


def test_what_a_checkpoint_counts_is_readable_as_soon_as_it_is_durable(driver: Driver):
    with driver.open() as run:
        for _ in range(3):
            driver.step(run, loss=1.0)
        assert steps(driver) == [10, 20]


def test_rows_that_the_files_lost_are_written_again_and_no_row_twice(driver: Driver):
    """As after a power cut: the last event file is shorter than when the checkpoint was committed."""
    go(driver, 4)
    whole = shown(driver.directory)
    (file,) = (driver.directory / "tensorboard").glob("events.*")
    (driver.directory / "tensorboard" / "perdure.json").unlink()
    file.write_bytes(file.read_bytes()[:-50])
    assert steps(driver) == [10, 20]
    with driver.open():
        pass

    assert shown(driver.directory) == whole


@pytest.mark.parametrize("cursor", [None, b"", b"[]", b'{"env_steps":20}'], ids=["none", "torn", "other", "behind"])
def test_without_a_trustworthy_cursor_no_row_comes_twice(cursor: bytes | None, driver: Driver):
    go(driver, 4)
    path = driver.directory / "tensorboard" / "perdure.json"
    path.unlink() if cursor is None else path.write_bytes(cursor)
    go(driver, 1)

    assert steps(driver) == [10, 20, 30, 40, 50]


def test_rows_taken_back_and_lost_before_the_next_checkpoint_are_not_taken_for_held(driver: Driver):
    """The cursor goes back with the run: here a resume stepped back, committed again, and lost its event file."""
    go(driver, 6, every=2)
    last = max((driver.directory / "checkpoints").iterdir())
    (last / "MANIFEST.json").write_bytes(b"damaged")
    with driver.open():
        assert steps(driver) == [10, 20, 30, 40]
    go(driver, 2)

    assert steps(driver) == [10, 20, 30, 40, 50, 60]


def test_a_sink_that_comes_later_gets_the_rows_from_before(driver: Driver):
    driver.make = None
    go(driver, 4)
    driver.make = TensorBoard
    go(driver, 2)

    assert steps(driver) == [10, 20, 30, 40, 50, 60]


def test_the_script_s_own_values_are_taken_back_too(driver: Driver):
    driver.make = None
    for boundaries in (3, 2):
        with driver.open() as run:
            writer = run.summary_writer()
            assert run.summary_writer() is writer
            for _ in range(boundaries):
                writer.add_scalar("own", run.env_steps + 10, run.env_steps + 10)
                writer.add_text("note", f"at **{run.env_steps + 10}**", run.env_steps + 10)
                driver.step(run, loss=1.0)

    assert shown(driver.directory) == {"own": [(10, 10.0), (20, 20.0), (30, 30.0), (40, 40.0)]}
    # The reader behind TensorBoard's pages; the older one never takes texts back.
    texts = PluginEventAccumulator(str(driver.directory / "tensorboard")).Reload().Tensors("note/text_summary")
    assert [(text.step, text.tensor_proto.string_val[0].decode()) for text in texts] == [
        (step, f"at **{step}**") for step in (10, 20, 30, 40)
    ]


def test_the_writer_without_torch(tmp_path: Path):
    events = EventFile(tmp_path, 1, 10.0)
    writer = SummaryWriter(events)
    writer.add_scalar("a", np.float32(0.5), 10, walltime=5.0)
    writer.add_scalar("a", 2**2000, np.int64(20))
    writer.flush()
    writer.close()
    accumulator = EventAccumulator(str(tmp_path)).Reload()

    assert writer.log_dir == tmp_path
    assert [(e.step, e.value) for e in accumulator.Scalars("a")] == [(10, 0.5), (20, float("inf"))]
    assert accumulator.Scalars("a")[0].wall_time == 5.0
    events.close()


def test_the_script_s_close_does_not_end_the_rows(driver: Driver):
    with driver.open() as run:
        driver.step(run, loss=1.0)
        run.summary_writer().close()
        driver.step(run, loss=1.0)

    assert steps(driver) == [10, 20]


def test_a_summary_writer_needs_an_open_run(tmp_path: Path):
    with pytest.raises(UsageError, match=r"^summary_writer: the run is not open; call restore first"):
        perdure.Run(tmp_path).summary_writer()
    with pytest.raises(UsageError, match=r"^TensorBoard\.writer: "):
        _ = TensorBoard().writer


def test_without_tensorboard_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("perdure.sinks.tensorboard.find_spec", lambda name: None)

    with pytest.raises(UsageError, match=r"pip install 'perdure\[tensorboard\]'"):
        TensorBoard()


def test_an_error_of_the_disk_is_told_by_the_next_flush_and_stops_nothing(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
):
    driver.make = lambda: TensorBoard(flush_every_s=0)

    def fail(self: EventFile) -> None:
        raise OSError(28, "No space left on device")

    with driver.open(every=10) as run:
        driver.step(run, loss=1.0)
        with monkeypatch.context() as patch:
            patch.setattr(EventFile, "_drain", fail)
            run.summary_writer().add_scalar("own", 1.0, 15)
        run.summary_writer().add_scalar("own", 1.0, 16)
        for _ in range(9):
            driver.step(run, loss=1.0)
        assert run.env_steps == 100
    failures = [event for event in read_lineage(driver.directory / "lineage.jsonl") if event["event"] == "sink_failed"]

    # `close` is called all the same, and tells of it once more.
    assert {event["call"] for event in failures} == {"flush", "close"}
    assert failures[0]["problem"] == "OSError: [Errno 28] No space left on device"
    assert steps(driver) == [10]
    go(driver, 1)
    assert steps(driver) == [*range(10, 120, 10)]


def test_a_forked_child_writes_nothing(tmp_path: Path):
    events = EventFile(tmp_path, 1, 1000.0)
    events.add_scalars({"a": 1.0}, 10)

    def child() -> None:
        events.add_scalars({"a": 2.0}, 20)
        events.flush()
        events.close()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    events.add_scalars({"a": 3.0}, 30)
    events.close()
    events.close()

    assert process.exitcode == 0
    assert shown_scalars(tmp_path) == {("a", 10), ("a", 30)}


def test_another_place(tmp_path: Path):
    driver = Driver(tmp_path / "run", lambda: TensorBoard(tmp_path / "logs" / "x"))
    go(driver, 2)

    assert shown_scalars(tmp_path / "logs" / "x") == {("loss", 10), ("loss", 20)}
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert os.listdir(tmp_path / "logs") == ["x"]
