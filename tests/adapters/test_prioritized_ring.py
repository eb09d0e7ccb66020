"""`PrioritizedRing` draws by priority and goes on so after a restore; n-step sums stop where they must."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.errors import ContractError, UsageError

COLUMNS = {"reward": np.float32, "ended": np.bool_}


def fill(ring: perdure.Ring, rng: np.random.Generator, rows: int) -> None:
    """Adds so many rows."""
    axes = (rows,) if ring.num_envs is None else (rows, ring.num_envs)
    ring.extend(reward=rng.normal(size=axes), ended=rng.random(axes) < 0.1)


def used(seed: int, **options: Any) -> tuple[perdure.PrioritizedRing, np.random.Generator]:
    """A ring that is full and was learned from, and its generator."""
    ring, rng = perdure.PrioritizedRing(50, COLUMNS, num_envs=2, **options), np.random.default_rng(seed)
    for _ in range(12):
        fill(ring, rng, 7)
        places = ring.draw(rng, 16)
        ring.prioritise(places, rng.random(16) * 3 + 1e-6)
    return ring, rng


def test_draws_are_in_proportion_to_priorities():
    """Each share of the mass gives one place; each node is the sum of its two."""
    ring = perdure.PrioritizedRing(5, COLUMNS, alpha=1.0)
    fill(ring, np.random.default_rng(0), 5)
    ring.prioritise(np.arange(5), np.array([1.0, 2.0, 3.0, 4.0, 0.5]))

    drawn = ring.draw(np.random.default_rng(1), 10_500)

    shares = np.bincount(drawn, minlength=5) / len(drawn)
    assert np.allclose(shares, np.array([1.0, 2.0, 3.0, 4.0, 0.5]) / 10.5, atol=1e-3)
    weights = ring.weights(np.arange(5), beta=1.0)
    assert np.allclose(weights, np.array([0.5, 0.25, 0.5 / 3, 0.125, 1.0]))
    inner = np.arange(1, len(ring.tree) // 2)
    assert (ring.tree[inner] == ring.tree[2 * inner] + ring.tree[2 * inner + 1]).all()


def test_new_transitions_have_the_greatest_priority_that_there_ever_was():
    """Also of a transition that has left the ring since."""
    ring = perdure.PrioritizedRing(3, COLUMNS, alpha=0.5)
    fill(ring, np.random.default_rng(0), 3)
    ring.prioritise(np.array([0]), np.array([9.0]))
    fill(ring, np.random.default_rng(0), 2)
    assert ring.tree[-len(ring.tree) // 2 :].tolist() == [3.0, 3.0, 1.0, 0.0]
    assert ring.max_priority == 3.0


def test_a_ring_drawn_from_by_priority_comes_back(tmp_path: Path):
    """Tree, sums and greatest priority, bit for bit: the next draws and what follows them are the same."""
    ring, rng = used(0)
    perdure.save(tmp_path / "a", ring=ring, rng=rng)
    fresh, fresh_rng = perdure.PrioritizedRing(50, COLUMNS, num_envs=2), np.random.default_rng(9)

    perdure.load(tmp_path / "a", ring=fresh, rng=fresh_rng)

    assert fresh.tree.tobytes() == ring.tree.tobytes()
    assert fresh.max_priority == ring.max_priority
    for each, generator in ((ring, rng), (fresh, fresh_rng)):
        fill(each, generator, 30)
    assert fresh.draw(fresh_rng, 64).tolist() == ring.draw(rng, 64).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.7}, r"ring/alpha: 0.6 in the run, 0.7 here"),
        ({"num_envs": None}, "ring/rows/ended: bool 2 in the run, bool a row here"),
    ],
)
def test_another_ring_is_refused(tmp_path: Path, options: dict[str, Any], message: str):
    """Another exponent, or other environments."""
    perdure.save(tmp_path / "a", ring=used(0)[0])
    target = perdure.PrioritizedRing(50, COLUMNS, **{"num_envs": 2, **options})
    with pytest.raises(ContractError, match=message):
        perdure.load(tmp_path / "a", ring=target)


def test_a_ring_without_priorities_is_another_kind(tmp_path: Path):
    """Either way round."""
    perdure.save(tmp_path / "a", ring=perdure.Ring(50, COLUMNS))
    with pytest.raises(ContractError, match="dict of 2 in the run, Ring"):
        perdure.load(tmp_path / "a", ring=perdure.PrioritizedRing(50, COLUMNS))


@pytest.mark.parametrize("priorities", [[0.0], [-1.0], [np.nan], [np.inf], [1.0, 2.0]])
def test_impossible_priorities_are_refused(priorities: list[float]):
    """They would be drawn never or always."""
    ring, _ = used(0)
    before = ring.tree.tobytes()
    with pytest.raises(UsageError, match="a finite priority greater than 0 for each place"):
        ring.prioritise(np.array([3]), np.array(priorities))
    assert ring.tree.tobytes() == before


@pytest.mark.parametrize("envs", [None, 2])
@pytest.mark.parametrize("rows", [9, 25])
def test_n_step_sums_stop_at_ends_and_at_the_newest_row(rows: int, envs: int | None):
    """Compared with a loop over each place, before and after the ring wrapped around."""
    ring, rng = perdure.Ring(13, COLUMNS, num_envs=envs), np.random.default_rng(0)
    fill(ring, rng, rows)
    places = np.arange(len(ring))

    sums, last, factors = ring.n_step(places, 4, 0.9, reward="reward", ended="ended")

    width = envs or 1
    for place in places:
        at, total, factor = place, 0.0, 1.0
        for step in range(4):
            taken = ring.take(np.array([at]))
            total, factor = total + factor * float(taken["reward"][0]), factor * 0.9
            if taken["ended"][0] or at // width == (rows - 1) % 13 or step == 3:
                break
            at = (at + width) % (13 * width)
        assert (sums[place], last[place], factors[place]) == (pytest.approx(total), at, factor)
