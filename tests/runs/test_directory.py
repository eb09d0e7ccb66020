"""A run's directory: names of checkpoints."""

from pathlib import Path

import pytest

from perdure.runs.directory import newest_first, open_directory, step_name, steps_of


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        (0, "step_0000000000"),
        (500_000, "step_0000500000"),
        (10**10, "step_10000000000"),
        (10**12, "step_1000000000000"),
    ],
)
def test_a_name_tells_its_steps(steps: int, name: str):
    assert step_name(steps) == name
    assert steps_of(name) == steps


@pytest.mark.parametrize(
    "name",
    [
        *("step_1", "step_00000000001", "step_000000000a", "step_-000000001", "step_0000000001.0", "step_0000000001 "),
        *(
            "checkpoint_0000000001",
            "0000000001",
            "step_",
            "step_0000000001\n",
            "step_" + 9 * "\N{ARABIC-INDIC DIGIT ZERO}" + "1",
            "",
        ),
    ],
)
def test_a_directory_with_a_number_in_its_name_is_no_checkpoint(name: str):
    assert steps_of(name) is None


def test_the_newest_is_the_greatest_step_not_the_last_name():
    names = [step_name(steps) for steps in (5, 10**10, 70, 9 * 10**9)] + ["notes", "step_1"]

    assert list(newest_first(names)) == [step_name(steps) for steps in (10**10, 9 * 10**9, 70, 5)]
    assert list(newest_first([])) == []


def test_the_directory_is_made_absolute_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    here, home = open_directory("runs/x"), open_directory("~/x")
    monkeypatch.chdir("/")

    assert (here.path, home.path) == (tmp_path / "runs" / "x", tmp_path / "home" / "x")
