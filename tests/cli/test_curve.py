"""`perdure show RUN` draws the return, with checkpoints, stops and resumes where they were."""

import math
from pathlib import Path

import pytest

import perdure
from perdure.cli.chart import ASCII
from perdure.cli.curve import MOST_ROWS, read_points, stops_and_resumes
from perdure.runs.directory import RunDirectory
from perdure.runs.resumption import read_history


def go(path: Path, until: int, *, last: str = "close") -> None:
    run = perdure.Run(path, every=perdure.Every(env_steps=20), keep=None, background=False)
    run.restore(x=0)
    while run.env_steps < until:
        steps = run.env_steps + 10
        run.boundary(env_steps=steps, x=1, metrics={"return": float(steps), "loss": math.nan if steps == 20 else 1.0})
    if last == "close":
        run.close()
    elif last == "finish":
        run.finish(x=1)
    else:
        run._end = lambda *_, **__: None  # killed: nothing is written any more
        run._free()


@pytest.fixture
def resumed(tmp_path: Path) -> Path:
    """Stopped behind its checkpoint at 40, killed at 60, finished at 100."""
    go(tmp_path / "run", 50)
    go(tmp_path / "run", 60, last="kill")
    go(tmp_path / "run", 100, last="finish")
    return tmp_path / "run"


def test_stops_and_resumes_stand_where_they_were(resumed: Path):
    assert stops_and_resumes(read_history(RunDirectory(resumed))[0]) == {"stop": [40, 60], "resume": [40, 60]}


def test_show_draws_it_as_wide_as_the_terminal(perdure_cli, resumed: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "50")
    drawn = perdure_cli("show", resumed).out.split("\nreturn over env-steps\n")[1].splitlines()

    assert len(drawn) == 12
    assert drawn[0].startswith("100 │")
    assert drawn[7].startswith(" 10 │    ⢀")
    assert max(map(len, drawn)) <= 50
    assert [drawn[9][5:].find(mark) for mark in "●▶"] == [0, 18]
    assert drawn[10].split("  ") == ["", "", " ● checkpoint", "■ stop", "▶ resume"]
    assert drawn[11].split() == ["0", "100", "env-steps"]


def test_plain_characters_where_the_encoding_has_no_others(perdure_cli, resumed: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("perdure.cli.curve.style_for", lambda _: ASCII)

    assert "100 |" in perdure_cli("show", resumed).out


def test_another_metric_and_one_that_no_row_has(perdure_cli, resumed: Path):
    assert "\nloss over env-steps\n" in perdure_cli("show", resumed, "--metric", "loss").out
    refused = perdure_cli("show", resumed, "--metric", "lss")

    assert (refused.code, refused.out) == (2, "")
    assert "no row has the metric 'lss'; the last ones have boundary, env_steps, loss, return, updates." in refused.err


def test_nothing_is_drawn_without_two_rows(perdure_cli, tmp_path: Path):
    go(tmp_path / "run", 10)

    assert "over env-steps" not in perdure_cli("show", tmp_path / "run").out


def test_very_many_rows_are_thinned_out_and_torn_ones_left_out(tmp_path: Path):
    lines = [b'{"env_steps":%d,"return":%d}\n' % (step, step) for step in range(50_000)]
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(lines) + b'not a row "return"\n{"env_steps":9,"return"')
    points = read_points(RunDirectory(tmp_path), "return")

    assert 10_000 < len(points) <= MOST_ROWS
    assert points[0] == (0, 0)
    assert all(step == value for step, value in points)
