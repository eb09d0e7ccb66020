"""`random.Random`: goes on exactly, the cached Gaussian included."""

import random
from typing import Any

import pytest

from perdure.errors import CaptureError


def draws(rng: random.Random) -> list[Any]:
    return [rng.random(), rng.getrandbits(77), rng.gauss(0, 1), rng.gauss(0, 1), rng.sample(range(9), 3)]


@pytest.mark.parametrize("gaussians", [0, 1, 2])
@pytest.mark.parametrize("words", [0, 1, 623, 624, 1000])
def test_a_generator_goes_on_exactly(trip, gaussians: int, words: int):
    source, target = random.Random(1), random.Random(2)
    for _ in range(words):
        source.getrandbits(32)
    for _ in range(gaussians):
        source.gauss(0, 1)
    target.gauss(0, 1)

    assert trip.restored(source, target) is target
    assert draws(target) == draws(source)


def test_capturing_draws_nothing(trip):
    rng = random.Random(1)
    before = rng.getstate()

    trip.tree(rng)

    assert rng.getstate() == before


def test_something_else_is_a_finding(trip):
    refusal = trip.refusal([1, [2]], [random.Random(1), [2]])

    assert [str(f) for f in refusal.findings] == [
        "c/0: 1 in the run, a random.Random here. Hand in a random.Random, as the run did."
    ]


def test_a_generator_without_state_is_refused_with_its_path(trip):
    with pytest.raises(CaptureError, match="c/rng"):
        trip.component({"rng": random.SystemRandom()})


def test_a_subclass_that_holds_more_is_not_silently_taken_for_what_it_is_not(trip):
    class Counting(random.Random):
        calls = 0

        def random(self) -> float:
            self.calls += 1
            return super().random()

    source, target = Counting(1), Counting(2)
    source.random()
    try:
        trip.restored(source, target)
    except CaptureError:
        return
    assert target.calls == source.calls
