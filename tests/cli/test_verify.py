"""`perdure verify` finds every damaged part and names it; what is merely odd is a note."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import perdure
from perdure.runs.code import Code
from perdure.runs.record import read_record, write_record


def test_an_intact_run(perdure_cli, run_path: Path):
    result = perdure_cli("verify", run_path)

    assert (result.code, result.err) == (0, "")
    assert result.out.count("  intact   step_") == 4
    assert result.out.endswith("intact: 4 checkpoints.\n")
    assert "note" not in result.out


def test_an_intact_checkpoint(perdure_cli, step):
    result = perdure_cli("verify", step(20))

    assert result.code == 0
    assert result.out.endswith("intact: 1 checkpoint.\n")


def test_a_checkpoint_that_belongs_to_no_run(perdure_cli, tmp_path: Path):
    perdure.save(tmp_path / "mine", answer=42)

    assert perdure_cli("verify", tmp_path / "mine").code == 0


def test_a_difference_from_the_first_contract_that_was_accepted_is_no_problem(perdure_cli, amended_path: Path):
    result = perdure_cli("verify", amended_path)

    assert (result.code, result.out.splitlines()[-1]) == (0, "intact: 5 checkpoints.")


def test_a_difference_that_nobody_accepted_is_named(perdure_cli, amended_path: Path):
    """A record of another run's configuration under this run's name."""
    record = read_record(amended_path / "run.json")
    contract = {**record.contract, "algorithm": {"env_id": "Toy-v1", "learning_rate": 0.1}}
    write_record(amended_path / "run.json", replace(record, contract=contract))
    result = perdure_cli("verify", amended_path)

    assert result.code == 1
    assert [line for line in result.out.splitlines() if line.startswith("  damaged")] == [
        f"  damaged  step_{env_steps:010d}: was written under another configuration than run.json's: algorithm.env_id"
        for env_steps in (40, 30, 20, 10, 0)
    ]


def test_another_total_needs_no_acceptance(perdure_cli, tmp_path: Path):
    for total in (1, 2):
        with perdure.Run(tmp_path / "run", config={"total": total}, horizon="total", schedules="none") as run:
            run.restore(x=0)
            run.boundary(env_steps=total, x=total)
            run.finish()

    assert perdure_cli("verify", tmp_path / "run").code == 0


def test_one_damaged_checkpoint_leaves_the_others(perdure_cli, run_path: Path, step, flip: Callable):
    flip(step(30) / "weights.safetensors")
    result = perdure_cli("verify", run_path)

    assert result.code == 1
    assert "  damaged  step_0000000030/weights" in result.out
    assert result.out.endswith("1 of 4 checkpoints damaged; the newest intact one is step_0000000020.\n")


def test_all_damaged(perdure_cli, run_path: Path, step, flip: Callable):
    for env_steps in (0, 10, 20, 30):
        flip(step(env_steps) / "MANIFEST.json")
    result = perdure_cli("verify", run_path)

    assert result.code == 4
    assert result.out.endswith("nothing intact: 4 checkpoints damaged.\n")


def test_a_damaged_checkpoint_by_its_name(perdure_cli, step, flip: Callable):
    flip(step(10) / "weights.safetensors")

    assert perdure_cli("verify", step(10)).code == 4
    assert perdure_cli("verify", step(20)).code == 0


def test_a_checkpoint_that_lost_its_manifest(perdure_cli, step):
    (step(10) / "MANIFEST.json").unlink()
    result = perdure_cli("verify", step(10))

    assert result.code == 4
    assert "damaged  step_0000000010: MANIFEST.json is missing" in result.out


def test_a_run_without_checkpoints(perdure_cli, run_path: Path):
    shutil.rmtree(run_path / "checkpoints")
    result = perdure_cli("verify", run_path)

    assert result.code == 4
    assert result.out.endswith("there is no checkpoint.\n")


def edit_record(run: Path) -> None:
    (run / "run.json").write_bytes((run / "run.json").read_bytes().replace(b"Toy-v0", b"Toy-v1"))


def drop_a_line_of_lineage(run: Path) -> None:
    lines = (run / "lineage.jsonl").read_bytes().splitlines(keepends=True)
    (run / "lineage.jsonl").write_bytes(b"".join(lines[:1] + lines[2:]))


def edit_metrics(run: Path) -> None:
    data = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(data.replace(b'"env_steps":10', b'"env_steps":11'))


def exchange_a_checkpoint(run: Path) -> None:
    (run / "checkpoints" / "step_0000000030").rename(run / "checkpoints" / "step_0000000040")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (edit_record, "run.json: its digest does not match its text"),
        (lambda run: (run / "run.json").unlink(), "not a run (no run.json in it)"),
        (drop_a_line_of_lineage, "lineage.jsonl:2: does not follow from the line before it"),
        (lambda run: (run / "lineage.jsonl").unlink(), "lineage.jsonl: is missing"),
        (edit_metrics, "metrics.jsonl: its first"),
        (lambda run: (run / "metrics.jsonl").unlink(), "are not the rows that the checkpoint counted"),
        (exchange_a_checkpoint, "step_0000000040: was written as step 30 and renamed"),
    ],
    ids=["record", "no record", "lineage", "no lineage", "metrics", "no metrics", "renamed"],
)
def test_damage_beside_the_checkpoints(perdure_cli, run_path: Path, damage: Callable[[Path], object], message: str):
    damage(run_path)
    result = perdure_cli("verify", run_path)

    assert result.code == 1
    assert message in result.out


def test_a_checkpoint_of_another_run(perdure_cli, toy: ModuleType, run_path: Path, step):
    toy.train(run_path.parent / "other", stop_after=3)
    shutil.rmtree(step(30))
    shutil.copytree(run_path.parent / "other" / "checkpoints" / step(30).name, step(30))
    result = perdure_cli("verify", run_path)

    assert result.code == 1
    assert "damaged  step_0000000030: belongs to run " in result.out


def test_what_is_odd_is_a_note_and_no_damage(perdure_cli, run_path: Path, step):
    (step(10) / "thumbs.db").touch()
    (run_path / "checkpoints" / "notes.txt").touch()
    (run_path / "checkpoints" / "step_7").mkdir()
    (run_path / "checkpoints" / ".staging.0123").mkdir()
    (run_path / "damaged" / "step_0000000050").mkdir(parents=True)
    with (run_path / "lineage.jsonl").open("ab") as lineage, (run_path / "metrics.jsonl").open("ab") as metrics:
        lineage.write(b'{"at')
        metrics.write(b"{}\n")
    result = perdure_cli("verify", run_path)

    assert result.code == 0
    assert [line.split()[1] for line in result.out.splitlines() if line.startswith("  note")] == [
        "step_0000000010/thumbs.db:",
        "lineage.jsonl:",
        "metrics.jsonl:",
        "checkpoints/.staging.0123:",
        "checkpoints/notes.txt:",
        "checkpoints/step_7:",
        "damaged/step_0000000050:",
    ]


def test_json(perdure_cli, run_path: Path, step, flip: Callable):
    flip(step(30) / "weights.safetensors")
    result = perdure_cli("verify", run_path, "--json")
    document = json.loads(result.out)

    assert result.code == 1
    assert (document["sound"], document["newest_intact"]) == (False, "step_0000000020")
    assert [line["intact"] for line in document["checkpoints"]] == [False, True, True, True]
    assert document["problems"] == []
    assert [note.split(":")[0] for note in document["notes"]] == ["metrics.jsonl"]  # the row of the damaged one


def test_verify_changes_nothing(perdure_cli, run_path: Path, step, flip: Callable):
    flip(step(30) / "weights.safetensors")
    before = {path: path.read_bytes() for path in run_path.rglob("*") if path.is_file()}
    perdure_cli("verify", run_path)

    assert {path: path.read_bytes() for path in run_path.rglob("*") if path.is_file()} == before


def test_a_mistyped_directory(perdure_cli, run_path: Path):
    result = perdure_cli("verify", run_path.parent / "rnu")

    assert (result.code, result.out) == (4, "")
    assert "rnu: no such directory" in result.err


def test_the_patch_beside_the_record_is_compared(perdure_cli, toy: ModuleType, tmp_path: Path, monkeypatch, flip):
    """And `show` says that there is one."""
    patch = "-lr = 0.1\n+lr = 0.2\n"
    code = Code("c" * 40, "main", None, dirty=True, untracked=(), left_out=(), patch=patch, patch_bytes=len(patch))
    monkeypatch.setattr("perdure.runs.opening.code_at_launch", lambda _: code)
    toy.train(tmp_path / "run", updates=2)

    assert perdure_cli("verify", tmp_path / "run").code == 0
    assert (
        "code         commit cccccccccccc on main, with changes (code.patch)\n"
        in perdure_cli("show", tmp_path / "run").out
    )
    flip(tmp_path / "run" / "code.patch")
    damaged = perdure_cli("verify", tmp_path / "run")
    (tmp_path / "run" / "code.patch").unlink()
    missing = perdure_cli("verify", tmp_path / "run")

    assert (damaged.code, missing.code) == (1, 1)
    assert "damaged  code.patch: not what was written when the run began\n" in damaged.out
    assert "damaged  code.patch: is missing\n" in missing.out
