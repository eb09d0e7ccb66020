"""The console's line says steps, rate, time left, last checkpoint and chosen metrics, by an injected clock."""

import io
import itertools
import time
from pathlib import Path

import pytest

from perdure import Every, Run
from perdure.checkpoint.capture import Counters
from perdure.sinks import Console, SinkInfo
from perdure.sinks.console import Checkpoint, progress_line
from perdure.sinks.wording import duration


@pytest.mark.parametrize(
    ("env_steps", "total", "rate", "metrics", "checkpoint", "line"),
    [
        (
            30_000,
            60_000,
            1234.5,
            ["loss 0.5"],
            Checkpoint(20_000, 75.0, 3 * 2**19),
            "30,000 of 60,000 steps (50 %), loss 0.5, 1,234 steps/s, 24 s left, "
            "last checkpoint 20,000 (1 min ago, 1.5 MiB)",
        ),
        (30, None, 10.0, [], None, "30 steps, 10 steps/s, no checkpoint yet"),
        (0, 60, None, [], Checkpoint(0), "0 of 60 steps (0 %), – steps/s, last checkpoint 0"),
        (
            70,
            60,
            10.0,
            [],
            Checkpoint(60, 1.0),
            "70 of 60 steps (116 %), 10 steps/s, 0 s left, last checkpoint 60 (1 s ago)",
        ),
    ],
)
def test_the_line(
    env_steps: int, total: int | None, rate: float | None, metrics: list[str], checkpoint: Checkpoint | None, line: str
):
    assert progress_line(env_steps, total, rate=rate, metrics=metrics, checkpoint=checkpoint) == line


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def info(env_steps: int = 0, *, resumed: bool = False) -> SinkInfo:
    return SinkInfo("id", Path("run"), 1, 1000, resumed, Counters(env_steps, 0, 0), 0.0, lambda: iter([]))


def test_a_line_at_most_every_so_many_seconds():
    clock, stream = Clock(), io.StringIO()
    sink = Console(["loss", "name"], every_s=10, stream=stream, clock=clock)
    sink.begin(info())
    for now, env_steps in ((105.0, 50), (110.0, 100), (115.0, 150), (131.0, 310)):
        clock.now = now
        sink.row(Counters(env_steps, 0, 0), {"loss": env_steps / 3, "other": 1.0})
        if env_steps == 100:
            sink.committed(Counters(100, 0, 0), Path("x"), 2048)

    assert stream.getvalue().splitlines() == [
        "100 of 1,000 steps (10 %), loss 33.3333, 10 steps/s, 2 min left, no checkpoint yet",
        "310 of 1,000 steps (31 %), loss 103.333, 10 steps/s, 1 min left, last checkpoint 100 (21 s ago, 2.0 KiB)",
    ]


def test_a_metric_keeps_the_last_value_it_had():
    clock, stream = Clock(), io.StringIO()
    sink = Console(["return"], every_s=0, stream=stream, clock=clock)
    sink.begin(info())
    sink.row(Counters(10, 0, 0), {"return": 1.5})
    sink.row(Counters(20, 0, 0), {"loss": 1.0})

    assert [line.split(", ")[1] for line in stream.getvalue().splitlines()] == ["return 1.5", "return 1.5"]


def test_steps_from_before_a_resume_count_neither_for_the_rate_nor_for_the_time_left():
    clock, stream = Clock(), io.StringIO()
    sink = Console(every_s=1, stream=stream, clock=clock)
    sink.begin(info(500, resumed=True))
    clock.now = 110.0
    sink.row(Counters(600, 0, 0), {})

    assert stream.getvalue() == "600 of 1,000 steps (60 %), 10 steps/s, 40 s left, last checkpoint 500\n"


def test_the_stream_is_stderr_as_it_is_when_the_line_is_printed(capsys: pytest.CaptureFixture[str]):
    sink = Console(every_s=0, clock=Clock())
    sink.begin(info())
    sink.row(Counters(10, 0, 0), {})

    assert capsys.readouterr().err == "10 of 1,000 steps (1 %), – steps/s, no checkpoint yet\n"


def test_the_time_left_and_the_time_trained_survive_three_resumes(tmp_path: Path):
    """Each opening tells its own pace, from where the run stands; the time trained adds up over all of them."""
    trained: list[float] = []
    for opening in range(4):
        clock, stream = Clock(), io.StringIO()
        run = Run(tmp_path / "x", horizon=1000, every=Every(updates=1), sinks=[Console(stream=stream, clock=clock)])
        with run:
            x = run.restore(x=0).x
            trained.append(run.trained_s)
            time.sleep(0.02)
            clock.now += 10.0 * (opening + 1)
            run.boundary(env_steps=run.env_steps + 100, x=x + 1, metrics={})
        steps, left = 100 * (opening + 1), 9 - opening
        pace = f"{100 / (10 * (opening + 1)):,.0f} steps/s, {duration(left * 10.0 * (opening + 1))} left"
        assert stream.getvalue().startswith(f"{steps} of 1,000 steps ({10 * (opening + 1)} %), {pace}")

    assert all(later >= earlier + 0.02 for earlier, later in itertools.pairwise(trained))
