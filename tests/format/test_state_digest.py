"""State digests depend on every bit of the state, and on nothing else."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import DamagedError
from perdure.format import canonical, dtypes
from perdure.format.digests import digest_of
from perdure.format.numbers import encode_plain
from perdure.format.state_digest import component_digests, state_digest
from perdure.format.tensors import contiguous_bytes
from perdure.tree.leaves import Alias, Array, PRNGKey, memory_axes, owned
from perdure.tree.snapshot import Component, Snapshot


def snapshot_of(**trees: Any) -> Snapshot:
    return Snapshot({name: Component("test", tree) for name, tree in trees.items()}, 0, 0, 0)


def digest(tree: Any) -> str:
    return component_digests(snapshot_of(c=tree))["c"]


def key(implementation: str, *words: int) -> PRNGKey:
    return PRNGKey(implementation, Array(np.array(words, np.uint32)))


X = np.arange(6.0).reshape(2, 3)

DIFFERENT = [
    None,
    False,
    0,
    0.0,
    -0.0,
    0j,
    complex(0.0, -0.0),
    "",
    "0",
    b"",
    b"0",
    [],
    (),
    {},
    [0],
    (0,),
    {0: 0},
    {"0": 0},
    {"0": 0, "1": 0},
    [0, 0],
    [[0], 0],
    [0, [0]],
    [[0, 0]],
    ["leaf", 0],
    2**70,
    hex(2**70),
    Array(X),
    Array(X.astype(np.float32)),
    Array(X.astype(">f8")),
    Array(X, weak_type=True),
    Array(X.reshape(3, 2)),
    Array(X.reshape(6)),
    Array(np.asfortranarray(X)),
    Array(-X),
    Array(np.asarray(0.0)),
    Array(np.asarray(0.0), scalar=True),
    Array(np.asarray(-0.0)),
    Array(np.zeros(0)),
    Array(np.zeros((0, 1))),
    key("threefry2x32", 0, 1),
    key("threefry2x32", 0, 2),
    key("rbg", 0, 1),
    Array(np.array([0, 1], np.uint32)),
    {"a": Array(X), "b": Array(-X)},
    {"a": Array(-X), "b": Array(X)},
]


def test_any_two_different_states_have_different_digests():
    digests = [digest(tree) for tree in DIFFERENT]

    same = {(i, j) for i, a in enumerate(digests) for j, b in enumerate(digests) if i < j and a == b}
    assert same == set()


def documented(tree: Any) -> Any:
    """The form as docs/format.md tells it, for trees without aliases and rows."""
    match tree:
        case Array():
            value, digest_of_bytes = tree.value, digest_of(contiguous_bytes(tree.value))
            flags = [tree.weak_type, tree.scalar]
            return [
                "array",
                dtypes.name_of(value.dtype),
                list(value.shape),
                list(memory_axes(value)),
                *flags,
                digest_of_bytes,
            ]
        case PRNGKey():
            return ["key", tree.implementation, *documented(tree.data)[1:]]
        case dict():
            ordered = sorted(tree.items(), key=lambda item: (isinstance(item[0], str), item[0]))
            parts = [[encode_plain(name), documented(child)] for name, child in ordered]
            return digest_of(canonical.encode([type(tree).__name__, parts]))
        case list() | tuple():
            return digest_of(canonical.encode([type(tree).__name__, [documented(child) for child in tree]]))
        case _:
            return ["leaf", encode_plain(tree)]


LEAVES = [
    *[None, True, False, 0, 1, 2**53, 2**53 + 1, -(2**70), 0.0, -0.0, 0.1, 1e300, math.nan, math.inf, -math.inf],
    *[1j, complex(-0.0, math.nan), "", 'ü\u2028"', "\ud800", b"", b"\x00\xff"],
    *[Array(X[:, ::2]), Array(X > 2), Array(np.array([1, 2], "M8[s]")), Array(np.array(["a", "bc"]))],
    *[Array(np.zeros(3, code)) for code in "bBhHiIlLqQefdFD"],
    *[Array(np.ones(3, dtypes.dtype_of(name))) for name in sorted(dtypes._ML_DTYPES)],
    *[Array(np.arange(6, dtype=dtypes.dtype_of("bfloat16")).reshape(2, 3)), Array(np.zeros((0, 2), np.float32))],
    *[tree for tree in DIFFERENT if isinstance(tree, Array | PRNGKey)],
]
TREES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.sampled_from(["a", "b", "1", "ü", 0, 1, -3, 2**60]), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("tree", [*DIFFERENT, *LEAVES], ids=repr)
def test_a_digest_is_that_of_the_documented_form(tree: Any):
    assert digest(tree) == digest_of(canonical.encode(documented(tree)))


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_the_same_holds_for_whatever_is_built_of_them(tree: Any):
    assert digest(tree) == digest_of(canonical.encode(documented(tree)))


@pytest.mark.parametrize("tree", DIFFERENT, ids=repr)
def test_an_equal_copy_has_the_same_digest(tree: Any):
    assert digest(owned(tree)) == digest(tree)


def test_every_bit_of_an_array_counts():
    base = digest(Array(np.zeros(4, np.uint8)))
    flipped = set()
    for at in range(32):
        value = np.zeros(4, np.uint8)
        value[at // 8] = 1 << at % 8
        flipped.add(digest(Array(value)))

    assert len(flipped | {base}) == 33


def test_the_order_of_keys_does_not_count_at_any_depth():
    first = {"a": 1, "b": {3: 1, "3": 2, 2**60: 3}}
    second = {"b": {2**60: 3, "3": 2, 3: 1}, "a": 1}

    assert digest(first) == digest(second)


def test_gaps_in_memory_do_not_count():
    wide = np.zeros((2, 6))
    wide[:, ::2] = X

    assert digest(Array(wide[:, ::2])) == digest(Array(X))


def test_facts_adapters_and_classes_do_not_count():
    plain = snapshot_of(c=[1])
    other = replace(plain, components={"c": Component("other", [1], {"fn": "function a:b"}, "exact-replay", "opaque")})

    assert component_digests(other) == component_digests(plain)


def test_a_shared_node_counts_as_its_content():
    shared = component_digests(snapshot_of(a={"x": [1, Array(X)]}, b=[Alias(("a", "x")), Alias(("b", 0))]))
    apart = component_digests(snapshot_of(a={"x": [1, Array(X)]}, b=[[1, Array(X)], [1, Array(X)]]))

    assert shared == apart


def test_a_change_in_a_shared_node_shows_in_every_component_that_shares_it():
    before = component_digests(snapshot_of(a={"x": [1]}, b=Alias(("a", "x")), c=2))
    after = component_digests(snapshot_of(a={"x": [9]}, b=Alias(("a", "x")), c=2))

    assert {name for name in before if before[name] != after[name]} == {"a", "b"}


def test_an_object_that_contains_itself_has_a_digest_that_its_content_decides():
    def me(x: int) -> Any:
        return {"me": Alias(("c",)), "inner": [Alias(("c", "inner")), x]}

    assert digest(me(1)) == digest(me(1))
    assert digest(me(1)) != digest(me(2))
    assert digest(me(1)) != digest({"me": Alias(("c", "inner")), "inner": [Alias(("c",)), 1]})


@pytest.mark.parametrize(
    ("alias", "target"),
    [
        pytest.param(Alias(("d",)), "d", id="no such component"),
        pytest.param(Alias(("c", "x", 5)), "c/x/5", id="no such item"),
        pytest.param(Alias(("c", "x", "y")), "c/x/y", id="a key of a list"),
        pytest.param(Alias(("c", "n", 0)), "c/n/0", id="below a leaf"),
        pytest.param(Alias(("c", "alias")), "c/alias", id="itself"),
    ],
)
def test_an_alias_to_nowhere_is_damage(alias: Alias, target: str):
    with pytest.raises(DamagedError) as caught:
        digest({"x": [1], "n": 0, "alias": alias})

    assert str(caught.value) == f"c/alias: shared with {target}, which does not exist"


def test_two_aliases_of_each_other_are_damage():
    with pytest.raises(DamagedError, match="which does not exist"):
        digest({"a": Alias(("c", "b")), "b": Alias(("c", "a"))})


def test_known_digests_of_arrays_are_used_where_a_write_has_made_them():
    asked: list[tuple[object, ...]] = []

    def known(path: tuple[object, ...], array: Array) -> str:
        asked.append(path)
        return digest_of(array.value.tobytes())

    tree = {"a": Array(X), "k": key("rbg", 1), "again": Alias(("c", "a"))}

    assert component_digests(snapshot_of(c=tree), known)["c"] == digest(tree)
    assert set(asked) == {("c", "a"), ("c", "k")}


def test_the_state_digest_covers_every_component_and_counter():
    digests = {"a": digest_of(b"a"), "b": digest_of(b"b")}
    variants = [
        state_digest(digests, 1, 2, 3),
        state_digest({"a": digest_of(b"a")}, 1, 2, 3),
        state_digest({"a": digest_of(b"b"), "b": digest_of(b"a")}, 1, 2, 3),
        state_digest({"a": digest_of(b"a"), "c": digest_of(b"b")}, 1, 2, 3),
        state_digest(digests, 2, 2, 3),
        state_digest(digests, 1, 3, 3),
        state_digest(digests, 1, 2, 4),
    ]

    assert len(set(variants)) == len(variants)
    assert state_digest(dict(reversed(digests.items())), 1, 2, 3) == variants[0]
