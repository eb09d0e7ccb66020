"""Two folders are equal exactly if chains, last checkpoints and rows are, but for generators that are left alone."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import perdure
from perdure.errors import DamagedError
from perdure.proof.evidence import Compared, Parting, compare_folders, left_alone, never_drawn, reach, runs_in
from perdure.proof.killing import latest
from perdure.proof.locating import checkpoint_at, locate, resemblances
from perdure.runs.chain import read_chain

pytestmark = pytest.mark.usefixtures("global_generators")

NOTHING: frozenset[str] = frozenset()


def train(folder: Path, *, boundaries: int = 4, change_at: int = -1, seed: int = 1, draws: bool = False) -> Path:
    """A run `x` in a folder; NumPy's process-wide generator is seeded by `seed`, and drawn from if told."""
    random.seed(5)
    np.random.seed(seed)
    with perdure.Run(folder / "x", horizon=boundaries, chain=1, every=perdure.Every(updates=1), keep=None) as run:
        weights = run.restore(weights=np.ones(3), bias=0.0).weights
        while not run.is_finished:
            noise = np.random.random() if draws else 0.0
            weights = weights * 1.1 + noise + (run.boundary_number + 1 == change_at)
            row = {"at": run.boundary_number}
            run.boundary(env_steps=run.env_steps + 1, weights=weights, bias=0.0, metrics=row)
        run.finish()
    return folder


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return train(tmp_path / "first")


def test_equal_folders(first: Path, tmp_path: Path):
    second = train(tmp_path / "second")

    assert compare_folders(first, second, NOTHING) == Compared(("x",), boundaries=5, leaves=10, rows=4)
    assert (reach(first), latest(first), reach(tmp_path / "none"), latest(tmp_path / "none")) == (4, 4, -1, -1)


def test_a_difference_is_located(first: Path, tmp_path: Path):
    second = train(tmp_path / "second", change_at=3)
    parting = compare_folders(first, second, NOTHING)

    assert isinstance(parting, Parting)
    assert parting.difference is not None
    assert (parting.difference.boundary, parting.difference.components) == (3, ("weights",))
    located = locate(first, second, "x", 3, NOTHING)
    assert located is not None
    assert [leaf.path for leaf in located.leaves] == ["weights"]
    assert locate(first, second, "x", 9, NOTHING) is None
    assert locate(first, second, "y", 3, NOTHING) is None


def test_what_was_begun_anew_resembles_an_earlier_boundary(first: Path, tmp_path: Path):
    second = train(tmp_path / "second", boundaries=5)
    run = runs_in(second)["x"]
    assert resemblances(first, second, "x", 4, ["weights"], NOTHING) == {}

    chain = read_chain(run.chain)
    run.chain.write_bytes(replace(chain[1], boundary=3, previous=None).encoded())  # as if boundary 1 came again
    assert resemblances(first, second, "x", 3, ["weights"], NOTHING) == {"weights": 1}


def test_ends_that_differ(first: Path, tmp_path: Path):
    parting = compare_folders(first, train(tmp_path / "second", boundaries=3), NOTHING)

    assert parting == Parting("x", "one ends at boundary 4, the other at 3")


def test_a_run_that_only_one_has(first: Path, tmp_path: Path):
    second = train(tmp_path / "second")
    shutil.copytree(second / "x", second / "y")

    assert compare_folders(first, second, NOTHING) == Parting("y", "only one of the two opened this run")


def test_rows_that_are_not_the_counted_ones_are_damage(first: Path, tmp_path: Path):
    second = train(tmp_path / "second")
    rows = second / "x" / "metrics.jsonl"
    rows.write_bytes(rows.read_bytes().replace(b'"at":2', b'"at":3'))

    with pytest.raises(DamagedError, match=r"metrics\.jsonl: not the rows that step_0000000004 counted"):
        compare_folders(first, second, NOTHING)


def test_a_generator_that_is_left_alone_and_differs_does_not_count(first: Path, tmp_path: Path):
    second = train(tmp_path / "second", seed=2)
    ignored = never_drawn([first, second])

    assert ignored == {"process_rng/numpy"}  # Python's is the same in both
    assert isinstance(compare_folders(first, second, NOTHING), Parting)
    assert compare_folders(first, second, ignored) == Compared(("x",), boundaries=5, leaves=5, rows=4)


def test_one_that_is_drawn_from_counts(tmp_path: Path):
    first = train(tmp_path / "first", draws=True)
    second = train(tmp_path / "second", draws=True, seed=2)

    assert never_drawn([first, second]) == NOTHING
    assert left_alone([]) == NOTHING


def test_the_checkpoint_of_a_boundary(first: Path):
    opened = checkpoint_at(runs_in(first)["x"], 2)

    assert opened is not None
    assert (opened.name, opened.manifest.boundary) == ("step_0000000002", 2)
    shutil.rmtree(first / "x" / "checkpoints" / "step_0000000002")
    assert checkpoint_at(runs_in(first)["x"], 2) is None
