"""NumPy's generators: after any history, restored ones go on exactly, and so do the children they spawn."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BIT_GENERATORS = ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"]


def generator(name: str, seed: Any = 1) -> np.random.Generator:
    return np.random.Generator(getattr(np.random, name)(seed))


def draws(rng: np.random.Generator) -> list[Any]:
    """Draws of every kind: whole words, halves that are kept for the next call, ziggurat, choices."""
    return [
        rng.integers(0, 10, 3, dtype=np.uint8).tolist(),
        rng.integers(0, 2**40),
        rng.random(3, dtype=np.float32).tolist(),
        rng.normal(size=3).tolist(),
        rng.permutation(5).tolist(),
        rng.bytes(5),
        [child.random() for child in rng.spawn(2)],
    ]


@pytest.mark.parametrize("name", BIT_GENERATORS)
@pytest.mark.parametrize("warm_up", [0, 1, 7])
def test_a_generator_goes_on_exactly(trip, name: str, warm_up: int):
    rng, target = generator(name), generator(name, 99)
    rng.random(warm_up)
    rng.integers(0, 10, dtype=np.uint8)  # leaves half a word in the bit generator's buffer
    rng.spawn(warm_up)
    target.normal(size=3)

    assert trip.restored(rng, target) is target
    assert draws(target) == draws(rng)


def test_the_buffered_half_word_is_part_of_the_state(trip):
    """The twin: without it, the next small integer would be another one."""
    rng, target = generator("PCG64"), generator("PCG64")
    rng.integers(0, 10, dtype=np.uint32)
    assert rng.bit_generator.state["has_uint32"] == 1

    trip.restored(rng, target)

    assert target.bit_generator.state == rng.bit_generator.state
    assert target.bit_generator.state["has_uint32"] == 1


STEPS = st.lists(st.sampled_from(["normal", "uint8", "uint32", "float32", "spawn", "shuffle"]), max_size=6)


def advance(rng: np.random.Generator, steps: list[str]) -> None:
    for step in steps:
        match step:
            case "normal":
                rng.normal(size=2)
            case "uint8" | "uint32":
                rng.integers(0, 7, dtype=step)
            case "float32":
                rng.random(dtype=np.float32)
            case "spawn":
                rng.spawn(1)
            case _:
                rng.shuffle(np.arange(3))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(BIT_GENERATORS), STEPS, STEPS)
def test_any_history_of_either_side_leads_to_the_same_future(trip, name: str, history: list[str], other: list[str]):
    rng, target = generator(name, 3), generator(name, 4)
    advance(rng, history)
    advance(target, other)

    trip.restored(rng, target)

    assert draws(target) == draws(rng)


@pytest.mark.parametrize(("saved", "target"), [(3, 0), (0, 3), (2, 2)])
def test_the_spawn_count_comes_back_in_either_direction(trip, saved: int, target: int):
    rngs = generator("PCG64"), generator("PCG64")
    rngs[0].spawn(saved)
    rngs[1].spawn(target)

    trip.restored(*rngs)

    assert [child.random() for child in rngs[1].spawn(2)] == [child.random() for child in rngs[0].spawn(2)]


@pytest.mark.parametrize(
    "entropy", [0, 2**200, [1, 2, 3], (4, 5), np.array([6, 7], np.uint32), np.array([8], np.int64)], ids=repr
)
def test_any_entropy_comes_back(trip, entropy: Any):
    rng, target = (
        generator("PCG64", np.random.SeedSequence(entropy)),
        generator("PCG64", np.random.SeedSequence(entropy)),
    )
    rng.random()
    rng.spawn(1)

    trip.restored(rng, target)

    assert draws(target) == draws(rng)


def test_another_entropy_and_spawn_key_come_back(trip):
    rng = generator("PCG64", np.random.SeedSequence(5, spawn_key=(1, 2), pool_size=8))
    target = generator("PCG64", np.random.SeedSequence([1, 2]))

    trip.restored(rng, target)

    assert draws(target) == draws(rng)
    sequence = target.bit_generator.seed_seq
    assert isinstance(sequence, np.random.SeedSequence)
    assert (sequence.entropy, sequence.spawn_key, sequence.pool_size) == (5, (1, 2), 8)


def test_capturing_draws_and_spawns_nothing(trip):
    rng = generator("PCG64")
    before = rng.bit_generator.state

    trip.tree(rng)

    assert rng.bit_generator.state == before
    assert rng.bit_generator.seed_seq.n_children_spawned == 0  # pyright: ignore[reportAttributeAccessIssue]


def test_two_generators_that_share_a_bit_generator_go_on_sharing_it(trip):
    source, target = np.random.PCG64(1), np.random.PCG64(2)
    rngs = [np.random.Generator(source), np.random.Generator(source)]
    targets = [np.random.Generator(target), np.random.Generator(target)]
    rngs[0].random(3)

    trip.restored(rngs, targets)

    assert [targets[at].random() for at in (0, 1, 0)] == [rngs[at].random() for at in (0, 1, 0)]


def test_a_shared_bit_generator_that_comes_apart_is_refused(trip):
    source = np.random.PCG64(1)
    rngs = [np.random.Generator(source), np.random.Generator(source)]

    assert trip.findings(rngs, [generator("PCG64"), generator("PCG64")]) == [
        ("c/1/bit_generator", "the same object as c/0/bit_generator", "an object of its own")
    ]


@pytest.mark.parametrize("name", BIT_GENERATORS)
def test_a_bare_bit_generator_goes_on_exactly(trip, name: str):
    source, target = getattr(np.random, name)(1), getattr(np.random, name)(2)
    source.random_raw(3)

    assert trip.restored(source, target) is target
    assert target.random_raw(3).tolist() == source.random_raw(3).tolist()


def test_a_seed_sequence_goes_on_spawning(trip):
    source, target = np.random.SeedSequence(1), np.random.SeedSequence(1)
    source.spawn(2)

    back = trip.restored(source, target)

    assert back.spawn(1)[0].generate_state(2).tolist() == source.spawn(1)[0].generate_state(2).tolist()


def test_another_kind_of_bit_generator_is_a_finding(trip):
    refusal = trip.refusal({"rng": generator("PCG64")}, {"rng": generator("Philox")})

    assert [str(finding) for finding in refusal.findings] == [
        "c/rng/bit_generator: PCG64 in the run, Philox here. Build it with np.random.PCG64."
    ]


@pytest.mark.parametrize(
    ("saved", "target", "texts"),
    [
        (1, generator("PCG64"), ("1", "a numpy Generator")),
        (1, np.random.PCG64(1), ("1", "a bit generator")),
        (1, np.random.SeedSequence(1), ("1", "a SeedSequence")),
        (1, np.random.RandomState(1), ("1", "RandomState on MT19937")),
        (np.random.RandomState(1), generator("MT19937"), ("dict of 4", "a numpy Generator")),
    ],
    ids=["Generator", "BitGenerator", "SeedSequence", "RandomState", "one for the other"],
)
def test_something_else_is_a_finding(trip, saved: Any, target: Any, texts: tuple[str, str]):
    assert trip.findings([saved, X], [target, X]) == [("c/0", *texts)]


X = np.zeros(1)


@pytest.mark.parametrize("gaussians", [0, 1, 2])
def test_a_legacy_random_state_goes_on_with_its_cached_gaussian(trip, gaussians: int):
    source, target = np.random.RandomState(1), np.random.RandomState(2)
    source.randn(gaussians)
    target.randn(1)

    assert trip.restored(source, target) is target
    assert target.randn(3).tolist() == source.randn(3).tolist()
    assert target.randint(0, 100, 5).tolist() == source.randint(0, 100, 5).tolist()


def test_a_random_state_on_another_bit_generator_goes_on(trip):
    source, target = np.random.RandomState(np.random.PCG64(1)), np.random.RandomState(np.random.PCG64(2))
    source.randn(1)

    trip.restored(source, target)

    assert target.randn(3).tolist() == source.randn(3).tolist()


def test_a_random_state_on_another_bit_generator_than_the_run_s_is_a_finding(trip):
    found = trip.findings([np.random.RandomState(1), 1], [np.random.RandomState(np.random.PCG64(1)), 1])

    assert found == [("c/0", "dict of 4", "RandomState on PCG64")]
