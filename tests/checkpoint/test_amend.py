"""Amending: copies of an accepted value are found by where they come from, and nothing else is touched."""

from typing import Any

import numpy as np
import pytest

from perdure.checkpoint.amend import MOST_START_NUMBERS, Amended, amend, start_numbers
from perdure.contract.overrides import Accepted
from perdure.tree.diff import diff_snapshots
from perdure.tree.leaves import Alias, Array, Tree
from perdure.tree.snapshot import Component, Snapshot


def state(**trees: Tree) -> Snapshot:
    return Snapshot({name: Component("dict", tree) for name, tree in sorted(trees.items())}, 0, 0, 0)


def scalar(value: float, dtype: Any = np.float32) -> Array:
    return Array(np.asarray(value, dtype))


LR = Accepted("algorithm.lr=0.0003:0.0001", "algorithm.lr", "0.0003", "0.0001")


def amended(start: Snapshot, saved: Snapshot, fresh: Snapshot, *accepted: Accepted) -> Amended:
    return amend(saved, fresh, accepted or (LR,), start_numbers(start))


@pytest.mark.parametrize(
    "leaf",
    [
        lambda value: value,
        lambda value: scalar(value),
        lambda value: scalar(value, np.float16),
        lambda value: scalar(value, np.float64),
        lambda value: -value,
        lambda value: scalar(-value),
        lambda value: Array(np.asarray(value, np.float32), weak_type=True),
        lambda value: Array(np.asarray(value, np.float64), scalar=True),
    ],
    ids=["float", "float32", "float16", "float64", "minus", "minus float32", "weak", "scalar"],
)
def test_a_copy_becomes_the_new_value_whatever_it_had_become(leaf: Any):
    start, saved, fresh = (state(c={"lr": leaf(value), "x": 1.0}) for value in (3e-4, 2.2e-4, 1e-4))

    result = amended(start, saved, fresh)

    assert result.applied == ("c/lr",)
    assert diff_snapshots(result.snapshot, fresh) == []
    assert result.unlike == ()


def test_a_number_that_is_the_same_by_chance_stays():
    """It started with the old value and still does: nothing ties it to what was accepted."""
    start = saved = fresh = state(c={"decay": 3e-4})

    result = amended(start, saved, fresh)

    assert (result.applied, result.unlike) == ((), ())
    assert result.snapshot is saved


def test_a_number_that_starts_otherwise_and_is_no_copy_is_told_and_stays():
    start, saved, fresh = (state(c={"half": value / 2}) for value in (3e-4, 2e-4, 1e-4))

    result = amended(start, saved, fresh)

    assert (result.applied, result.unlike) == ((), ("c/half",))
    assert result.snapshot is saved


def test_an_accepted_path_itself_is_replaced_whatever_its_kind():
    start = saved = state(c={"kind": "relu", "on": True, "n": None})
    fresh = state(c={"kind": "tanh", "on": False, "n": 1})
    accepted = [Accepted("", f"c/{name}", "a", "b") for name in ("kind", "on", "n")]

    assert diff_snapshots(amended(start, saved, fresh, *accepted).snapshot, fresh) == []


def test_a_number_in_every_element_is_a_copy_and_zeros_are_none():
    """A population has a rate for each member; moments and biases begin at zero, which nobody chose."""

    def tree(value: float) -> dict[str, Tree]:
        return {"c": {"rates": Array(np.full((2, 3), value, np.float32)), "zeros": Array(np.zeros(3))}}

    start, saved, fresh = state(**tree(3e-4)), state(**tree(2e-4)), state(**tree(1e-4))

    assert amended(start, saved, fresh).applied == ("c/rates",)
    assert diff_snapshots(amended(start, saved, fresh).snapshot, fresh) == []
    assert list(start_numbers(start)) == ["c/rates"]


def test_ragged_vectors_flags_text_and_the_process_s_generators_are_no_copies():
    def tree(value: float) -> dict[str, Tree]:
        return {
            "c": {"vector": Array(np.array([value, 1.0])), "text": str(value), "flag": value > 2e-4},
            "process_rng": {"x": value},
        }

    start, saved, fresh = state(**tree(3e-4)), state(**tree(2e-4)), state(**tree(1e-4))

    result = amended(start, saved, fresh)

    assert (result.applied, result.unlike) == ((), ())
    assert start_numbers(start) == {}


def test_a_shared_place_is_amended_where_it_first_stands():
    def tree(value: float) -> dict[str, Tree]:
        return {"a": {"lr": scalar(value)}, "b": {"again": Alias(("a", "lr"))}}

    result = amended(state(**tree(3e-4)), state(**tree(2e-4)), state(**tree(1e-4)))

    assert result.applied == ("a/lr",)
    assert result.snapshot.components["b"].tree == {"again": Alias(("a", "lr"))}


def test_a_counter_is_no_copy_although_both_values_are_rounded_to_its_own():
    """As an int32, 3e-4 and 1e-4 are both 0, with which every count starts."""
    start, saved, fresh = (state(c={"count": scalar(value, np.int32)}) for value in (0, 500, 0))

    result = amended(start, saved, fresh)

    assert (result.applied, result.unlike) == ((), ())
    assert result.snapshot is saved


def test_an_unsigned_number_is_no_copy_with_the_other_sign():
    start, saved, fresh = (state(c={"n": scalar(value, np.uint32)}) for value in (4, 4, 5))
    accepted = Accepted("", "algorithm.n", "-4", "-5")

    assert amended(start, saved, fresh, accepted).applied == ("c/n",)
    assert amended(start, saved, fresh, Accepted("", "algorithm.n", "7", "8")).unlike == ("c/n",)


def test_a_table_is_not_kept_in_the_contract():
    assert start_numbers(state(c=[1.0] * (MOST_START_NUMBERS + 1))) == {}
    assert len(start_numbers(state(c=[1.0] * MOST_START_NUMBERS))) == MOST_START_NUMBERS


def test_a_number_that_never_was_one_does_not_start_otherwise():
    """NaN differs from itself, and a fresh start's NaN from the run's all the same does not."""
    start, saved, fresh = (
        state(c={"best": value, "array": scalar(value), "lr": lr})
        for value, lr in ((float("nan"), 3e-4), (0.5, 3e-4), (float("nan"), 1e-4))
    )

    result = amended(start, saved, fresh)

    assert (result.applied, result.unlike) == (("c/lr",), ())
    other = state(c={"best": 10**400, "array": scalar(float("nan")), "lr": 1e-4})
    assert amended(start, saved, other).unlike == ("c/best",)
