"""`perdure prune`, `pin` and `unpin`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


ALL = ["step_0000000000", "step_0000000010", "step_0000000020", "step_0000000030"]


def test_a_dry_run_says_what_would_go_and_removes_nothing(perdure_cli, run_path: Path) -> None:
    result = perdure_cli("prune", run_path, "--last", 2, "--dry-run")

    assert result.code == 0
    assert result.out.splitlines() == [
        "policy   keep the last 2",
        "keep     step_0000000020  one of the last 2",
        "keep     step_0000000030  one of the last 2",
        "would go step_0000000000",
        "would go step_0000000010",
    ]
    assert names(run_path) == ALL


def test_pruning_removes_what_the_policy_does_not_keep(perdure_cli, run_path: Path) -> None:
    result = perdure_cli("prune", run_path, "--last", 1, "--every", 20)

    assert result.code == 0
    assert "removed  step_0000000010" in result.out
    assert names(run_path) == ["step_0000000000", "step_0000000020", "step_0000000030"]


def test_without_a_policy_the_newest_stays(perdure_cli, run_path: Path) -> None:
    result = perdure_cli("prune", run_path)

    assert result.code == 0
    assert "keep only the newest" in result.out
    assert names(run_path) == ALL[-1:]


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_json(perdure_cli, run_path: Path, dry: list[str]) -> None:
    result = perdure_cli("prune", run_path, "--last", 3, "--json", *dry)

    assert result.code == 0
    document = json.loads(result.out)
    assert document["policy"] == "keep the last 3"
    assert document["removed"] == ALL[:1]
    assert document["kept"] == dict.fromkeys(ALL[1:], "one of the last 3")
    assert names(run_path) == (ALL if dry else ALL[1:])


def test_the_best_by_a_metric(perdure_cli, run_path: Path) -> None:
    """The scores are in the manifests; a name that no boundary had leaves the newest."""
    rows = [json.loads(line) for line in (run_path / "metrics.jsonl").read_text().splitlines()]
    metric = next(name for name, value in rows[0].items() if isinstance(value, float))
    best = min(rows, key=lambda row: row[metric])

    result = perdure_cli("prune", run_path, "--best", 1, "--metric", metric, "--mode", "min")
    assert result.code == 0
    assert names(run_path) == sorted({f"step_{best['env_steps']:010d}", ALL[-1]})


def test_a_damaged_newest_checkpoint_stops_it(perdure_cli, run_path: Path, step, flip: Callable) -> None:
    """Older ones may be all that is left."""
    flip(step(30) / "MANIFEST.json")

    result = perdure_cli("prune", run_path, "--last", 1)

    assert result.code == 4
    assert "step_0000000030: MANIFEST.json" in result.err
    assert names(run_path) == ALL


def test_a_run_that_is_being_trained_is_left_alone(perdure_cli, run_path: Path, locked: int) -> None:
    result = perdure_cli("prune", run_path, "--last", 1)

    assert result.code == 5
    assert f"pid {locked}" in result.err
    assert names(run_path) == ALL
    assert perdure_cli("prune", run_path, "--last", 1, "--dry-run").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--last", "0"], "a whole number from 1"),
        (["--best", "1"], "go together"),
        (["--metric", "return"], "go together"),
    ],
)
def test_a_policy_that_cannot_be_meant(perdure_cli, run_path: Path, words: list[str], message: str) -> None:
    result = perdure_cli("prune", run_path, *words)

    assert result.code == 2
    assert message in result.err
    assert names(run_path) == ALL


def test_a_mistyped_directory_and_a_run_without_checkpoints(perdure_cli, run_path: Path, tmp_path: Path) -> None:
    assert perdure_cli("prune", tmp_path / "nowhere").code == 4
    for name in ALL:
        (run_path / "checkpoints" / name).rename(tmp_path / name)

    result = perdure_cli("prune", run_path)
    assert result.code == 4
    assert "the run has no checkpoint" in result.err


def test_a_pinned_checkpoint_stays_until_it_is_unpinned(perdure_cli, run_path: Path) -> None:
    assert perdure_cli("pin", run_path, 10).out == "pinned step_0000000010\n"
    result = perdure_cli("prune", run_path, "--last", 1)
    assert "keep     step_0000000010  pinned" in result.out
    assert names(run_path) == [ALL[1], ALL[3]]

    assert perdure_cli("unpin", run_path, 10).out == "unpinned step_0000000010\n"
    assert perdure_cli("prune", run_path, "--last", 1).code == 0
    assert names(run_path) == ALL[-1:]


@pytest.mark.parametrize("verb", ["pin", "unpin"])
def test_pins_of_what_is_not_there(perdure_cli, run_path: Path, tmp_path: Path, verb: str) -> None:
    assert perdure_cli(verb, tmp_path / "nowhere", 10).code == 4
    assert perdure_cli(verb, run_path, 11).code == (4 if verb == "pin" else 0)
