"""`perdure diff --chain` says where two runs part, and needs nothing of them but their chains."""

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def chained(toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Trains a run with a chain; returns its directory without its checkpoints."""
    monkeypatch.setenv("PERDURE_CHAIN", "1")

    def train(name: str, **options: int) -> Path:
        toy.train(tmp_path / name, **options)
        shutil.rmtree(tmp_path / name / "checkpoints")
        return tmp_path / name

    return train


def test_two_runs_of_one_seed(perdure_cli, chained):
    result = perdure_cli("diff", "--chain", chained("a"), chained("b", stop_after=3))

    assert (result.code, result.err) == (0, "")
    assert "/a: boundaries 0 to 6, 7 links\n" in result.out
    assert "chain    bit-identical at 4 boundaries\n" in result.out


def test_two_runs_of_two_seeds(perdure_cli, chained):
    result = perdure_cli("diff", "--chain", chained("a"), chained("b", seed=2))

    assert result.code == 1
    assert "chain    first differs at boundary 0: rng; 6 boundaries after it differ, too\n" in result.out
    assert "left out process_rng/numpy, process_rng/python: other ones in A and B, and never drawn from\n" in result.out


def test_the_json_document(perdure_cli, chained):
    a, b = chained("a"), chained("b", seed=2)
    document = json.loads(perdure_cli("diff", "--chain", "--json", a, b).out)

    assert document["identical"] is False
    assert document["first"] == {"path": str(a), "links": 7, "first_boundary": 0, "last": 6}
    assert document["difference"] == {
        "boundary": 0,
        "components": ["rng"],
        "counters": False,
        "metrics": False,
        "later": 6,
    }
    assert document["left_out"] == ["process_rng/numpy", "process_rng/python"]


def test_boundaries_that_only_one_has_are_no_equality(perdure_cli, chained, monkeypatch: pytest.MonkeyPatch):
    a = chained("a")
    monkeypatch.setenv("PERDURE_CHAIN", "4")
    result = perdure_cli("diff", "--chain", a, chained("b"))

    assert result.code == 1
    assert "bit-identical at 2 boundaries\n         3 boundaries only in A, the first of them 1\n" in result.out


def test_what_has_no_chain_is_refused(perdure_cli, run_path: Path, chained):
    result = perdure_cli("diff", "--chain", chained("a"), run_path)

    assert result.code == 4
    assert "the run keeps no digest chain (chain.jsonl): Run(chain=1) keeps one" in result.err
    assert "no such directory" in perdure_cli("diff", "--chain", run_path / "x", run_path).err
    assert "no run (no run.json in it)" in perdure_cli("diff", "--chain", run_path.parent, run_path).err


def test_an_edited_chain_is_damage(perdure_cli, chained):
    a, b = chained("a"), chained("b")
    path = a / "chain.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"updates":2', b'"updates":3', 1))

    result = perdure_cli("diff", "--chain", a, b)
    assert result.code == 4
    assert "chain.jsonl:4: does not follow from the line before it" in result.err
