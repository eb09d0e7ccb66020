"""Damage and leftovers: told, stepped over or refused, and never the reason for another training."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.runs.toy_training import Training, checkpoint_names, contents, names, rows, states

from perdure import AllDamagedError, DamagedError, NoCheckpointError
from perdure.runs.directory import step_name

pytestmark = pytest.mark.usefixtures("global_generators")


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def newest(directory: Path) -> Path:
    return directory / "checkpoints" / list(checkpoint_names(directory))[-1]


def test_a_damaged_newest_checkpoint_is_stepped_over_moved_and_told_and_the_run_is_exact(
    tmp_path: Path, straight: Path
):
    directory = tmp_path / "x"
    Training(directory).restore().go(4).stop()
    flip(newest(directory) / "learner.safetensors")

    training = Training(directory, seed=3).restore()

    assert training.run.boundary_number == 3
    assert names(directory / "damaged") == [step_name(40)]
    (stepped,) = [notice for notice in training.run.notices if "stepped back" in notice]
    problem = "step_0000000040/learner.safetensors: learner/state/weights: bytes"
    assert stepped.startswith(f"stepped back over a damaged checkpoint: {problem}")
    assert stepped.endswith(f"It was moved to {directory / 'damaged' / step_name(40)}.")
    assert len(rows(directory)) == 3
    training.go(5).run.finish()
    assert states(directory) == states(straight)
    assert rows(directory) == rows(straight)


def test_all_damaged_changes_nothing(tmp_path: Path):
    directory = tmp_path / "x"
    Training(directory).restore().go(1).stop()
    for name in checkpoint_names(directory):
        flip(directory / "checkpoints" / name / "MANIFEST.json", 40)
    before = contents(directory)

    for mode in ("auto", "resume"):
        with pytest.raises(AllDamagedError, match=r"x: all 2 checkpoints are damaged; nothing was changed\.\n"):
            Training(directory, mode=mode).restore()
    assert contents(directory) == before


def test_a_run_killed_before_boundary_0_starts_again_and_says_so(tmp_path: Path):
    directory = tmp_path / "x"
    Training(directory).restore().stop()
    shutil.rmtree(directory / "checkpoints")
    (directory / "checkpoints" / ".staging.00ff").mkdir(parents=True)
    lineage = directory / "lineage.jsonl"
    lineage.write_bytes(lineage.read_bytes().splitlines(keepends=True)[0])  # nothing was committed yet

    with pytest.raises(NoCheckpointError, match="stopped before its first checkpoint was committed"):
        Training(directory, mode="resume").restore()
    training = Training(directory).restore()

    assert training.run.resumed is False
    assert training.run.notices == [
        "the run was stopped before its first checkpoint was committed; it starts again from the beginning.",
        "removed .staging.00ff, an unfinished checkpoint that a stopped process left behind.",
    ]
    assert list(states(directory)) == [step_name(0)]
    training.stop()


def test_leftovers_of_a_killed_writer_are_removed_and_told_at_a_resume(tmp_path: Path):
    Training(tmp_path / "x").restore().go(1).stop()
    (tmp_path / "x" / "checkpoints" / ".staging.aa").mkdir()

    training = Training(tmp_path / "x").restore()

    assert training.run.notices == ["removed .staging.aa, an unfinished checkpoint that a stopped process left behind."]
    assert checkpoint_names(tmp_path / "x") == [step_name(0), step_name(10)]
    training.stop()


def test_a_damaged_run_json_is_told_and_nothing_changes(tmp_path: Path):
    directory = tmp_path / "x"
    Training(directory).restore().go(1).stop()
    flip(directory / "run.json", 30)
    before = contents(directory)

    with pytest.raises(DamagedError, match=r"run\.json: "):
        Training(directory).restore()
    (directory / "run.json").unlink()
    with pytest.raises(DamagedError, match=r"x: there are checkpoints but no run\.json; put it back\.$"):
        Training(directory).restore()

    del before["run.json"]
    assert contents(directory) == before


def test_a_foreign_checkpoint_copied_in_and_a_renamed_one_are_moved_aside(tmp_path: Path):
    Training(tmp_path / "x").restore().go(2).stop()
    Training(tmp_path / "y").restore().go(4).stop()
    shutil.copytree(tmp_path / "y" / "checkpoints" / step_name(40), tmp_path / "x" / "checkpoints" / step_name(40))
    shutil.copytree(tmp_path / "x" / "checkpoints" / step_name(10), tmp_path / "x" / "checkpoints" / step_name(30))

    training = Training(tmp_path / "x").restore()

    assert training.run.env_steps == 20
    assert names(tmp_path / "x" / "damaged") == [step_name(30), step_name(40)]
    assert ["belongs to run" in notice for notice in training.run.notices] == [True, False]
    assert "was written as step 10 and renamed" in training.run.notices[1]
    training.stop()


def test_an_altered_metrics_file_is_set_aside_and_told_and_the_run_goes_on(tmp_path: Path):
    directory = tmp_path / "x"
    Training(directory).restore().go(3).stop()
    flip(directory / "metrics.jsonl", 5)

    training = Training(directory).restore()

    assert "set aside as metrics.jsonl.altered.1" in training.run.notices[0]
    training.go(1).stop()
    assert [row["boundary"] for row in rows(directory)] == [4]
    assert states(directory)[step_name(40)]


@pytest.mark.parametrize("mode", ["auto", "resume"])
def test_a_run_whose_checkpoints_were_removed_never_begins_again(tmp_path: Path, mode: Any):
    directory = tmp_path / "x"
    Training(directory).restore().go(2).stop()
    shutil.rmtree(directory / "checkpoints")
    before = {path: path.read_bytes() for path in directory.glob("*.json*")}

    with pytest.raises(NoCheckpointError) as caught:
        Training(directory, mode=mode).restore()

    assert str(caught.value) == (
        f"{directory}: its lineage tells of checkpoints, the last one {step_name(20)}, but there is none; nothing was "
        "changed. Put them back, or choose another directory."
    )
    assert {path: path.read_bytes() for path in directory.glob("*.json*")} == before
