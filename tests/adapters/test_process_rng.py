"""The process's global generators, Python's and NumPy's, as one component."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from perdure.adapters.process_rng import ProcessRng, ProcessRngAdapter, states
from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.tree.leaves import Tree

pytestmark = pytest.mark.usefixtures("global_generators")


def draws() -> list[float]:
    return [random.random(), random.gauss(0, 1), *np.random.randn(3).tolist(), float(np.random.randint(100))]


def test_the_global_generators_go_on_exactly_with_their_cached_gaussians(trip):
    random.seed(1)
    np.random.seed(1)
    random.gauss(0, 1)
    np.random.randn(1)
    saved = trip.tree(ProcessRng())
    wanted = draws()

    random.seed(2)
    np.random.seed(2)
    restore_tree(saved)

    assert draws() == wanted


def restore_tree(saved: Tree) -> None:
    """Restores a tree that was captured before the global generators went on."""
    walk = Walk(Resolver())
    assert ProcessRngAdapter().check(ProcessRng(), saved, walk) == []
    ProcessRngAdapter().restore(ProcessRng(), saved, walk)


def test_capturing_draws_nothing(trip):
    before = repr((random.getstate(), np.random.get_state()))

    trip.saved(ProcessRng())

    assert repr((random.getstate(), np.random.get_state())) == before


def test_another_state_is_a_finding(trip):
    assert trip.findings({"python": 1}, ProcessRng()) == [("c", "dict of 1", "['numpy', 'python']")]


def test_it_is_live_and_restored_with_the_other_generators(trip):
    random.seed(5)

    target = ProcessRng()
    assert trip.restored(ProcessRng(), target) is target


@pytest.mark.parametrize("draw", [random.random, np.random.random, lambda: random.gauss(0, 1), np.random.randn])
def test_states_are_equal_until_somebody_draws(draw: Callable[[], float]):
    before = states()
    assert states() == before

    draw()

    assert states() != before


def test_states_tell_draws_from_torch():
    torch = pytest.importorskip("torch")
    before = states()
    assert states() == before

    torch.rand(1)

    assert states() != before
