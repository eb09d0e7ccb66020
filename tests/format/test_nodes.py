"""Nodes: trees as JSON and back, exactly; anything else than what `encode_node` writes is refused with its path."""

import json
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import CaptureError, DamagedError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.format.nodes import (
    MAX_DEPTH,
    Place,
    StoredArray,
    arrays_among,
    decode_node,
    encode_node,
    large_leaves,
    tensor_name,
)
from perdure.format.tensors import contiguous_bytes, empty_array
from perdure.tree.diff import diff_snapshots
from perdure.tree.leaves import Alias, Array, PRNGKey, Tree
from perdure.tree.paths import Path
from perdure.tree.snapshot import Component, Snapshot


class Blobs:
    """Arrays' bytes kept in memory, as a store would keep them."""

    def __init__(self, tree: Tree) -> None:
        self.places: dict[Path, Place] = {}
        self._data: dict[Path, bytes] = {}
        for path, array in arrays_among(large_leaves(tree, ("c",))).items():
            data = bytes(contiguous_bytes(array.value))
            self.places[path] = Place("c.safetensors", 0, len(data), digest_of(data))
            self._data[path] = data

    def read(self, path: Path, stored: StoredArray) -> np.ndarray:
        assert stored.place == self.places[path]
        buffer = np.frombuffer(bytearray(self._data[path]), np.uint8)
        array = empty_array(stored.dtype, stored.shape, stored.axes)
        contiguous_bytes(array)[:] = buffer.data
        return array


def there_and_back(tree: Tree) -> Tree:
    blobs = Blobs(tree)
    data = canonical.encode(encode_node(tree, ("c",), blobs.places))
    return decode_node(canonical.decode(data, "doc"), ("c",), blobs.read)


def assert_same(first: Tree, second: Tree) -> None:
    both = [Snapshot({"c": Component("test", tree)}, 0, 0, 0) for tree in (first, second)]
    assert diff_snapshots(*both) == []


DTYPES = st.sampled_from(
    [np.dtype(name) for name in ("f4", "i8", "?", "c16", ">f4", ml_dtypes.bfloat16, ml_dtypes.int4)]
)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    dtype, shape = draw(DTYPES), tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    raw = draw(st.binary(min_size=16, max_size=16))
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = np.resize(np.frombuffer(raw, np.uint8), size)
    value = (data % 2 if dtype == np.bool_ else data).view(dtype).reshape(shape)
    value = value.transpose(draw(st.permutations(range(len(shape)))))
    return Array(value, weak_type=draw(st.booleans()), scalar=value.ndim == 0 and draw(st.booleans()))


KEYS = st.builds(
    PRNGKey, st.sampled_from(["threefry2x32", "rbg"]), st.just(Array(np.arange(4, dtype=np.uint32).reshape(2, 2)))
)
STEPS = st.one_of(st.integers(-3, 2**60), st.text(max_size=4))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.binary(max_size=5),
    arrays(),
    KEYS,
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(STEPS, inner, max_size=3),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_any_tree_comes_back_exactly(tree: Tree):
    assert_same(there_and_back(tree), tree)


@settings(max_examples=50, deadline=None)
@given(TREES, st.lists(STEPS, max_size=3).map(tuple))
def test_aliases_come_back_with_their_whole_path(tree: Tree, rest: Path):
    back = there_and_back({"first": tree, "second": [Alias(("c", *rest))]})

    assert back["second"] == [Alias(("c", *rest))]
    assert list(map(type, back["second"][0].path)) == [str, *map(type, rest)]


def test_the_order_of_keys_and_their_types_come_back():
    tree = {"z": 1, 3: 2, "3": 3, "a": {2**60: 4, -1: 5}}

    back = there_and_back(tree)

    assert list(back) == ["z", 3, "3", "a"]
    assert list(back["a"]) == [2**60, -1]


def test_worked_nodes():
    tree = {
        "w": Array(np.zeros((2, 3), np.float32, order="F"), weak_type=True),
        "t": (1, [None]),
        "s": Alias(("c", "w")),
    }
    digest = digest_of(bytes(24))
    places: dict[Path, Place] = {("c", "w"): Place("c.safetensors", 128, 24, digest)}

    assert encode_node(tree, ("c",), places) == {
        "dict": [
            [
                "w",
                {
                    "array": {
                        "dtype": "float32",
                        "shape": [2, 3],
                        "axes": [1, 0],
                        "weak_type": True,
                        "file": "c.safetensors",
                        "offset": 128,
                        "length": 24,
                        "digest": digest,
                    }
                },
            ],
            ["t", {"tuple": [1, {"list": [None]}]}],
            ["s", {"alias": ["c", "w"]}],
        ]
    }


def test_arrays_are_found_with_their_paths_keys_included_and_aliases_not():
    first, key = Array(np.zeros(1)), Array(np.zeros(2, np.uint32))
    tree = {"a": [first, 1, Alias(("c", "a", 0))], "k": (PRNGKey("rbg", key),)}

    assert list(arrays_among(large_leaves(tree, ("c",))).items()) == [(("c", "a", 0), first), (("c", "k", 0), key)]


@pytest.mark.parametrize(
    ("path", "name"),
    [(("net", "layers", 0, "kernel"), "layers/0/kernel"), (("obs",), "obs"), (("net", "a/b"), '"a/b"')],
)
def test_tensors_are_named_by_their_place_in_the_component(path: Path, name: str):
    assert tensor_name(path) == name


def test_a_tensor_never_bears_the_name_that_safetensors_keeps_for_its_metadata():
    assert tensor_name(("net", "__metadata__")) != "__metadata__"
    assert tensor_name(("__metadata__",)) != "__metadata__"


# What adapters may return wrongly.


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {1, 2}}, "c/a: a set is no leaf; the adapter must return plain values."),
        ({"a": np.float32(1)}, "c/a: a float32 is no leaf; the adapter must return plain values."),
        ([np.zeros(1)], "c/0: a ndarray is no leaf; the adapter must return plain values."),
        ({"a": {1.5: 0}}, "c/a: dict key 1.5 is neither a str nor an int."),
        ({True: 0}, "c: dict key True is neither a str nor an int."),
        ({None: 0}, "c: dict key None is neither a str nor an int."),
    ],
)
def test_what_is_no_tree_is_refused_with_its_path(tree: Any, message: str):
    with pytest.raises(CaptureError) as caught:
        encode_node(tree, ("c",), {})

    assert str(caught.value) == message


def nested(depth: int) -> Tree:
    tree: Tree = 1
    for _ in range(depth):
        tree = [tree]
    return tree


def test_depth_is_bounded_and_what_fits_comes_back():
    deep = nested(MAX_DEPTH - 1)

    assert there_and_back(deep) == deep
    with pytest.raises(CaptureError, match=r"^c/0/0/0/0/…: more than 64 containers inside one another\.$"):
        there_and_back(nested(MAX_DEPTH))
    node: Any = 1
    for _ in range(MAX_DEPTH):
        node = {"list": [node]}
    with pytest.raises(DamagedError, match=r"^c/0/0/0/0/…: more than 64 containers inside one another$"):
        decode_node(node, ("c",), lambda path, stored: np.zeros(0))


# What no writer wrote.

ENTRY = {
    "dtype": "float32",
    "shape": [2, 3],
    "file": "c.safetensors",
    "offset": 8,
    "length": 24,
    "digest": digest_of(b""),
}


def array_node(**changes: Any) -> dict[str, Any]:
    entry = {**ENTRY, **changes}
    return {"array": {name: value for name, value in entry.items() if value is not ...}}


def decode_below(node: Any) -> Tree:
    """Decodes `node` at the place `c/x/1`."""

    def read(path: Path, stored: StoredArray) -> np.ndarray:
        return empty_array(stored.dtype, stored.shape, stored.axes)

    return decode_node({"dict": [["x", {"list": [0, node]}]]}, ("c",), read)


@pytest.mark.parametrize(
    "node",
    [
        pytest.param([], id="a bare list"),
        pytest.param({}, id="no tag"),
        pytest.param({"set": []}, id="an unknown tag"),
        pytest.param({"list": [], "tuple": []}, id="two tags"),
        pytest.param({"list": {}}, id="a list that is none"),
        pytest.param({"tuple": None}, id="a tuple that is none"),
        pytest.param({"dict": {"a": 1}}, id="a dict that is no list of pairs"),
        pytest.param({"dict": [["a", 1, 2]]}, id="a triple"),
        pytest.param({"dict": ["ab"]}, id="a text for a pair"),
        pytest.param({"dict": [["a", 1], ["a", 2]]}, id="a key twice"),
        pytest.param({"dict": [[1.5, 1]]}, id="a float key"),
        pytest.param({"dict": [[None, 1]]}, id="None as a key"),
        pytest.param({"dict": [[True, 1]]}, id="a bool key"),
        pytest.param({"dict": [[["a"], 1]]}, id="a list as a key"),
        pytest.param({"dict": [[{"int": "0x1"}, 1]]}, id="a key in another spelling"),
        pytest.param({"dict": [[{"bytes": "00"}, 1]]}, id="bytes as a key"),
        pytest.param({"alias": []}, id="an alias without steps"),
        pytest.param({"alias": "c"}, id="an alias that is a text"),
        pytest.param({"alias": [1.0]}, id="an alias with a float step"),
        pytest.param({"alias": ["c"], "more": 1}, id="an alias and more"),
        pytest.param({"alias": ["c", {"int": "0x1"}]}, id="an alias with a step in another spelling"),
        pytest.param({"key": {"implementation": "rbg"}}, id="a key without data"),
        pytest.param({"key": {"implementation": 1, "data": ENTRY}}, id="a key without a name"),
        pytest.param({"key": {"implementation": "rbg", "data": ENTRY, "more": 1}}, id="a key and more"),
        pytest.param({"key": {"implementation": "rbg", "data": {}}}, id="a key with an empty entry"),
        pytest.param({"int": "zz"}, id="a malformed number"),
        pytest.param({"int": "0x1"}, id="a number in another spelling"),
        pytest.param({"array": []}, id="an array that is no object"),
        *[pytest.param(array_node(**{name: ...}), id=f"{name} is missing") for name in ENTRY],
        pytest.param(array_node(more=1), id="an unknown field"),
        pytest.param(array_node(weak_type=False), id="weak_type false"),
        pytest.param(array_node(weak_type=1), id="weak_type 1"),
        pytest.param(array_node(scalar="true"), id="scalar as text"),
        pytest.param(array_node(shape="23"), id="shape as text"),
        pytest.param(array_node(shape=[2, -3]), id="a negative size"),
        pytest.param(array_node(shape=[2, 3.0]), id="a float size"),
        pytest.param(array_node(shape=[6, True]), id="a bool size"),
        pytest.param(array_node(shape=[1] * 64 + [6]), id="too many axes"),
        pytest.param(array_node(shape=[3, 3]), id="a shape that does not fill the bytes"),
        pytest.param(array_node(shape=[2**40, 2**40]), id="a shape beyond any memory"),
        pytest.param(array_node(shape=[0, 2**70], length=0), id="an empty shape beyond NumPy's limit"),
        pytest.param(array_node(offset=-8), id="a negative offset"),
        pytest.param(array_node(offset=8.0), id="a float offset"),
        pytest.param(array_node(length=23), id="a length that the shape does not fill"),
        pytest.param(array_node(length=True), id="a bool length"),
        pytest.param(array_node(dtype="float64"), id="a dtype that does not fill the bytes"),
        pytest.param(array_node(dtype="object"), id="an unknown dtype"),
        pytest.param(array_node(dtype=None), id="no dtype"),
        pytest.param(array_node(file=None), id="no file"),
        pytest.param(array_node(digest="xxh3_128:00"), id="a short digest"),
        pytest.param(array_node(digest=digest_of(b"").upper()), id="an upper-case digest"),
        pytest.param(array_node(digest=digest_of(b"").replace("a", "A", 1)), id="an upper-case hex digit"),
        pytest.param(array_node(digest=None), id="no digest"),
        pytest.param(array_node(axes=[0]), id="too few axes in the order"),
        pytest.param(array_node(axes=[0, 0]), id="an axis twice"),
        pytest.param(array_node(axes=[1, 2]), id="an axis that does not exist"),
        pytest.param(array_node(axes=["1", "0"]), id="axes as texts"),
        pytest.param(array_node(axes=[0, 1]), id="an order that says nothing"),
        pytest.param(array_node(axes=None), id="no order"),
    ],
)
def test_a_malformed_node_is_refused_and_its_place_named(node: Any):
    with pytest.raises(DamagedError, match=r"^c/x/1"):
        decode_below(node)


def test_a_malformed_array_is_told_in_full():
    with pytest.raises(DamagedError) as caught:
        decode_below(array_node(length=23))

    assert str(caught.value) == "c/x/1: float32 [2, 3] does not fill 23 bytes"


def test_the_untouched_entry_is_accepted():
    """The twin of the malformed ones: they fail for their change and for nothing else."""
    for node in (
        array_node(),
        array_node(axes=[1, 0], weak_type=True),
        {"key": {"implementation": "rbg", "data": ENTRY}},
    ):
        tree = decode_below(node)["x"][1]
        array = tree.data if isinstance(tree, PRNGKey) else tree
        assert array.value.shape == (2, 3)


def test_a_node_is_what_json_can_hold():
    tree = {"a": Array(np.zeros(1)), 1: (1j, b"", -0.0)}
    places: Mapping[Path, Place] = Blobs(tree).places

    node = encode_node(tree, ("c",), places)
    assert json.loads(json.dumps(node)) == node
