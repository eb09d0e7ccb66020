"""`perdure show` tells from records and manifests what is in a run or a checkpoint."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import perdure


def test_a_run(perdure_cli, run_path: Path):
    result = perdure_cli("show", run_path)

    assert (result.code, result.err) == (0, "")
    for line in (
        f"run          {run_path}",
        "environment  Toy-v0",
        "steps        30 of 60",
        "class        checkpoint (resumable: exact-snapshot)",
        "metrics      3 rows",
        "4 checkpoints, the newest first",
        "contract, seed\n  seed  1",
    ):
        assert line in result.out


def test_a_finished_run_says_so(perdure_cli, toy: ModuleType, tmp_path: Path):
    toy.train(tmp_path / "done", updates=2)

    assert "steps        20 of 20 (finished)" in perdure_cli("show", tmp_path / "done").out


def test_a_run_in_json(perdure_cli, run_path: Path):
    document = json.loads(perdure_cli("show", run_path, "--json").out)

    assert (document["env"], document["env_steps"], document["total_steps"]) == ("Toy-v0", 30, 60)
    assert document["launch"]["kind"] == "script"
    assert [line["env_steps"] for line in document["checkpoints"]] == [30, 20, 10, 0]
    assert document["last_metrics"]["env_steps"] == 30
    assert document["contract"]["algorithm"] == {"env_id": "Toy-v0", "learning_rate": 0.1}


def test_numbers_that_the_run_started_with_are_no_part_of_what_is_shown(perdure_cli, run_path: Path):
    """They stand in the contract's section `start`, one for each number of the state."""
    document = json.loads(perdure_cli("show", run_path, "--json").out)
    shown = perdure_cli("show", run_path).out

    assert document["contract"]["start"].items() >= {"trace/mean": 0.0, "trace/seen": 0}.items()
    assert "contract, seed\n" in shown
    assert "contract, start" not in shown
    assert "trace/seen" not in shown


def test_the_time_trained(perdure_cli, run_path: Path):
    document = json.loads(perdure_cli("show", run_path, "--json").out)
    [line] = [line for line in perdure_cli("show", run_path).out.splitlines() if line.startswith("trained ")]

    assert document["trained_s"] >= 0
    assert line == f"trained      {document['trained_s']:.1f} s"


def test_what_was_accepted_and_the_contract_that_holds_now(perdure_cli, amended_path: Path):
    document = json.loads(perdure_cli("show", amended_path, "--json").out)
    shown = perdure_cli("show", amended_path).out

    assert document["amended"] == ["algorithm.learning_rate=0.1:0.2"]
    assert document["contract"]["algorithm"] == {"env_id": "Toy-v0", "learning_rate": 0.2}
    assert "amended      algorithm.learning_rate=0.1:0.2\n" in shown
    assert "  learning_rate  0.2\n" in shown


def test_a_run_without_acceptances_is_not_amended(perdure_cli, run_path: Path):
    assert json.loads(perdure_cli("show", run_path, "--json").out)["amended"] == []
    assert "amended" not in perdure_cli("show", run_path).out


def test_of_a_run_without_a_checkpoint_the_first_contract_is_shown(perdure_cli, amended_path: Path):
    (amended_path / "checkpoints").rename(amended_path.parent / "elsewhere")
    document = json.loads(perdure_cli("show", amended_path, "--json").out)

    assert (document["amended"], document["trained_s"]) == ([], None)
    assert document["contract"]["algorithm"]["learning_rate"] == 0.1


def test_the_last_metrics_are_those_of_the_last_whole_row(perdure_cli, run_path: Path):
    with (run_path / "metrics.jsonl").open("ab") as metrics:
        metrics.write(b'{"loss":{"float":"7ff8000000000000"}}\n{"lo')
    document = json.loads(perdure_cli("show", run_path, "--json").out)

    assert (document["metrics_rows"], document["last_metrics"]) == (4, {"loss": "nan"})


def test_unreadable_metrics_hide_nothing_else(perdure_cli, run_path: Path):
    (run_path / "metrics.jsonl").write_bytes(b"\xff\n")
    document = json.loads(perdure_cli("show", run_path, "--json").out)

    assert (document["metrics_rows"], document["last_metrics"], document["env_steps"]) == (1, None, 30)


def test_a_damaged_manifest_is_listed_and_the_others_are_shown(perdure_cli, run_path: Path, step, flip: Callable):
    flip(step(30) / "MANIFEST.json")
    result = perdure_cli("show", run_path)

    assert result.code == 0
    assert "steps        20 of 60" in result.out
    assert "  damaged: step_0000000030: MANIFEST.json: " in result.out


def test_a_checkpoint(perdure_cli, step):
    result = perdure_cli("show", step(20))
    lines = [line.split() for line in result.out.splitlines()]

    assert result.code == 0
    assert "counters     env_steps 20, updates 2" in result.out
    assert ["weights", "numpy-array", "1", "48", "B", "exact-snapshot"] in lines
    assert "float64 2×3" not in result.out


def test_the_leaves_of_a_checkpoint(perdure_cli, step):
    result = perdure_cli("show", step(20), "--leaves")
    lines = [line.split() for line in result.out.splitlines()]

    assert ["weights", "float64", "2×3"] in lines
    assert ["trace/seen", "12"] in lines


def test_a_checkpoint_in_json(perdure_cli, step):
    document = json.loads(perdure_cli("show", step(20), "--leaves", "--json").out)

    assert (document["env_steps"], document["boundary"]) == (20, 2)
    assert document["components"]["weights"]["leaves"] == [
        {"path": "weights", "what": "float64 2×3", "size_bytes": 48},
    ]


def test_a_checkpoint_that_belongs_to_no_run(perdure_cli, tmp_path: Path):
    perdure.save(tmp_path / "mine", answer=42, odd=float("nan"))
    result = perdure_cli("show", tmp_path / "mine", "--leaves")

    assert "run          none: made by perdure.save or a conversion" in result.out
    assert ["odd", "nan"] in [line.split() for line in result.out.splitlines()]
    assert perdure_cli("show", tmp_path / "mine", "--leaves", "--json").code == 0


def test_the_leaves_of_a_run_are_those_of_a_checkpoint(perdure_cli, run_path: Path):
    result = perdure_cli("show", run_path, "--leaves")

    assert (result.code, result.out) == (2, "")
    assert "give a checkpoint" in result.err


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nope", "nope: no such directory. Check the spelling; `perdure ls` lists runs."),
        (
            "run/checkpoints",
            "neither a run (no run.json in it) nor a checkpoint (no MANIFEST.json in it). Did you mean",
        ),
        (".", "nor a checkpoint (no MANIFEST.json in it). There are runs in it: `perdure ls "),
        ("other", "neither a run (no run.json in it) nor a checkpoint (no MANIFEST.json in it).\n"),
    ],
)
def test_what_is_neither(perdure_cli, run_path: Path, place: str, message: str):
    (run_path.parent / "other").mkdir()
    result = perdure_cli("show", run_path.parent / place)

    assert (result.code, result.out) == (4, "")
    assert message in result.err


def test_a_damaged_record(perdure_cli, run_path: Path, flip: Callable):
    flip(run_path / "run.json")
    result = perdure_cli("show", run_path)

    assert (result.code, result.out) == (4, "")
    assert f"{run_path}/run.json: " in result.err


def test_a_damaged_manifest(perdure_cli, step, flip: Callable):
    flip(step(10) / "MANIFEST.json")
    result = perdure_cli("show", step(10))

    assert (result.code, result.out) == (4, "")
    assert "step_0000000010: MANIFEST.json: " in result.err


def test_the_rows_of_a_ring(perdure_cli, tmp_path: Path):
    """Which are there, of what kind, and how large they are; of a component that is left out, why."""
    ring = perdure.Ring(3_000, {"seen": (np.float32, (4,)), "reward": np.float32})
    ring.extend(seen=np.ones((4_500, 4)), reward=np.ones(4_500))
    with perdure.Run(tmp_path / "run", omit=("cache",)) as run:
        run.restore(ring=ring, cache={})

    result = perdure_cli("show", tmp_path / "run" / "checkpoints" / "step_0000000000", "--leaves")

    assert (result.code, result.err) == (0, "")
    assert "rows 1,500 to 4,500, at most 3,000: reward float32 scalar, seen float32 4" in result.out
    assert "cache: cache: left out of checkpoints by Run(omit=…)" in result.out
    document = json.loads(perdure_cli("show", tmp_path / "run" / "checkpoints" / "step_0000000000", "--json").out)
    assert document["components"]["ring"]["size_bytes"] == 3_000 * 20
