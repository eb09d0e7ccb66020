"""Retention over a run's directory: what stays through commits, resumes and damage."""

import math
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import DamagedError
from perdure.runs.directory import open_directory
from perdure.runs.lineage import read_lineage
from perdure.runs.loading import newest_intact
from perdure.runs.pruning import plan, prune
from perdure.runs.retention import Keep

RETURNS = [0.0, 3.0, 9.0, 1.0, math.nan, 7.0, 2.0, 8.0, 4.0]
"""Of boundary 1, 2, …; the best is number 3."""


def train(path: Path, until: int, keep: Any, returns: list[float] = RETURNS, **options: Any) -> perdure.Run:
    with perdure.Run(path, every=perdure.Every(updates=1), keep=keep, **options) as run:
        run.restore(x=0)
        for step in range(run.env_steps + 1, until + 1):
            run.boundary(env_steps=step, x=step, metrics={"return": returns[step - 1]})
        run.finish(x=until)
    return run


def steps(path: Path) -> list[int]:
    return sorted(int(entry.name.removeprefix("step_")) for entry in (path / "checkpoints").iterdir())


def checkpoint(path: Path, step: int) -> Path:
    return path / "checkpoints" / f"step_{step:010d}"


def harm(path: Path, step: int) -> None:
    file = checkpoint(path, step) / "MANIFEST.json"
    file.write_bytes(file.read_bytes()[:-2])


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_each_commit_leaves_what_the_policy_keeps(tmp_path: Path, background: bool) -> None:
    train(tmp_path, 8, Keep(last=2), background=background)

    assert steps(tmp_path) == [7, 8]
    removed = [name for event in read_lineage(tmp_path / "lineage.jsonl") for name in event.get("checkpoints", [])]
    assert removed == [f"step_{step:010d}" for step in range(7)]


def test_without_a_policy_everything_stays(tmp_path: Path) -> None:
    train(tmp_path, 4, None)

    assert steps(tmp_path) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("stops", [[], [1], [3], [4], [2, 3, 5, 7]])
def test_the_best_and_what_was_kept_survive_resumes(tmp_path: Path, stops: list[int]) -> None:
    """CASES 23: a resume that forgot them would keep the stale ones and call a worse one the best."""
    for stop in [*stops, 8]:
        train(tmp_path, stop, Keep(last=1, every=4, best=1, metric="return"))

    assert steps(tmp_path) == [0, 3, 4, 8]


def test_after_a_resume_each_new_checkpoint_stays_and_the_stale_ones_go(tmp_path: Path) -> None:
    """CASES 23, the other half: new ones are not taken for old."""
    train(tmp_path, 4, Keep(last=3))
    for until in (5, 6, 7):
        train(tmp_path, until, Keep(last=2))
        assert steps(tmp_path) == [until - 1, until]


def test_a_better_one_replaces_the_best_of_before_the_resume_and_a_worse_one_does_not(tmp_path: Path) -> None:
    train(tmp_path, 3, Keep(last=1, best=1, metric="return"))
    train(tmp_path, 6, Keep(last=1, best=1, metric="return"))
    assert steps(tmp_path) == [3, 6]

    train(tmp_path, 8, Keep(last=1, best=1, metric="return"), [*RETURNS[:6], 10.0, 0.0])
    assert steps(tmp_path) == [7, 8]


def test_another_policy_after_a_resume_is_free(tmp_path: Path) -> None:
    """Retention is no part of the contract; scores of every boundary that was saved are in the manifests."""
    train(tmp_path, 4, None)
    train(tmp_path, 5, Keep(last=1, best=1, metric="return", mode="min"))

    assert steps(tmp_path) == [1, 5]


def test_keeping_one_at_any_time_one_intact_checkpoint_is_there(tmp_path: Path) -> None:
    """CASES 12: nothing is removed before the next one is committed; `after_commit` looks after each commit."""
    seen = []

    def look(directory: Path) -> None:
        store = open_directory(tmp_path).store()
        seen.append((newest_intact(store, "run").opened.name, len(store.names())))

    train(tmp_path, 4, Keep(last=1), after_commit=look)

    assert seen == [(f"step_{step:010d}", 1) for step in range(5)]


def test_a_commit_that_fails_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES 12: with one kept and a full disk, that one stays."""
    train(tmp_path, 2, Keep(last=1))
    monkeypatch.setattr("perdure.store.filesystem.FileSystem.free_bytes", lambda self, path: 0)

    with pytest.raises(perdure.CommitError):
        train(tmp_path, 3, Keep(last=1), background=False)
    assert steps(tmp_path) == [2]


def test_what_is_no_checkpoint_is_left_alone(tmp_path: Path) -> None:
    train(tmp_path, 2, None)
    for name in ("notes", "step_7", "step_0000000001.bak"):
        (tmp_path / "checkpoints" / name).mkdir()

    train(tmp_path, 4, Keep(last=1))

    assert {entry.name for entry in (tmp_path / "checkpoints").iterdir()} == {
        "notes",
        "step_7",
        "step_0000000001.bak",
        "step_0000000004",
    }


def test_a_damaged_older_checkpoint_has_no_score_and_goes_with_the_others(tmp_path: Path) -> None:
    """It neither counts as the best nor stops retention."""
    train(tmp_path, 4, None)
    harm(tmp_path, 3)

    train(tmp_path, 5, Keep(last=1, best=1, metric="return"))

    assert steps(tmp_path) == [2, 5]


def test_a_plan_changes_nothing_and_pruning_does_what_it_says(tmp_path: Path) -> None:
    train(tmp_path, 5, None)
    directory, keep = open_directory(tmp_path), Keep(last=1, best=1, metric="return")

    planned = plan(directory, keep, {})
    assert steps(tmp_path) == [0, 1, 2, 3, 4, 5]
    assert prune(directory, keep, {}) == planned

    assert planned.removed == tuple(f"step_{step:010d}" for step in (0, 1, 2, 4))
    assert planned.kept == {
        "step_0000000003": "one of the best 1 by return",
        "step_0000000005": "one of the last 1",
    }
    assert steps(tmp_path) == [3, 5]


def test_scores_that_are_known_are_not_read_again(tmp_path: Path) -> None:
    train(tmp_path, 3, None)
    for step in (1, 2):
        harm(tmp_path, step)
    known: dict[str, Any] = {"step_0000000001": {"return": 100.0}}

    assert "step_0000000001" in plan(open_directory(tmp_path), Keep(best=1, metric="return"), known).kept
    assert known["step_0000000002"] == {}
    assert known["step_0000000003"] == {"return": 9.0}


def test_full_copies_are_made_as_often_as_the_policy_says(tmp_path: Path) -> None:
    """`full_every`: damage to one shared file cannot cost all of them (inode numbers tell what is shared)."""
    keep = Keep(last=10, full_every=3)
    with perdure.Run(tmp_path, every=perdure.Every(updates=1), keep=keep, background=False) as run:
        import numpy as np

        run.restore(fixed=np.arange(10.0), x=0)
        for step in range(1, 7):
            run.boundary(env_steps=step, fixed=np.arange(10.0), x=step)

    inodes = [(checkpoint(tmp_path, step) / "fixed.safetensors").stat().st_ino for step in range(7)]
    assert inodes[0] == inodes[1] == inodes[2] != inodes[3]
    assert inodes[3] == inodes[4] == inodes[5] != inodes[6]
    assert len(set(inodes)) == 3


def test_the_newest_that_is_damaged_is_no_ground_to_prune_on(tmp_path: Path) -> None:
    train(tmp_path, 3, None)
    harm(tmp_path, 3)

    with pytest.raises(DamagedError, match="step_0000000003"):
        newest_intact(open_directory(tmp_path).store(), "run", strict=True)
