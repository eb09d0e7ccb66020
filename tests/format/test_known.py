"""Known parts: what is remembered of plain subtrees is what would be made anew, bit for bit, type for type."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import CaptureError
from perdure.format.canonical import encode
from perdure.format.known import Known, Memory
from perdure.format.nodes import MAX_DEPTH, encode_node
from perdure.format.state_digest import component_digests
from perdure.tree.leaves import Alias, Array, Tree
from perdure.tree.snapshot import Component, Snapshot

NAN_WITH_PAYLOAD = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]
LOOK_ALIKES = [0, 0.0, -0.0, False, 0j, "", b"", None, math.nan, NAN_WITH_PAYLOAD, 1, True, 1.0, "1", b"1"]

TREES = st.recursive(
    st.sampled_from(LOOK_ALIKES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["a", "b", 0, 1]), inner, max_size=3)
    ),
    max_leaves=12,
)


def node_of(tree: Tree, known: Known | None = None) -> bytes:
    return encode(encode_node(tree, ("c",), {}, memory=known.nodes if known else None))


def digest_of_tree(tree: Tree, known: Known | None = None) -> dict[str, str]:
    snapshot = Snapshot({"c": Component("test", tree)}, 0, 0, 0)
    return component_digests(snapshot, memory=known.forms if known else None)


@settings(max_examples=60)
@given(st.lists(TREES, min_size=2, max_size=5))
def test_every_tree_of_a_sequence_comes_to_what_it_would_without_memory(trees: list[Tree]):
    known = Known()
    for tree in trees:
        known = Known(known)

        assert node_of(tree, known) == node_of(tree)
        assert digest_of_tree(tree, known) == digest_of_tree(tree)


@pytest.mark.parametrize("one", LOOK_ALIKES, ids=repr)
def test_values_that_compare_equal_are_not_taken_for_one_another(one: Tree):
    known = Known()
    for other in LOOK_ALIKES:
        assert node_of([other], known) == node_of([other])

    assert node_of([one], known) == node_of([one])


def test_the_order_of_keys_is_remembered():
    known = Known()
    node_of({"a": 1, "b": 2}, known)

    assert node_of({"b": 2, "a": 1}, known) == node_of({"b": 2, "a": 1})


def test_what_was_made_before_is_not_made_again():
    calls: list[int] = []

    def make() -> str:
        calls.append(1)
        return "made"

    memory = Memory()
    later = Memory(memory.used)

    assert [each.of({"a": 1}, 1, make) for each in (memory, memory, Memory(memory.used))] == ["made"] * 3
    assert len(calls) == 1
    assert not later.used


def test_what_a_save_did_not_use_is_forgotten():
    first = Memory()
    first.of([1], 1, lambda: "one")
    second = Memory(first.used)
    second.of([2], 1, lambda: "two")

    assert Memory(second.used).of([1], 1, lambda: "anew") == "anew"


@pytest.mark.parametrize("leaf", [Array(np.zeros(2)), Alias(("c", 0))], ids=["array", "alias"])
def test_what_holds_more_than_plain_leaves_is_made_each_time(leaf: Tree):
    memory = Memory()
    results = iter(["first", "second"])

    assert [memory.of([1, {"a": leaf}], 1, lambda: next(results)) for _ in range(2)] == ["first", "second"]


def test_a_known_part_may_not_stand_deeper_than_anything_may():
    known, part = Known(), [1]
    node_of(part, known)
    deep: Tree = part
    for _ in range(MAX_DEPTH):
        deep = [deep]

    with pytest.raises(CaptureError, match=f"more than {MAX_DEPTH} containers"):
        node_of(deep, known)
