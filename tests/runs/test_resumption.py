"""What the lineage keeps of a resume and says to the next one: acceptances, launches, totals, words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.checkpoint.amend import Amended
from perdure.checkpoint.restore import Restored
from perdure.contract.overrides import Accepted
from perdure.runs.directory import RunDirectory
from perdure.runs.lineage import read_lineage
from perdure.runs.record import RunRecord
from perdure.runs.resumption import (
    accepted_for,
    has_pending_launch,
    latest_launch,
    latest_total,
    launch_to_keep,
    read_history,
    told_acceptances,
)
from perdure.tree.snapshot import Snapshot

SCRIPT = {"kind": "script", "argv": ["python", "train.py"], "cwd": "/x"}
OTHER_SCRIPT = {"kind": "script", "argv": ["python", "train.py", "--lr", "1"], "cwd": "/x"}
TRAINER = {"kind": "trainer", "name": "ppo", "config": {"lr": 0.1}}
OTHER_TRAINER = {"kind": "trainer", "name": "ppo", "config": {"lr": 0.2}}


def resumed(digest: str = "d", *accepted: Any, launch: Any = None, total: int | None = 100) -> dict[str, Any]:
    return {"event": "resumed", "digest": digest, "accepted": list(accepted), "launch": launch, "total": total}


def record(total: int | None = 100) -> RunRecord:
    horizon = {} if total is None else {"total": total}
    return RunRecord("0" * 32, "2026-11-30T00:00:00+00:00", SCRIPT, {"horizon": horizon}, {})


# What earlier resumes from the same checkpoint accepted.


def test_acceptances_count_for_the_checkpoint_they_were_made_for():
    history = [
        {"event": "started"},
        resumed("d1", {"text": "a=1:2"}, {"text": "net/a=1:2", "implied_by": "a"}),
        {"event": "committed", "digest": "d2"},
        resumed("d2", {"text": "b=1:2"}),
        resumed("d1", {"text": "c=1:2"}),
    ]

    assert accepted_for(history, "d1") == ["a=1:2", "c=1:2"]  # what follows from them follows again
    assert accepted_for(history, "d2") == ["b=1:2"]
    assert accepted_for(history, "d3") == []


def value_run(path: Path, lr: float, **options: Any) -> perdure.Run:
    run = perdure.Run(path, config={"lr": lr}, every=perdure.Every(updates=1), **options)
    run.restore(w=np.zeros(2))
    return run


@pytest.mark.parametrize("is_edited", [False, True])
def test_acceptances_in_an_edited_lineage_do_not_count(is_edited: bool, tmp_path: Path):
    value_run(tmp_path / "x", 0.1).close()
    value_run(tmp_path / "x", 0.2, accept={"algorithm.lr": (0.1, 0.2)}).close()
    lineage = tmp_path / "x" / "lineage.jsonl"
    if is_edited:
        lines = lineage.read_bytes().splitlines(keepends=True)
        event = {**json.loads(lines[1]), "checkpoint": "step_0000000001"}
        lines[1] = json.dumps(event, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        lineage.write_bytes(b"".join(lines))

    if is_edited:
        with pytest.raises(perdure.ContractError, match=r"algorithm\.lr: 0\.1 in the run, 0\.2 here\."):
            value_run(tmp_path / "x", 0.2)
        value_run(tmp_path / "x", 0.1).close()  # the run itself goes on
    else:
        value_run(tmp_path / "x", 0.2).close()


def test_a_torn_acceptance_does_not_count(tmp_path: Path):
    value_run(tmp_path / "x", 0.1).close()
    before = (tmp_path / "x" / "lineage.jsonl").read_bytes()
    value_run(tmp_path / "x", 0.2, accept={"algorithm.lr": (0.1, 0.2)}).close()
    lineage = tmp_path / "x" / "lineage.jsonl"
    acceptance = lineage.read_bytes()[len(before) :].splitlines(keepends=True)[0]
    lineage.write_bytes(before + acceptance[:-1])

    with pytest.raises(perdure.ContractError):
        value_run(tmp_path / "x", 0.2)
    lineage.write_bytes(before + acceptance)  # the twin: whole, it counts
    value_run(tmp_path / "x", 0.2).close()


def test_no_history_and_a_damaged_one_are_told_apart(tmp_path: Path):
    directory = RunDirectory(tmp_path)
    assert read_history(directory) == ([], [])

    directory.lineage.write_bytes(b"{}x\n")

    events, problems = read_history(directory)
    assert events == []
    assert [problem.partition(": ")[0] for problem in problems] == ["lineage.jsonl:1"]
    assert problems[0].endswith("The checkpoints do not depend on it; acceptances in it do not count.")


# Launches and totals.


def test_the_latest_launch_on_record_is_the_run_s():
    assert latest_launch(record(), []) == SCRIPT
    assert latest_launch(record(), [{"event": "started"}, resumed(), resumed()]) == SCRIPT
    assert latest_launch(record(), [resumed(launch=OTHER_SCRIPT), resumed()]) == OTHER_SCRIPT
    assert latest_launch(record(), [resumed(launch=OTHER_SCRIPT), resumed(launch=TRAINER)]) == TRAINER


@pytest.mark.parametrize(
    ("now", "before", "changes_contract", "is_kept"),
    [
        (SCRIPT, SCRIPT, True, False),
        (OTHER_SCRIPT, SCRIPT, False, False),
        (OTHER_SCRIPT, SCRIPT, True, True),
        (TRAINER, TRAINER, True, False),
        (OTHER_TRAINER, TRAINER, False, True),
        (OTHER_TRAINER, TRAINER, True, True),
    ],
)
def test_a_launch_is_kept_where_it_says_something_new(now: Any, before: Any, changes_contract: bool, is_kept: bool):
    assert launch_to_keep(now, before, changes_contract=changes_contract) == (now if is_kept else None)


def test_the_latest_total_is_that_of_the_last_resume():
    assert latest_total(record(), []) == 100
    assert latest_total(record(None), []) is None
    assert latest_total(record(), [resumed(total=200), {"event": "committed"}, resumed(total=300)]) == 300


# Words.


def restored(*accepted: Accepted, applied: tuple[str, ...] = (), unlike: tuple[str, ...] = ()) -> Restored:
    amended = Amended(Snapshot({}, 0, 0, 0), applied, unlike) if accepted else None
    return Restored({}, frozenset(), accepted, amended)


LR = Accepted("algorithm.lr=0.1:0.2", "algorithm.lr", "0.1", "0.2")
STEP = Accepted("opt/step=-0.1:-0.2", "opt/step", "-0.1", "-0.2", implied_by="algorithm.lr")


def test_acceptances_in_words():
    assert told_acceptances(restored()) == []
    assert told_acceptances(restored(LR)) == ["accepted: algorithm.lr=0.1:0.2."]
    assert told_acceptances(restored(LR, STEP, applied=("a", "b"), unlike=("c", "d"))) == [
        "accepted: algorithm.lr=0.1:0.2.",
        "accepted: opt/step=-0.1:-0.2, as algorithm.lr was.",
        "accepted values were put into the state at a, b.",
        "these start with another number than the run did, and keep the checkpoint's: c, d.",
    ]


def test_every_field_of_a_resume_is_in_the_lineage(tmp_path: Path):
    value_run(tmp_path / "x", 0.1).close()
    run = value_run(tmp_path / "x", 0.2, accept={"algorithm.lr": (0.1, 0.2)}, reason="it crept", launch=OTHER_SCRIPT)
    run.close()
    value_run(tmp_path / "x", 0.2).close()

    first, second = [event for event in read_lineage(tmp_path / "x" / "lineage.jsonl") if event["event"] == "resumed"]
    del first["at"], first["previous"], first["line"], first["trained_s"], first["digest"]
    assert first == {
        "event": "resumed",
        "checkpoint": "step_0000000000",
        "env_steps": 0,
        "stepped_back": {},
        "accepted": [{"text": "algorithm.lr=0.1:0.2"}],
        "amended_leaves": [],
        "reason": "it crept",
        "arithmetic": {},
        "total": None,
        "old_total": None,
        "launch": OTHER_SCRIPT,
        "notices": run.notices,
        "ranks": [],
        "policy": [],
        "code": None,
        "variables": {},
    }
    # Nothing was committed in between: the second went on with what the first had accepted, and gave no reason itself.
    assert (second["accepted"], second["reason"]) == ([{"text": "algorithm.lr=0.1:0.2"}], None)


def test_a_command_whose_change_was_given_up_is_not_repeated():
    """Accepted from one checkpoint, never committed, and resumed in the old way from there: the old way counts."""
    event = {"event": "resumed", "digest": "d", "launch": {"kind": "script", "argv": ["new"]}}

    assert has_pending_launch([event], "d")
    assert not has_pending_launch([event], "other")
    assert not has_pending_launch([{**event, "launch": None}], "d")
    old = {"kind": "script", "argv": ["old"]}
    assert launch_to_keep(old, event["launch"], changes_contract=True) == old
