"""A run's history over several resumes: what the lineage says, cumulative time, torn and edited lines."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perdure
from perdure.checkpoint.opening import read_manifest
from perdure.format import canonical
from perdure.runs import committer as committer_module
from perdure.runs.directory import RunDirectory, newest_first
from perdure.runs.lineage import read_lineage


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(
        committer_module, "time", SimpleNamespace(monotonic=clock.monotonic, perf_counter=clock.monotonic)
    )
    return clock


def opened(path: Path, **options: Any) -> perdure.Run:
    run = perdure.Run(path, every=perdure.Every(updates=1), **options)
    run.restore(x=1)
    return run


def go(run: perdure.Run, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    run.boundary(env_steps=run.env_steps + 10, x=1)


def newest_manifest(path: Path) -> Any:
    store = RunDirectory(path).store()
    return read_manifest(store, next(newest_first(store.names())))[0]


def events(path: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_lineage(path / "lineage.jsonl") if event["event"] == kind]


def test_training_time_adds_up_over_three_resumes_and_pauses_do_not_count(tmp_path: Path, clock: Clock):
    for attempt in range(4):
        with opened(tmp_path / "x", background=False) as run:
            assert run.trained_s == 10.0 * attempt
            go(run, clock, 7.0)
            go(run, clock, 3.0)
            assert run.trained_s == 10.0 * (attempt + 1)
        assert newest_manifest(tmp_path / "x").trained_s == 10.0 * (attempt + 1)
        clock.now += 5000.0

    assert [event["trained_s"] for event in events(tmp_path / "x", "resumed")] == [10.0, 20.0, 30.0]
    assert [event["trained_s"] for event in events(tmp_path / "x", "stopped")] == [10.0, 20.0, 30.0, 40.0]


def test_time_after_the_last_commit_is_lost_with_it(tmp_path: Path, clock: Clock):
    with opened(tmp_path / "x", background=False) as run:
        go(run, clock, 7.0)
        clock.now += 60.0

    with opened(tmp_path / "x") as run:
        assert run.trained_s == 7.0


def test_the_lineage_says_from_where_and_why_not_a_newer_one(tmp_path: Path):
    with opened(tmp_path / "x", background=False) as run:
        for _ in range(3):
            run.boundary(env_steps=run.env_steps + 10, x=1)
    newest = tmp_path / "x" / "checkpoints" / "step_0000000030" / "MANIFEST.json"
    newest.write_bytes(newest.read_bytes()[:-2])

    opened(tmp_path / "x").close()

    [event] = events(tmp_path / "x", "resumed")
    assert (event["checkpoint"], event["env_steps"]) == ("step_0000000020", 20)
    assert list(event["stepped_back"]) == ["step_0000000030"]
    assert "MANIFEST.json" in event["stepped_back"]["step_0000000030"]


def test_changes_of_arithmetic_are_kept_pairwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from perdure.runs import contract_terms

    opened(tmp_path / "x").close()
    now = {**contract_terms.arithmetic(), "numpy": "9.9"}
    monkeypatch.setattr(contract_terms, "arithmetic", lambda: now)

    opened(tmp_path / "x").close()

    [event] = events(tmp_path / "x", "resumed")
    assert list(event["arithmetic"]) == ["numpy"]
    assert event["arithmetic"]["numpy"][1] == "9.9"


def test_a_stop_says_what_stopped_it(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), opened(tmp_path / "x"):
        raise ZeroDivisionError("no mean of nothing")
    opened(tmp_path / "x").close()
    with opened(tmp_path / "x") as run:
        run.boundary(env_steps=10, x=1)
        run.finish()

    ends = [
        event for event in read_lineage(tmp_path / "x" / "lineage.jsonl") if event["event"] in ("stopped", "finished")
    ]
    assert [(event["event"], event.get("why")) for event in ends] == [
        ("stopped", "ZeroDivisionError: no mean of nothing"),
        ("stopped", "closed"),
        ("finished", None),
    ]


def test_a_commit_that_failed_is_in_the_lineage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = opened(tmp_path / "x", background=False)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise perdure.CommitError("checkpoint step_0000000010 was not committed: no space left.")

    with monkeypatch.context() as patch:
        patch.setattr(committer_module, "save", fail)
        with pytest.raises(perdure.CommitError):
            run.boundary(env_steps=10, x=1)
    run.close()

    [event] = events(tmp_path / "x", "commit_failed")
    assert event["checkpoint"] == "step_0000000010"
    assert event["problem"].startswith("CommitError: ")


def test_a_torn_last_line_is_cut_and_said_and_the_chain_goes_on(tmp_path: Path):
    opened(tmp_path / "x").close()
    lineage = tmp_path / "x" / "lineage.jsonl"
    whole = lineage.read_bytes()
    lineage.write_bytes(whole + b'{"at":"2026-11-30T00')

    run = opened(tmp_path / "x")
    run.close()

    assert run.notices == ["lineage.jsonl: a torn last line of 20 bytes was cut off."]
    assert lineage.read_bytes().startswith(whole)
    assert events(tmp_path / "x", "resumed")[0]["notices"] == run.notices
    assert [event["event"] for event in read_lineage(lineage)][-2:] == ["resumed", "stopped"]


def test_an_edited_line_is_said_and_does_not_stop_the_run(tmp_path: Path):
    opened(tmp_path / "x").close()
    lineage = tmp_path / "x" / "lineage.jsonl"
    lines = lineage.read_bytes().splitlines(keepends=True)
    event = json.loads(lines[0])
    event["run_id"] = "0" * 32
    lines[0] = json.dumps(event, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    lineage.write_bytes(b"".join(lines))

    run = opened(tmp_path / "x")
    run.close()

    assert run.resumed
    assert run.notices == [
        "lineage.jsonl:1: its digest does not match its text. The checkpoints do not depend on it; acceptances in it "
        "do not count."
    ]


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["missing", "empty"])
def test_a_lost_lineage_is_said_and_does_not_stop_the_run(tmp_path: Path, lose: Any):
    opened(tmp_path / "x").close()
    lose(tmp_path / "x" / "lineage.jsonl")

    run = opened(tmp_path / "x")
    run.close()

    assert run.resumed
    assert run.notices == [
        "lineage.jsonl is missing or empty. The checkpoints do not depend on it; acceptances in it do not count."
    ]


@pytest.mark.parametrize(
    "edit", [{"reason": "another"}, {"launch": "x"}, {"digest": None}, {"accepted": None}, {"event": None}], ids=str
)
def test_an_edited_last_line_is_said_at_every_later_resume(tmp_path: Path, edit: dict[str, Any]):
    """A process that was killed right after it had gone on: nothing follows its line yet."""
    opened(tmp_path / "x").close()
    opened(tmp_path / "x").close()
    lineage = tmp_path / "x" / "lineage.jsonl"
    lines = lineage.read_bytes().splitlines(keepends=True)[:-1]
    event = {name: value for name, value in {**json.loads(lines[-1]), **edit}.items() if value is not None}
    lineage.write_bytes(b"".join(lines[:-1]) + canonical.encode(event))

    for _ in range(2):
        run = opened(tmp_path / "x")
        run.close()
        assert run.resumed
        assert run.notices == [
            f"lineage.jsonl:{len(lines)}: its digest does not match its text. The checkpoints do not depend on it; "
            "acceptances in it do not count."
        ]


def test_a_damaged_lineage_without_checkpoints_begins_no_run(tmp_path: Path):
    """Nobody can tell whether there were any; beginning again would cost what is left."""
    opened(tmp_path / "x").close()
    lineage = tmp_path / "x" / "lineage.jsonl"
    lineage.write_bytes(lineage.read_bytes().replace(b'"started"', b'"stopped"', 1))
    shutil.rmtree(tmp_path / "x" / "checkpoints")
    before = lineage.read_bytes()

    with pytest.raises(perdure.NoCheckpointError, match=r"there is no checkpoint, and lineage\.jsonl:1: its digest"):
        opened(tmp_path / "x")

    assert lineage.read_bytes() == before


def test_amended_keeps_the_order_also_of_a_change_that_is_made_again(tmp_path: Path):
    """0.1, 0.2, 0.1 and 0.2 again: the last one says what holds."""
    rates = [0.1, 0.2, 0.1, 0.2]
    changes = list(pairwise(rates))
    opened(tmp_path / "x", config={"rate": rates[0]}).close()
    for before, rate in changes:
        accept = {"algorithm.rate": (before, rate)}
        with opened(tmp_path / "x", config={"rate": rate}, accept=accept) as run:
            run.boundary(env_steps=run.env_steps + 10, x=1)

    assert newest_manifest(tmp_path / "x").amended == tuple(f"algorithm.rate={old}:{new}" for old, new in changes)
