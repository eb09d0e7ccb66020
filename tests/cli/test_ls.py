"""`perdure ls` finds every run below a folder and says where each stands, also when something is damaged."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from perdure.cli.targets import size_of


def test_runs_at_and_below_the_folder(perdure_cli, toy: ModuleType, run_path: Path):
    toy.train(run_path.parent / "deep" / "er" / "done", updates=2)
    result = perdure_cli("ls", run_path.parent)
    lines = [re.split(r"  +", line) for line in result.out.splitlines()]

    assert result.code == 0
    assert lines[0][:4] == ["RUN", "ENV", "STEPS", "OF"]
    assert lines[1][:6] == [
        "deep/er/done",
        "Toy-v0",
        "20",
        "20",
        "step_0000000020",
        "checkpoint (resumable: exact-snapshot)",
    ]
    assert lines[2][:6] == ["run", "Toy-v0", "30", "60", "step_0000000030", "checkpoint (resumable: exact-snapshot)"]
    assert perdure_cli("ls", run_path).out.splitlines()[1].startswith(".  ")


def test_json(perdure_cli, run_path: Path):
    [row] = json.loads(perdure_cli("ls", run_path.parent, "--json").out)

    assert row.pop("age_s") >= 0
    assert row == {
        "run": "run",
        "env": "Toy-v0",
        "env_steps": 30,
        "total_steps": 60,
        "checkpoint": "step_0000000030",
        "continuation_class": "exact-snapshot",
        "size_bytes": size_of(run_path),
        "amended": False,
        "problem": None,
        "kind": "run",
    }


def test_an_amended_run_is_marked(perdure_cli, toy: ModuleType, amended_path: Path):
    toy.train(amended_path.parent / "straight", stop_after=1)
    rows = json.loads(perdure_cli("ls", amended_path.parent, "--json").out)
    text = perdure_cli("ls", amended_path.parent).out.splitlines()

    assert {row["run"]: row["amended"] for row in rows} == {"run": True, "straight": False}
    assert [("checkpoint (resumable: exact-snapshot), amended" in line) for line in text[1:]] == [True, False]


def test_a_damaged_manifest_and_a_damaged_record_are_named(perdure_cli, run_path: Path, step, flip: Callable):
    flip(step(30) / "MANIFEST.json")
    flip(run_path / "run.json")
    result = perdure_cli("ls", run_path.parent)

    assert result.code == 0
    assert "step_0000000020 !" in result.out
    assert "! run: " in result.out
    assert "run.json: " in result.out
    assert "step_0000000030: MANIFEST.json: " in result.out


def test_a_run_that_never_committed(perdure_cli, run_path: Path, step):
    for env_steps in (0, 10, 20, 30):
        step(env_steps).rename(run_path / f"elsewhere-{env_steps}")

    assert perdure_cli("ls", run_path.parent).out.splitlines()[1].split()[1:6] == ["Toy-v0", "–", "60", "none", "–"]


def test_no_runs(perdure_cli, tmp_path: Path):
    assert perdure_cli("ls", tmp_path).out == f"no runs below {tmp_path}\n"
    assert perdure_cli("ls", tmp_path, "--json").out == "[]\n"


def test_a_mistyped_folder(perdure_cli, tmp_path: Path):
    result = perdure_cli("ls", tmp_path / "nope")

    assert (result.code, result.err) == (4, f"perdure: {tmp_path}/nope: no such directory. Check the spelling.\n")


def test_a_file_with_two_names_counts_once(tmp_path: Path):
    (tmp_path / "a").write_bytes(bytes(100))
    (tmp_path / "b").hardlink_to(tmp_path / "a")

    assert size_of(tmp_path) == 100
