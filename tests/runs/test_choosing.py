"""The best, the latest and the one at a step: chosen among all checkpoints there are, whoever made them."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import AllDamagedError, NoCheckpointError, NoRunError, UsageError
from perdure.format.manifest import decode_manifest, encode_manifest
from perdure.runs.lineage import read_lineage
from perdure.runs.retention import Keep

RETURNS = (1.0, 9.0, math.nan, 9.0, 3.0)


def opened(path: Path, keep: Any = None, **options: Any) -> perdure.Run:
    run = perdure.Run(path, every=perdure.Every(updates=1), keep=keep, **options)
    run.restore(x=0)
    return run


def add(run: perdure.Run, *rows: Mapping[str, Any] | None) -> None:
    for row in rows:
        steps = run.env_steps + 10
        run.boundary(env_steps=steps, x=steps, metrics=row)


def returns(*values: float) -> list[dict[str, float]]:
    return [{"return": value, "loss": -value} for value in values]


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    """Checkpoints at 0, 10, …, 50; of the two best the newer stands at 40."""
    with opened(tmp_path / "run", Keep(last=9, best=1, metric="return")) as run:
        add(run, *returns(*RETURNS))
    return tmp_path / "run"


def chosen(run: Path, *which: Any, **options: Any) -> int:
    path = perdure.checkpoint_path(run, *which, **options)
    assert path.parent == run / "checkpoints"
    return int(path.name.removeprefix("step_"))


def test_the_latest_and_one_at_a_step(run_path: Path):
    assert (chosen(run_path), chosen(run_path, "latest"), chosen(run_path, 20)) == (50, 50, 20)


def test_the_best_by_what_the_script_keeps_the_newer_of_equal_ones_and_never_a_nan(run_path: Path):
    assert chosen(run_path, "best") == 40


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"metric": "return"}, 40),
        ({"metric": "return", "mode": "min"}, 10),
        ({"mode": "min"}, 10),
        ({"metric": "loss"}, 10),
        ({"metric": "loss", "mode": "min"}, 40),
    ],
)
def test_the_best_by_any_metric_and_mode(run_path: Path, options: dict[str, Any], steps: int):
    assert chosen(run_path, "best", **options) == steps


def test_a_metric_that_the_script_ranks_has_the_script_s_mode(tmp_path: Path):
    keep = Keep(last=9, best=1, metric="loss", mode="min") | Keep(best=1, metric="return")
    with opened(tmp_path, keep) as run:
        add(run, *returns(1.0, 5.0, 2.0))

        assert run.checkpoint_path("best", metric="loss").name == "step_0000000020"
    assert chosen(tmp_path, "best", metric="loss") == 20


def test_the_run_itself_knows_what_is_committed_in_the_background(tmp_path: Path):
    run = opened(tmp_path, Keep(last=1, best=1, metric="return"))
    for value, best in ((1.0, 10), (4.0, 20), (2.0, 20), (4.0, 40)):
        add(run, *returns(value))
        assert run.checkpoint_path("best") == tmp_path / "checkpoints" / f"step_{best:010d}"
        assert run.checkpoint_path() == tmp_path / "checkpoints" / f"step_{run.env_steps:010d}"
    run.close()

    assert run.checkpoint_path("best").name == "step_0000000040"


def test_what_the_script_calls_best_is_that_of_the_last_opening(run_path: Path):
    with opened(run_path, Keep(last=9, best=1, metric="loss", mode="max")):
        assert chosen(run_path, "best") == 10
    with opened(run_path, Keep(last=9)), pytest.raises(UsageError, match="the run keeps no best one"):
        chosen(run_path, "best")


def test_a_lineage_from_before_there_were_ranks_asks_for_the_metric(run_path: Path):
    (run_path / "lineage.jsonl").unlink()

    with pytest.raises(
        UsageError, match=r"best by which metric\? the run keeps no best one; its checkpoints have loss,"
    ):
        chosen(run_path, "best")
    assert chosen(run_path, "best", metric="return") == 40


@pytest.mark.parametrize(
    ("keep", "which", "options", "message"),
    [
        (
            Keep(last=9),
            "best",
            {},
            "best by which metric? the run keeps no best one; its checkpoints have loss, return. Name one: "
            "`--metric`, `RUN@best:METRIC`, or `metric=` in Python.",
        ),
        (
            Keep(last=9, best=1, metric="return") | Keep(best=1, metric="loss", mode="min"),
            "best",
            {},
            "best by which metric? the run ranks by return (max) and loss (min); its checkpoints have loss, return. "
            "Name one: `--metric`, `RUN@best:METRIC`, or `metric=` in Python.",
        ),
        (
            Keep(last=9),
            "best",
            {"metric": "retrun"},
            "no checkpoint has the score 'retrun'; its checkpoints have loss, return.",
        ),
    ],
)
def test_a_best_one_that_nobody_can_tell(tmp_path: Path, keep: Any, which: str, options: dict[str, Any], message: str):
    with opened(tmp_path, keep) as run:
        add(run, *returns(1.0, 2.0))
    with pytest.raises(UsageError) as caught:
        perdure.checkpoint_path(tmp_path, which, **options)

    assert str(caught.value) == f"{tmp_path}: {message}"


def test_without_any_score(tmp_path: Path):
    with opened(tmp_path) as run:
        add(run, None, {"name": "text", "nothing": math.nan})

    with pytest.raises(UsageError, match="no checkpoint has the score 'return'; its checkpoints have no scores at all"):
        chosen(tmp_path, "best", metric="return")


@pytest.mark.parametrize(
    ("which", "options", "message"),
    [
        ("newest", {}, "which='newest': 'best', 'latest', or the checkpoint's env-steps."),
        (True, {}, "which=True: "),
        (-10, {}, "which=-10: "),
        (10.0, {}, "which=10.0: "),
        ("best", {"mode": "most"}, "mode='most': 'max' or 'min'."),
        ("latest", {"metric": "return"}, "metric and mode say what the best one is; 'latest' needs neither."),
    ],
)
def test_what_cannot_be_meant_is_refused(run_path: Path, which: Any, options: dict[str, Any], message: str):
    with pytest.raises(UsageError) as caught:
        perdure.checkpoint_path(run_path, which, **options)

    assert str(caught.value).startswith(message)


def test_no_run_no_checkpoint_and_no_such_step_are_told_apart(run_path: Path, tmp_path: Path):
    with pytest.raises(NoRunError, match="no such directory"):
        chosen(tmp_path / "typo")
    with pytest.raises(NoCheckpointError) as caught:
        chosen(run_path, 15)
    assert str(caught.value) == f"{run_path}: no checkpoint at 15 env-steps; there are: 50, 40, 30, 20, 10, 0."
    (run_path / "checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(NoCheckpointError, match="the run has no checkpoint"):
        chosen(run_path, "best")


def harm(run: Path, *steps: int) -> None:
    for step in steps:
        file = run / "checkpoints" / f"step_{step:010d}" / "MANIFEST.json"
        file.write_bytes(file.read_bytes()[:-2])


def test_a_damaged_manifest_is_passed_over_and_said(run_path: Path, caplog: pytest.LogCaptureFixture):
    harm(run_path, 40, 50)

    assert (chosen(run_path, "best"), chosen(run_path, "latest")) == (20, 30)
    assert f"{run_path}: a damaged checkpoint is passed over: step_0000000040: MANIFEST.json: " in caplog.text


def test_nothing_but_damage(run_path: Path):
    harm(run_path, 0, 10, 20, 30, 40, 50)

    with pytest.raises(AllDamagedError, match=r"no manifest is intact\.\n  step_0000000050: MANIFEST.json: "):
        chosen(run_path)


class Clock:
    """Seconds that pass only when the test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


KEEP = Keep(last=1, every=40, best=1, metric="return")
CASES_23 = (0.0, 3.0, 9.0, 1.0, 4.0, 7.0, 2.0, 8.0, 9.0, 5.0, 6.0, 1.0)


def trained(path: Path, clock: Clock, stops: tuple[int, ...], *, forgets: bool = False) -> tuple[Any, ...]:
    """What is there after twelve updates of 10 steps and 60 s each, with an hour's pause after each of `stops`."""
    best, trained_s = None, 0.0
    for last in (*stops, len(CASES_23)):
        with perdure.Run(path, every=perdure.Every(env_steps=25), keep=KEEP, horizon=120) as run:
            run.restore(x=0)
            if forgets:
                _strip_scores(path)
            while run.boundary_number < last:
                clock.now += 60.0
                number = run.boundary_number + 1
                run.boundary(env_steps=10 * number, x=number, metrics={"return": CASES_23[number - 1]})
            best = run.checkpoint_path("best").name if run.env_steps else None
            trained_s = run.trained_s
        clock.now += 3600.0
    there = sorted(entry.name for entry in (path / "checkpoints").iterdir())
    committed = [event["checkpoint"] for event in read_lineage(path / "lineage.jsonl") if event["event"] == "committed"]
    return there, best, sorted(set(committed)), trained_s


def _strip_scores(path: Path) -> None:
    """What a run does that keeps its scores in memory: the checkpoints from before the stop have none."""
    for file in path.glob("checkpoints/*/MANIFEST.json"):
        manifest = decode_manifest(file.read_bytes())
        file.write_bytes(encode_manifest(replace(manifest, scores={})))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("perdure.runs.committer.time.monotonic", clock.monotonic)
    return clock


def test_cases_23_after_a_resume_retention_and_best_go_on_from_what_the_run_knew(tmp_path: Path, clock: Clock):
    """Best, every, cadence marks and the time trained are after three resumes as in the run that was never stopped.

    The stops stand at boundaries that are saved.
    """
    straight = trained(tmp_path / "straight", clock, ())
    stopped = trained(tmp_path / "stopped", clock, (3, 5, 10))

    assert straight == stopped
    there, best, committed, trained_s = straight
    assert committed == [f"step_{step:010d}" for step in (0, 30, 50, 80, 100, 120)]  # 25, 50, 75, …: none is shifted
    assert there == [f"step_{step:010d}" for step in (0, 30, 50, 80, 120)]
    assert best == "step_0000000030"
    assert trained_s == 12 * 60.0


def test_cases_23_also_with_stops_between_the_marks(tmp_path: Path, clock: Clock):
    """What was trained behind a checkpoint is trained again, and counts once."""
    straight = trained(tmp_path / "straight", clock, ())
    stopped = trained(tmp_path / "stopped", clock, (4, 7, 11))

    assert straight == stopped


def test_a_run_that_forgets_its_scores_loses_the_best(tmp_path: Path, clock: Clock):
    """The twin: CASES 23 as it was reported."""
    kept = trained(tmp_path / "kept", clock, (3, 5, 10))
    forgot = trained(tmp_path / "forgot", clock, (3, 5, 10), forgets=True)

    assert forgot[:2] != kept[:2]
    assert "step_0000000030" not in forgot[0]
