"""The progress line says steps, return, rate and last checkpoint, and can never stop a training."""

import io
from pathlib import Path

import pytest

from perdure.cli import progress as module
from perdure.cli.progress import Progress
from perdure.runs.directory import open_directory


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


class Closed(Terminal):
    """A terminal that went away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time; its last item is now."""
    times = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: times[-1])
    return times


def test_the_line(clock: list[float], run_path: Path):
    progress = Progress(open_directory(run_path), 60, Terminal())
    progress({"eval/episode_reward_mean": 12.34}, 10)
    clock.append(102.0)
    progress({}, 30)

    assert progress.line(30) == "30 of 60 steps (50 %), return 12.3, 10 steps/s, 3 s left, last checkpoint 30"


@pytest.mark.parametrize(
    ("total", "left"), [(60, "3 s left"), (630, "1 min left"), (36030, "1 h left"), (30, "0 s left"), (20, "0 s left")]
)
def test_the_time_left_at_the_pace_of_late(clock: list[float], run_path: Path, total: int, left: str):
    """Ten steps a second; those from before a resume count for nothing."""
    progress = Progress(open_directory(run_path), total, Terminal())
    for now, steps in ((100.0, 10), (102.0, 30)):
        clock.append(now)
        progress({}, steps)

    assert f", 10 steps/s, {left}, " in progress.line(30)


def test_a_resume_does_not_count_the_steps_from_before(clock: list[float], run_path: Path):
    progress = Progress(open_directory(run_path), 2000, Terminal())
    for now, steps in ((100.0, 1000), (101.0, 1010)):
        clock.append(now)
        progress({}, steps)

    assert ", 10 steps/s, 2 min left, " in progress.line(1010)


def test_only_the_last_seconds_tell_the_pace(clock: list[float], run_path: Path):
    progress = Progress(open_directory(run_path), 1130, Terminal())
    for now, steps in ((100.0, 0), (101.0, 1000), (111.0, 1100), (114.0, 1130)):
        clock.append(now)
        progress({}, steps)

    assert ", 10 steps/s, " in progress.line(1130)


def test_before_anything_is_known(clock: list[float], tmp_path: Path):
    progress = Progress(open_directory(tmp_path), 60, Terminal())

    assert progress.line(0) == "0 of 60 steps (0 %), return –, – steps/s, no checkpoint yet"


def test_on_a_terminal_the_line_is_rewritten_and_cleared(clock: list[float], run_path: Path):
    stream = Terminal()
    progress = Progress(open_directory(run_path), 60, stream)
    for now, steps in ((100.0, 10), (100.1, 20), (100.3, 30)):
        clock.append(now)
        progress({}, steps)
    progress.close()
    shown = stream.getvalue().split("\r\x1b[K")

    assert [line.split(" ")[0] for line in shown] == ["", "10", "30", ""]
    assert "\n" not in stream.getvalue()


def test_elsewhere_it_is_a_plain_line_now_and_then(clock: list[float], run_path: Path):
    stream = io.StringIO()
    progress = Progress(open_directory(run_path), 60, stream)
    for now, steps in ((101.0, 10), (111.0, 20), (112.0, 30)):
        clock.append(now)
        progress({}, steps)
    progress.close()

    assert stream.getvalue() == "20 of 60 steps (33 %), return –, 1 steps/s, 40 s left, last checkpoint 30\n"


def test_a_reader_that_went_away_stops_no_training(clock: list[float], run_path: Path):
    progress = Progress(open_directory(run_path), 60, Closed())
    progress({}, 10)
    clock.append(200.0)
    progress({}, 20)
    progress.close()

    assert progress.iterations == 2


def test_with_several_rewards_the_first_return_is_shown(clock: list[float], run_path: Path):
    progress = Progress(open_directory(run_path), 60, Terminal())
    progress({"eval/episode_reward_mean/a": 1.0, "eval/episode_reward_mean/b": 2.0}, 10)

    assert progress.last_return == 1.0
