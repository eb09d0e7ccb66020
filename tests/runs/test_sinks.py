"""The guard around sinks: order and threads of their calls, and that nothing a sink does can stop a training."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.toy_training import Training, contents, events, names, rows

from perdure import Every, Run, UsageError
from perdure.runs.lineage import read_lineage
from perdure.runs.sinks import Sinks, attempt_of
from perdure.runs.story import story
from perdure.sinks import Csv, Sink, SinkInfo

pytestmark = pytest.mark.usefixtures("global_generators")


class Recorder(Sink):
    """Notes every call; fails in those it was told to."""

    def __init__(self, *fails: str) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.threads: dict[str, set[str]] = {}
        self.info: SinkInfo | None = None
        self._fails = fails

    def _note(self, call: str, *facts: Any) -> None:
        self.calls.append((call, *facts))
        self.threads.setdefault(call, set()).add(threading.current_thread().name)
        if call in self._fails:
            raise RuntimeError(f"no {call} today")

    def begin(self, info: SinkInfo) -> None:
        self.info = info
        self._note("begin", info.attempt, info.resumed, info.counters.env_steps, list(info.rows()))

    def row(self, counters: Any, metrics: Any) -> None:
        self._note("row", counters.env_steps, metrics)

    def flush(self) -> None:
        self._note("flush")

    def committed(self, counters: Any, checkpoint: Path, size_bytes: int) -> None:
        self._note("committed", counters.env_steps, checkpoint.is_dir(), size_bytes > 0)

    def close(self) -> None:
        self._note("close")

    def named(self, call: str) -> list[tuple[Any, ...]]:
        return [found for found in self.calls if found[0] == call]


def train(path: Path, *sinks: Sink, updates: int = 3, every: int = 1, end: Callable[[Training], None] | None = None):
    training = Training(path, sinks=sinks, every=Every(updates=every), horizon=None, background=False).restore()
    training.go(updates)
    (end or Training.stop)(training)
    return training


def test_the_order_of_the_calls(tmp_path: Path):
    sink = Recorder()
    train(tmp_path, sink, updates=2)

    commit = [("flush",), ("committed", 0, True, True)]
    row = [("row", 10, {"norm": rows(tmp_path)[0]["norm"]}), ("flush",), ("committed", 10, True, True)]
    then = [("row", 20, {"norm": rows(tmp_path)[1]["norm"]}), ("flush",), ("committed", 20, True, True)]
    assert sink.calls == [("begin", 1, False, 0, []), *commit, *row, *then, ("close",)]


def test_what_a_sink_is_told_at_the_beginning_and_at_a_resume(tmp_path: Path):
    first, second = Recorder(), Recorder()
    train(tmp_path, first, updates=5, every=2)
    kept = [row["norm"] for row in rows(tmp_path)[:4]]
    train(tmp_path, second, updates=1)
    info = second.info

    assert info is not None
    assert (info.directory, info.horizon, info.counters.boundary) == (tmp_path, None, 4)
    assert info.run_id == read_lineage(tmp_path / "lineage.jsonl")[0]["run_id"]
    assert info.trained_s > 0
    call, attempt, resumed, env_steps, found = second.calls[0]
    assert (call, attempt, resumed, env_steps) == ("begin", 2, True, 40)
    assert [(counters.env_steps, metrics) for counters, metrics in found] == [
        (10 * number, {"norm": norm}) for number, norm in enumerate(kept, 1)
    ]


def test_the_horizon_is_told(tmp_path: Path):
    sink = Recorder()
    Training(tmp_path, sinks=[sink]).restore().stop()

    assert sink.info is not None
    assert sink.info.horizon == 80


def test_rows_are_what_the_stream_holds_not_what_was_handed_in(tmp_path: Path):
    sink = Recorder()
    run = Run(tmp_path, sinks=[sink])
    run.restore(x=0)
    run.boundary(env_steps=1, x=1, metrics={"z": np.float32(0.1), "a": np.arange(2), "n": float("nan")})
    run.close()

    ((_, _, metrics),) = sink.named("row")
    assert repr(metrics) == repr({"a": [0, 1], "n": float("nan"), "z": float(np.float32(0.1))})


def test_a_boundary_without_metrics_is_no_row(tmp_path: Path):
    sink = Recorder()
    run = Run(tmp_path, sinks=[sink])
    run.restore(x=0)
    run.boundary(env_steps=1, x=1)
    run.close()

    assert sink.named("row") == []


def test_in_the_background_flush_and_committed_come_from_the_thread_that_writes(tmp_path: Path):
    sink = Recorder()
    Training(tmp_path, sinks=[sink]).restore().go(3).stop()

    here = threading.current_thread().name
    assert sink.threads["row"] == sink.threads["begin"] == sink.threads["close"] == {here}
    assert here in sink.threads["committed"]  # boundary 0 is committed at once
    assert len(sink.threads["committed"]) == len(sink.threads["flush"]) == 2
    assert [call[1] for call in sink.named("committed")] == [0, 10, 20, 30]


@pytest.mark.parametrize("call", ["begin", "row", "flush", "committed", "close"])
def test_a_sink_that_fails_stops_nothing_and_is_told_of_once(
    call: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    broken, healthy = Recorder(call), Recorder()
    with caplog.at_level(logging.WARNING, "perdure"):
        train(tmp_path / "run", broken, healthy)
    train(tmp_path / "straight")

    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'run'}: sink Recorder failed in {call}; left out until the next start: "
        f"RuntimeError: no {call} today"
    ]
    failures = [event for event in read_lineage(tmp_path / "run" / "lineage.jsonl") if event["event"] == "sink_failed"]
    assert [(event["sink"], event["call"], event["problem"]) for event in failures] == [
        ("Recorder", call, f"RuntimeError: no {call} today")
    ]
    assert events(tmp_path / "run")[-1] == "stopped"
    assert len(broken.named(call)) == len(broken.named("close")) == 1
    assert [len(healthy.named(name)) for name in ("begin", "row", "flush", "committed", "close")] == [1, 3, 4, 4, 1]
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (tmp_path / "straight/metrics.jsonl").read_bytes()


def test_the_story_says_which_sink_failed(tmp_path: Path):
    train(tmp_path, Recorder("row"))

    texts = [sentence.text for sentence in story(read_lineage(tmp_path / "lineage.jsonl"))]
    assert "sink Recorder failed in row and was left out: RuntimeError: no row today" in texts


def test_a_sink_that_failed_is_back_at_the_next_start(tmp_path: Path):
    train(tmp_path, Recorder("row"))
    sink = Recorder()
    train(tmp_path, sink, updates=1)

    assert [len(sink.named(name)) for name in ("begin", "row", "close")] == [1, 1, 1]


def test_a_stop_by_the_keyboard_in_a_sink_is_no_failure_of_it(tmp_path: Path):
    class Stopped(Recorder):
        def row(self, counters: Any, metrics: Any) -> None:
            raise KeyboardInterrupt

    training = Training(tmp_path, sinks=[Stopped()]).restore()
    with pytest.raises(KeyboardInterrupt):
        training.go(1)
    training.stop()

    assert "sink_failed" not in events(tmp_path)


def test_a_commit_does_not_wait_for_a_sink_that_is_busy(monkeypatch: pytest.MonkeyPatch):
    """A signal may have stopped the training thread inside of `row`: a commit that waited for it would never end."""
    monkeypatch.setattr("perdure.runs.sinks._PATIENCE_S", 0.01)
    left: list[str] = []

    class Busy(Recorder):
        def row(self, counters: Any, metrics: Any) -> None:
            thread = threading.Thread(target=lambda: (sinks.flush(), left.append("went on")))
            thread.start()
            thread.join(10)

    sink = Busy()
    sinks = Sinks([sink])
    sinks.row(None, {})  # type: ignore[arg-type]

    assert left == ["went on"]
    assert sink.calls == []
    sinks.flush()
    assert sink.calls == [("flush",)]


def test_closed_twice_a_sink_is_closed_once(tmp_path: Path):
    sink = Recorder()
    training = train(tmp_path, sink)
    training.run.close()

    assert len(sink.named("close")) == 1


def test_a_sink_that_was_never_begun_is_not_closed():
    sink = Recorder()
    Sinks([sink]).close()

    assert sink.calls == []


def test_after_finish_the_sinks_are_closed_before_the_last_line(tmp_path: Path):
    sink = Recorder("close")
    train(tmp_path, sink, end=lambda training: training.run.finish())

    assert events(tmp_path)[-2:] == ["sink_failed", "finished"]


def test_without_sinks_a_run_is_what_it_was(tmp_path: Path):
    train(tmp_path)

    expected = [".writer.lock", "checkpoints", "lineage.jsonl", "metrics.jsonl", "run.json", "timings.jsonl"]
    assert names(tmp_path) == expected


def test_sinks_do_not_change_what_is_saved(tmp_path: Path):
    train(tmp_path / "with", Csv(), Recorder())
    train(tmp_path / "without")
    left, right = contents(tmp_path / "with"), contents(tmp_path / "without")

    tensors = [name for name in right if name.endswith(".safetensors") or name == "metrics.jsonl"]
    assert len(tensors) > 4
    assert {name: left[name] for name in tensors} == {name: right[name] for name in tensors}
    assert left.keys() - right.keys() == {"metrics.csv"}


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (Csv, "sinks: Csv is a class; write Csv()."),
        ("csv", "sinks: a str has no method begin; perdure.sinks.Sink says what a sink is."),
    ],
)
def test_what_is_no_sink_is_refused_at_once(sink: Any, message: str, tmp_path: Path):
    with pytest.raises(UsageError) as caught:
        Run(tmp_path, sinks=[sink])

    assert str(caught.value) == message


def test_a_fork_counts_its_own_openings(tmp_path: Path):
    from perdure.runs.fork import fork

    train(tmp_path / "run")
    train(tmp_path / "run", updates=1)
    fork(tmp_path / "run", 20, tmp_path / "fork")
    sink = Recorder()
    train(tmp_path / "fork", sink, updates=1)

    assert attempt_of(tmp_path / "run" / "lineage.jsonl") == 2
    assert sink.info is not None
    assert sink.info.attempt == 1
    assert [counters.env_steps for counters, _ in sink.calls[0][4]] == [10, 20]


def test_what_cannot_be_read_of_a_lineage_counts_no_opening(tmp_path: Path):
    (tmp_path / "lineage.jsonl").write_text('{"event":"started"}\nnot JSON\n[1]\n{"event":"resumed"}\n{"event":"x"}\n')

    assert attempt_of(tmp_path / "lineage.jsonl") == 2
    assert attempt_of(tmp_path / "none.jsonl") == 0
