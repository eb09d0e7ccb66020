"""`perdure log` tells what happened to a run, in words or as events, and names a line that was edited."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import perdure
from perdure.cli.log import summary
from perdure.runs.record import read_record

INDEPENDENT = "The checkpoints do not depend on it: `perdure verify` examines them."


def lines_of(run: Path) -> list[bytes]:
    return (run / "lineage.jsonl").read_bytes().splitlines(keepends=True)


def write_lines(run: Path, lines: list[bytes]) -> None:
    (run / "lineage.jsonl").write_bytes(b"".join(lines))


def texts(out: str) -> list[str]:
    """The sentences without their times, and the summary."""
    *sentences, last = out.splitlines()
    assert all(sentence[4] == sentence[7] == "-" and sentence[13] == sentence[16] == ":" for sentence in sentences)
    return [*(sentence[21:] for sentence in sentences), last]


def without_seconds(text: str) -> str:
    return " ".join("…" if word.replace(".", "").isdecimal() and "." in word else word for word in text.split(" "))


def test_a_run_that_was_stopped_and_finished(perdure_cli, toy: ModuleType, run_path: Path):
    toy.train(run_path)
    result = perdure_cli("log", run_path)
    run_id = read_record(run_path / "run.json").run_id[:8]

    assert (result.code, result.err) == (0, "")
    assert [without_seconds(text) for text in texts(result.out)] == [
        f"began as run {run_id}",
        "committed 4 checkpoints, from step 0 to 30",
        "stopped after … s of training",
        "went on from step 30, after … s of training",
        "committed 3 checkpoints, from step 40 to 60",
        "finished at step 60 after … s of training",
        "2 attempts, … s of training",
    ]


def test_a_run_that_was_killed(perdure_cli, toy: ModuleType, run_path: Path):
    write_lines(run_path, lines_of(run_path)[:-1])  # the last word was never said
    killed = texts(perdure_cli("log", run_path).out)
    toy.train(run_path)
    resumed = texts(perdure_cli("log", run_path).out)

    assert without_seconds(killed[-1]) == (
        "1 attempt, at least … s of training, ended without a word: killed, or the machine stopped"
    )
    assert resumed[2] == "the process before had ended without a word: killed, or the machine stopped"
    assert without_seconds(resumed[-1]) == "2 attempts, … s of training"


def test_a_run_that_is_running(perdure_cli, tmp_path: Path):
    with perdure.Run(tmp_path / "run", background=False) as run:
        run.restore(steps=0)
        shown = texts(perdure_cli("log", tmp_path / "run").out)
    after = texts(perdure_cli("log", tmp_path / "run").out)

    assert without_seconds(shown[-1]) == "1 attempt, at least … s of training, running"
    assert without_seconds(after[-1]) == "1 attempt, … s of training"


def test_a_run_whose_lock_may_not_be_read(perdure_cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(_path: Path) -> bool:
        raise PermissionError

    with perdure.Run(tmp_path / "run", background=False) as run:
        run.restore(steps=0)
        monkeypatch.setattr("perdure.cli.log.is_held", refused)
        shown = texts(perdure_cli("log", tmp_path / "run").out)[-1]
    assert shown.endswith("open: it is running, or ended without a word")


def test_a_fork_before_and_after_its_first_resume(perdure_cli, toy: ModuleType, run_path: Path, tmp_path: Path):
    perdure_cli("fork", run_path, "--at", 20, "--to", tmp_path / "new")
    before = texts(perdure_cli("log", tmp_path / "new").out)
    toy.train(tmp_path / "new")
    after = texts(perdure_cli("log", tmp_path / "new").out)

    run_id = read_record(run_path / "run.json").run_id[:8]
    assert before == [f"forked from run {run_id} at step 20", "committed the checkpoint at step 20", "no attempt yet"]
    assert without_seconds(after[2]) == "went on from step 20, after … s of training"
    assert without_seconds(after[-1]) == "1 attempt, … s of training"


def test_json_is_the_events_themselves(perdure_cli, run_path: Path):
    result = perdure_cli("log", run_path, "--json")

    assert result.code == 0
    assert json.loads(result.out) == [json.loads(line) for line in lines_of(run_path)]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_torn_last_line_is_left_out_and_nothing_is_changed(perdure_cli, run_path: Path, more: list[str]):
    whole = perdure_cli("log", run_path, *more)
    torn = b"".join(lines_of(run_path)) + b'{"at":"2026-11-30T05:'
    (run_path / "lineage.jsonl").write_bytes(torn)

    assert perdure_cli("log", run_path, *more) == whole
    assert (run_path / "lineage.jsonl").read_bytes() == torn


def edit(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b"step_0000000000", b"step_0000000001"), *lines[2:]]


def edit_the_last(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[4].replace(b'"at":"2', b'"at":"3')]


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize(
    ("change", "line", "problem"),
    [
        (edit, 2, "its digest does not match its text"),
        (edit_the_last, 5, "its digest does not match its text"),
        (lambda lines: [*lines[:2], *lines[3:]], 3, "does not follow from the line before it"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4, "does not follow from the line before it"),
        (lambda lines: lines[1:], 1, "does not follow from the line before it"),
    ],
    ids=["edited", "the last edited", "removed", "doubled", "the first removed"],
)
def test_an_edited_line_is_named(
    perdure_cli, run_path: Path, change: Callable[[list[bytes]], list[bytes]], line: int, problem: str, more: list[str]
):
    write_lines(run_path, change(lines_of(run_path)))
    result = perdure_cli("log", run_path, *more)

    assert (result.code, result.out) == (4, "")
    assert result.err == (f"perdure: {run_path}: lineage.jsonl:{line}: {problem}. {INDEPENDENT}\n")


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["missing", "empty"])
def test_a_lost_lineage_is_no_empty_story(perdure_cli, run_path: Path, lose: Callable[[Path], object]):
    lose(run_path / "lineage.jsonl")
    result = perdure_cli("log", run_path)

    assert (result.code, result.out) == (4, "")
    assert result.err == f"perdure: {run_path}: lineage.jsonl is missing or empty. {INDEPENDENT}\n"


def test_a_run_that_was_killed_before_its_first_event(perdure_cli, run_path: Path):
    (run_path / "lineage.jsonl").unlink()
    (run_path / "checkpoints").rename(run_path.parent / "elsewhere")

    assert perdure_cli("log", run_path).out == "no attempt yet\n"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("rnu", "rnu: no such directory. Check the spelling; `perdure ls` lists runs."),
        ("run/checkpoints", "run/checkpoints: not a run (no run.json in it). Check the spelling."),
    ],
)
def test_what_is_no_run(perdure_cli, run_path: Path, place: str, message: str):
    result = perdure_cli("log", run_path.parent / place)

    assert (result.code, result.out, result.err) == (4, "", f"perdure: {run_path.parent}/{message}\n")


def accepted(*texts: str, implied: str | None = None) -> list[dict[str, str]]:
    return [{"text": text, **({"implied_by": implied} if implied else {})} for text in texts]


STARTED: dict[str, Any] = {"event": "started"}
COMMITTED: dict[str, Any] = {"event": "committed"}
FINISHED: dict[str, Any] = {"event": "finished", "trained_s": 90.0}


def resumed(trained_s: float, *acceptances: dict[str, str]) -> dict[str, Any]:
    return {"event": "resumed", "trained_s": trained_s, "accepted": list(acceptances)}


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], "no attempt yet"),
        ([STARTED], "1 attempt, at least 0.0 s of training, open: it is running, or ended without a word"),
        ([STARTED, FINISHED], "1 attempt, 1 min 30 s of training"),
        (
            [STARTED, FINISHED, resumed(50.0), COMMITTED],  # stepped back over the end
            "2 attempts, at least 50 s of training, open: it is running, or ended without a word",
        ),
        (
            [STARTED, resumed(50.0, *accepted("a=1:2"), *accepted("x/a=1:2", implied="a")), FINISHED],
            "2 attempts, 1 min 30 s of training, 1 difference accepted",
        ),
        (
            [STARTED, resumed(50.0, *accepted("a=1:2", "b=1:2")), resumed(50.0, *accepted("a=1:2")), FINISHED],
            "3 attempts, 1 min 30 s of training, 2 differences accepted",
        ),
    ],
    ids=["nothing", "began", "finished", "stepped back", "one and what follows from it", "twice the same"],
)
def test_the_summary(events: list[dict[str, Any]], text: str):
    assert summary(events) == text
