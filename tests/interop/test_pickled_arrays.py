"""Pickled arrays and keys come out bit for bit; what only pretends to be one is refused by name."""

import pickle
import struct
from collections import OrderedDict
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from perdure.errors import DamagedError, PerdureError, UnsupportedLeafError
from perdure.interop.losses import Losses
from perdure.interop.pickled_arrays import PickledArray, PickledKey, array_in
from perdure.interop.pickled_values import NOTHING, Name, Record
from perdure.interop.plain_trees import PlainTrees
from perdure.interop.restricted_pickle import read_pickle

ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array([1, 2], ">i4"),
    np.array([True, False]),
    np.array(-0.0),
    np.zeros((0, 4), np.uint8),
    np.array([1 + 2j], np.complex64),
    np.array([0.5, np.nan], ml_dtypes.bfloat16),
    np.array(["ab", "c"]),
    np.array([b"ab"]),
    np.float16(1.5),
    np.int64(7),
    np.bool_(True),
]


def carried(value: Any, protocol: int = 4) -> tuple[Any, tuple[str, ...]]:
    data, losses = pickle.dumps(value, protocol), Losses()
    return PlainTrees(len(data), "file", losses).plain(read_pickle(data, "file"), ("root",)), losses.lines()


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("value", ARRAYS, ids=lambda value: f"{value.dtype}{value.shape}")
def test_arrays_of_numpy(value: np.ndarray | np.generic, protocol: int):
    tree, losses = carried({"x": value}, protocol)

    assert type(tree["x"]) is type(value)
    assert (tree["x"].dtype, tree["x"].shape, tree["x"].tobytes()) == (value.dtype, value.shape, value.tobytes())
    assert np.asarray(tree["x"]).flags.f_contiguous == np.asarray(value).flags.f_contiguous
    assert losses == ()


@pytest.mark.jax
def test_arrays_and_keys_of_jax():
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(3), 2)
    tree, losses = carried([jnp.ones((2, 2)), jnp.asarray(2.5), keys, jax.random.PRNGKey(1)])

    assert (type(tree[0]), tree[0].dtype, tree[0].tolist()) == (np.ndarray, np.float32, [[1, 1], [1, 1]])
    assert losses == ("root/1: JAX's weak type is not kept; promotions with this array may give other dtypes.",)
    assert jax.random.key_data(tree[2]).tolist() == jax.random.key_data(keys).tolist()
    assert tree[3].tolist() == [0, 1]


def test_a_key_of_an_unknown_implementation_becomes_its_data():
    tree, losses = plain(key(b"homemade", np.arange(3, dtype=np.uint32)))

    assert tree.tolist() == [0, 1, 2]
    assert losses == ("root: a typed key of the implementation 'homemade', which JAX does not have, became its data.",)


def plain(record: Record) -> tuple[Any, tuple[str, ...]]:
    losses = Losses()
    return PlainTrees(10_000, "file", losses).plain(record, ("root",)), losses.lines()


def record(name: str, *arguments: Any, state: Any = NOTHING) -> Record:
    module, _, function = name.rpartition(".")
    return Record(Name(module, function), arguments, is_class=False, state=state)


def dtype(code: Any = "f4", order: Any = "<") -> Record:
    return record("numpy.dtype", code, False, True, state=(3, order, None, None, None, -1, -1, 0))


def array(data: Any = bytes(8), kind: Any = None, shape: Any = (2,), order: Any = False) -> Record:
    state = (1, shape, dtype() if kind is None else kind, order, data)
    return record("numpy._core.multiarray._reconstruct", state=state)


def key(implementation: bytes, data: np.ndarray | None) -> Record:
    """A typed key as JAX 0.4 named its classes."""
    made = record("jax._src.prng.PRNGImpl", (2,), "seed", implementation.decode(), "tag")
    base = None if data is None else array(data.tobytes(), dtype(data.dtype.str[1:]), data.shape)
    return record("jax._src.prng.PRNGKeyArray", state={"_impl": made, "_base_array": base})


@pytest.mark.parametrize(
    ("broken", "kind", "message"),
    [
        (array(bytes(7)), DamagedError, "7 bytes for float32 of the shape (2,)"),
        (array(b"", shape=(1 << 40,)), DamagedError, "0 bytes for float32 of the shape (1099511627776,)"),
        (array(b"", shape=(0, 1 << 61, 1 << 61)), DamagedError, "no numpy._core.multiarray._reconstruct as"),
        (array(shape=(-2,)), DamagedError, "its shape is made of something else than lengths"),
        (array(shape=(True, 2)), DamagedError, "its shape is made of something else than lengths"),
        (array(shape=(1,) * 33), DamagedError, "its shape is no tuple of at most 32 lengths"),
        (array(shape=[2]), DamagedError, "its shape is no tuple of at most 32 lengths"),
        (array(kind="f4"), DamagedError, "it has no dtype"),
        (array(kind=dtype(order=">>")), DamagedError, "its dtype has no byte order"),
        (array(kind=dtype("O8")), UnsupportedLeafError, "an array of dtype 'O8', which cannot be stored exactly."),
        (array(kind=dtype("f4,f4")), UnsupportedLeafError, "an array of dtype 'f4,f4'"),
        (array(kind=dtype("V8")), UnsupportedLeafError, "an array of dtype 'V8'"),
        (array(kind=dtype("U9999999")), UnsupportedLeafError, "an array of dtype 'U9999999'"),
        (array(kind=dtype(Name("os", "system"))), UnsupportedLeafError, "an array of dtype os.system"),
        (array(kind=dtype(Name("ml_dtypes", "__file__"))), DamagedError, "unknown dtype '__file__'"),
        (array(kind=dtype(3)), UnsupportedLeafError, "an array of dtype without a code"),
        (array([None, None]), UnsupportedLeafError, "an array of float32 without bytes: objects have no exact form."),
        (record("numpy._core.multiarray._reconstruct"), DamagedError, "it does not have the 5 parts"),
        (record("numpy.core.multiarray.scalar", dtype()), DamagedError, "it does not have the 2 parts"),
        (
            record("jax._src.array._reconstruct_array", Name("os", "system"), (), (), {}),
            DamagedError,
            "made by os.system",
        ),
        (key(b"threefry2x32", None), DamagedError, "its implementation or its data is missing"),
        (
            key(b"threefry2x32", np.zeros(3, np.uint32)),
            DamagedError,
            "uint32 of the shape (3,) is no key of threefry2x32",
        ),
        (key(b"rbg", np.zeros(4, np.int32)), DamagedError, "int32 of the shape (4,) is no key of rbg"),
        (key(b"\x1b[31m", np.zeros(2, np.uint32)), DamagedError, "its implementation has no name"),
        (record("jax._src.prng.PRNGKeyArray"), DamagedError, "it has no state"),
    ],
)
def test_what_only_pretends_is_refused(broken: Record, kind: type[PerdureError], message: str):
    with pytest.raises(kind) as caught:
        array_in(broken, "metadata.pkl: env_states/x")

    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert str(caught.value).startswith("metadata.pkl: env_states/x: ")


def test_other_records_are_none_of_them():
    assert array_in(record("numpy.matrixlib.defmatrix.matrix"), "file") is None
    assert isinstance(array_in(array(), "file"), PickledArray)
    assert isinstance(array_in(key(b"rbg", np.zeros(4, np.uint32)), "file"), PickledKey)


class Point(NamedTuple):
    """A named tuple of an environment."""

    x: Any
    y: Any


class Slotted:
    """A class with slots."""

    __slots__ = ("a",)

    def __init__(self, a: Any) -> None:
        self.a = a


def test_containers_of_environments():
    tree, losses = carried({"p": Point(1, [Point(2, 3)]), "o": OrderedDict(b=1, a=2), "s": Slotted(4), "c": 1 + 2j})

    assert tree == {"p": (1, [(2, 3)]), "o": {"b": 1, "a": 2}, "s": {"a": 4}, "c": 1 + 2j}
    assert list(tree["o"]) == ["b", "a"]
    assert losses == (
        f"root/p and 1 more: {__name__}.Point became a tuple of its parts.",
        f"root/s: {__name__}.Slotted became a mapping of its fields.",
    )


def test_what_has_no_better_form_is_described():
    tree, losses = carried({"set": {5}, "range": range(2), "function": struct.pack})

    assert tree == {
        "set": {"made_by": "builtins.set", "items": [5]},
        "range": {"made_by": "builtins.range", "arguments": (0, 2, 1)},
        "function": "_struct.pack",
    }
    assert losses[2] == "root/function: _struct.pack, a name of code, became that name as text."
