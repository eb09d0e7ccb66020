"""Arrays of an environment that share memory: the same array stays shared, views of one another are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from perdure.errors import CaptureError  # noqa: E402


class Board(gymnasium.Env):
    """Holds whatever a test wants."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def grid_and(view: Callable[[np.ndarray], Any]) -> Board:
    grid = np.arange(12.0).reshape(3, 4)
    return Board(grid=grid, part=view(grid))


def read_only(grid: np.ndarray) -> np.ndarray:
    view = grid[1:]
    view.flags.writeable = False
    return view


def two_views(*keys: Any) -> Board:
    grid = np.arange(12.0).reshape(3, 4)
    return Board(**{f"part{number}": grid[key] for number, key in enumerate(keys)})


@pytest.mark.parametrize(
    ("make", "places"),
    [
        (lambda: grid_and(lambda grid: grid[0]), ("c/part", "c/grid")),
        (lambda: grid_and(lambda grid: grid.T), ("c/part", "c/grid")),
        (lambda: grid_and(read_only), ("c/part", "c/grid")),
        (lambda: grid_and(lambda grid: [{"row": grid[2]}]), ("c/part/0/row", "c/grid")),
        (lambda: two_views(slice(0, 2), slice(1, 3)), ("c/part1", "c/part0")),
        (lambda: gymnasium.wrappers.TimeLimit(grid_and(lambda grid: grid[:]), 5), ("c/env/part", "c/env/grid")),
    ],
    ids=["row", "transposed", "read-only", "in a dict", "of one base", "wrapped"],
)
def test_a_view_of_another_array_is_refused_with_both_places(trip, make: Callable[[], Any], places: tuple[str, str]):
    with pytest.raises(CaptureError) as refusal:
        trip.tree(make())

    assert str(refusal.value) == (
        f"{places[0]}: an array that shares memory with {places[1]}, as a view does. After a resume they would be two "
        "arrays, and what is written to one would not show in the other. Keep one of them and take the view where it "
        "is used, or keep a copy."
    )


def test_two_environments_may_not_share_memory_either(trip):
    grid = np.zeros((2, 3))
    envs = gymnasium.vector.SyncVectorEnv([lambda: Board(grid=grid[0]), lambda: Board(grid=grid)])

    with pytest.raises(CaptureError, match=r"c/envs/1/grid: an array that shares memory with c/envs/0/grid, as"):
        trip.tree(envs)


def test_the_same_array_twice_stays_one(trip):
    source, target = grid_and(lambda grid: grid), grid_and(lambda grid: grid)
    source.grid[0, 0] = 99

    trip.restored(source, target)

    assert target.part is target.grid
    assert target.grid[0, 0] == 99


@pytest.mark.parametrize(
    "make",
    [
        lambda: grid_and(np.copy),
        lambda: two_views(0, 1),
        lambda: two_views((slice(None), slice(0, 4, 2)), (slice(None), slice(1, 4, 2))),
        lambda: Board(first=np.broadcast_to(0.0, (2, 2)), second=np.broadcast_to(0.0, (2, 2))),
    ],
    ids=["copy", "rows", "interleaved", "constants"],
)
def test_arrays_without_common_elements_come_back(trip, make: Callable[[], Any]):
    source, target = make(), make()
    expected = {name: value.tolist() for name, value in vars(source).items()}
    trip.restored(source, target)

    assert {name: value.tolist() for name, value in vars(target).items()} == expected


def test_outside_environments_views_are_values_as_before(trip):
    grid = np.arange(6.0)

    whole, part = trip.restored([grid, grid[:3]], [np.zeros(6), np.zeros(3)])

    assert (whole.tolist(), part.tolist()) == ([0, 1, 2, 3, 4, 5], [0, 1, 2])
    assert not np.shares_memory(whole, part)
