"""`assert_exact_resume` passes what resumes exactly, and names boundary, component and leaf of what does not."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.testing import assert_exact_resume

pytestmark = pytest.mark.usefixtures("global_generators")


def train(directory: Path, *, keeps_momentum: bool = True, horizon: int = 20) -> None:
    rng, weights, momentum = np.random.default_rng(1), np.ones(3), np.zeros(3)
    with perdure.Run(directory, horizon=horizon) as run:
        more: dict[str, Any] = {"momentum": momentum} if keeps_momentum else {}
        s = run.restore(rng=rng, weights=weights, **more)
        weights, momentum = s.weights, getattr(s, "momentum", momentum)
        while not run.is_finished:
            momentum = 0.9 * momentum + rng.normal(size=3) + random.random()
            weights = weights + 0.1 * momentum
            values: dict[str, Any] = {"weights": weights, **({"momentum": momentum} if keeps_momentum else {})}
            run.boundary(env_steps=run.env_steps + 1, metrics={"mean": float(weights.mean())}, **values)
        run.finish()


def test_an_exact_training_passes(tmp_path: Path):
    assert_exact_resume(train, at=3, until=6, directory=tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "interrupted", "straight"]


def test_without_a_directory_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert_exact_resume(train, until=4)

    assert list(tmp_path.iterdir()) == []


def test_a_lost_momentum_is_named_with_the_boundary_and_the_leaf(tmp_path: Path):
    with pytest.raises(AssertionError) as caught:
        assert_exact_resume(lambda directory: train(directory, keeps_momentum=False), at=3, until=6, directory=tmp_path)

    lines = str(caught.value).splitlines()
    assert lines[0] == "not exact: stopped after boundary 3 and resumed, the training is another one"
    assert lines[1] == "  first at boundary 4: weights, the metric rows"
    assert lines[2].startswith("  first leaf weights: float64 3 [0] = ")
    assert any("a component is missing that feeds it" in line for line in lines[3:])


def test_what_outlives_a_call_is_told(tmp_path: Path):
    rng = np.random.default_rng(1)  # made once, drawn from in every call

    def careless(directory: Path) -> None:
        with perdure.Run(directory, horizon=4) as run:
            weights = run.restore(weights=np.ones(3)).weights
            while not run.is_finished:
                weights = weights + rng.normal(size=3)
                run.boundary(env_steps=run.env_steps + 1, weights=weights)
            run.finish()

    with pytest.raises(AssertionError, match=r"^two straight trainings differ: .* outlives its first call\n  first at"):
        assert_exact_resume(careless, until=4, directory=tmp_path)


def test_a_generator_is_run_to_its_end(tmp_path: Path):
    def steps(directory: Path) -> Iterator[int]:
        with perdure.Run(directory, horizon=4) as run:
            weights = run.restore(weights=np.ones(3)).weights
            while not run.is_finished:
                weights = weights * 1.1
                run.boundary(env_steps=run.env_steps + 1, weights=weights)
                yield run.boundary_number
            run.finish()

    assert_exact_resume(steps, at=2, until=9, directory=tmp_path)
    assert len(list((tmp_path / "interrupted" / "run" / "chain.jsonl").read_bytes().splitlines())) == 5


def test_what_opens_no_run_or_ends_too_early_is_refused(tmp_path: Path):
    with pytest.raises(perdure.NoRunError, match=r"^print: opened no perdure\.Run"):
        assert_exact_resume(print, until=4, directory=tmp_path / "a")
    with pytest.raises(perdure.UsageError, match=r"^--at 3: the script ends at boundary 2 by itself"):
        assert_exact_resume(lambda place: train(place, horizon=2), at=3, until=4, directory=tmp_path / "b")


def test_an_error_of_the_training_is_its_own(tmp_path: Path):
    def broken(directory: Path) -> None:
        raise ZeroDivisionError("its own")

    with pytest.raises(ZeroDivisionError, match="its own"):
        assert_exact_resume(broken, until=4, directory=tmp_path)
