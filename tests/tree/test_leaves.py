"""Leaves and nodes: traversal, memory order, ownership."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.tree.leaves import Alias, Array, PRNGKey, children, leaves, memory_axes, owned


def test_leaves_come_in_stored_order_and_empty_containers_count():
    tree = {"b": [1, (), {"x": None}], "a": {}, 3: (True, [])}

    assert list(leaves(tree, ("c",))) == [
        (("c", "b", 0), 1),
        (("c", "b", 1), ()),
        (("c", "b", 2, "x"), None),
        (("c", "a"), {}),
        (("c", 3, 0), True),
        (("c", 3, 1), []),
    ]


def test_a_bare_leaf_is_its_own_only_leaf():
    assert list(leaves("text", ("c",))) == [(("c",), "text")]


@pytest.mark.parametrize("leaf", [None, True, 1, 1.0, 1j, "text", b"bytes", Array(np.zeros(2)), Alias(("a",))])
def test_leaves_have_no_children(leaf: object):
    assert list(children(leaf)) == []


C = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("value", "axes"),
    [
        pytest.param(np.float32(1) * np.ones(()), (), id="0-d"),
        pytest.param(np.arange(3), (0,), id="1-d"),
        pytest.param(np.arange(6)[::2], (0,), id="a gap"),
        pytest.param(np.arange(6)[::-1], (0,), id="reversed"),
        pytest.param(C, (0, 1, 2), id="C"),
        pytest.param(np.asfortranarray(C), (2, 1, 0), id="F"),
        pytest.param(C.transpose(1, 0, 2), (1, 0, 2), id="two axes swapped"),
        pytest.param(C.transpose(2, 0, 1), (1, 2, 0), id="rotated"),
        pytest.param(C[:, ::2], (0, 1, 2), id="C with gaps"),
        pytest.param(C[::-1, :, ::-1], (0, 1, 2), id="C reversed"),
        pytest.param(C.T[:, ::-1, ::2], (2, 1, 0), id="F with gaps and a reversal"),
        pytest.param(np.zeros((0, 3)).T, (0, 1), id="size 0"),
        pytest.param(np.zeros((1, 5)).T, (0, 1), id="a unit axis decides nothing"),
        pytest.param(np.zeros((2, 1, 3)).transpose(2, 1, 0), (1, 2, 0), id="unit axes come first"),
        pytest.param(np.zeros((1, 1, 1)).T, (0, 1, 2), id="unit axes only"),
        pytest.param(np.broadcast_to(np.arange(3)[:, None], (3, 4)), (0, 1), id="broadcast along the last axis"),
        pytest.param(np.broadcast_to(np.arange(4), (3, 4)), (1, 0), id="broadcast along the first axis"),
        pytest.param(np.broadcast_to(np.float64(1), (2, 3)), (0, 1), id="broadcast from a scalar"),
    ],
)
def test_memory_axes_run_from_the_slowest_to_the_fastest(value: np.ndarray, axes: tuple[int, ...]):
    assert memory_axes(value) == axes


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(3))))
def test_memory_axes_undo_any_transpose(permutation: tuple[int, ...]):
    value = C.transpose(permutation)

    assert value.transpose(memory_axes(value)).flags.c_contiguous


@st.composite
def strided_arrays(draw: st.DrawFn) -> np.ndarray:
    """Any layout that views make: permuted, sliced, reversed, broadcast, with unit and empty axes."""
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    value = np.arange(np.prod([2 * axis for axis in shape], dtype=int)).reshape([2 * axis for axis in shape])
    value = value[tuple(slice(None, None, draw(st.sampled_from([1, -1, 2, -2]))) for _ in shape)]
    value = value.transpose(draw(st.permutations(range(value.ndim))))
    if draw(st.booleans()):
        at = draw(st.integers(0, value.ndim))
        new = np.expand_dims(value, at)
        value = np.broadcast_to(new, [*value.shape[:at], draw(st.integers(1, 3)), *value.shape[at:]])
    return value


@settings(max_examples=200, deadline=None)
@given(strided_arrays())
def test_an_owned_array_has_equal_values_its_own_memory_and_the_same_memory_order(value: np.ndarray):
    copy = Array(value, weak_type=True, scalar=False).owned()

    assert copy.value.shape == value.shape
    assert copy.value.tobytes() == value.tobytes()
    assert not np.shares_memory(copy.value, value)
    assert memory_axes(copy.value) == memory_axes(value)
    assert copy.weak_type


def test_an_owned_tree_is_out_of_reach_of_later_writes():
    live, key = np.zeros(3), np.zeros(2, np.uint32)
    tree = {"a": [Array(live, weak_type=True)], "b": (Array(live), 1), "k": PRNGKey("rbg", Array(key)), "n": None}

    kept = owned(tree)
    live[:], key[:] = 7, 7

    assert list(kept) == list(tree)
    assert isinstance(kept["b"], tuple)
    assert [kept["a"][0].value.tolist(), kept["b"][0].value.tolist()] == [[0, 0, 0], [0, 0, 0]]
    assert (kept["k"].implementation, kept["k"].data.value.tolist()) == ("rbg", [0, 0])
    assert kept["a"][0].weak_type
    assert not kept["b"][0].weak_type
