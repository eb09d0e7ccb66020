"""JAX arrays and keys: every bit, the dtype, the weak type and the place come back, so that nothing is traced again."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from perdure.adapters.jax_arrays import with_weak_type
from perdure.errors import CaptureError, ContractError
from perdure.tree.leaves import Array, PRNGKey

pytestmark = pytest.mark.jax

DTYPES = [
    *("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32", "complex64", "bfloat16"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4"),
    *("float8_e4m3", "float8_e8m0fnu", "int4", "uint4", "int2", "uint2"),
]


def bits_of(array: Any) -> bytes:
    return np.asarray(array).tobytes()


def varied(name: str) -> np.ndarray:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    if name == "bool":
        return np.array([[True, False, True]])
    small = {"int4": 16, "uint4": 16, "int2": 4, "uint2": 4}.get(name)
    if small:
        return np.arange(6).reshape(2, 3).astype(dtype)
    return (np.arange(6 * dtype.itemsize, dtype=np.uint8) * 41 + 3).view(dtype).reshape(2, 3)


@pytest.mark.parametrize("name", DTYPES)
def test_an_array_of_any_dtype_comes_back_bit_by_bit(trip, name: str):
    value = jnp.asarray(varied(name))

    back = trip.restored([value], [jnp.zeros_like(value)])[0]

    assert isinstance(back, jax.Array)
    assert (back.dtype, back.shape, back.weak_type) == (value.dtype, value.shape, False)
    assert bits_of(back) == bits_of(value) == varied(name).tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1, 1), (2, 1, 3)])
def test_shapes_come_back(trip, shape: tuple[int, ...]):
    value = jnp.asarray(np.ones(shape, np.float32))

    back = trip.restored(value, jnp.asarray(np.zeros(shape, np.float32)))

    assert (back.shape, bits_of(back)) == (shape, bits_of(value))


@pytest.mark.parametrize("weak", [False, True])
def test_nan_payloads_and_minus_zero_come_back(trip, weak: bool):
    raw = np.array([0x80000000, 0x7FC00ABC, 0xFF800000], np.uint32).view(np.float32)
    value = jnp.asarray(raw)
    if weak:
        value = jnp.broadcast_to(jnp.asarray(0.0), (3,)).at[...].set(value)

    back = trip.restored(value, jnp.zeros(3))

    assert back.weak_type is weak
    assert bits_of(back) == raw.tobytes()


@pytest.mark.parametrize("number", [3, 2.5, -0.0, 1 - 2j], ids=str)
@pytest.mark.parametrize("shape", [(), (2,)])
def test_weak_types_survive(trip, number: complex, shape: tuple[int, ...]):
    weak = jnp.broadcast_to(jnp.asarray(number), shape)
    assert weak.weak_type

    back = trip.restored([weak], [jnp.zeros(shape, weak.dtype)])[0]

    assert (back.weak_type, back.dtype, bits_of(back)) == (True, weak.dtype, bits_of(weak))
    assert (back + jnp.ones(shape, jnp.bfloat16)).dtype == (weak + jnp.ones(shape, jnp.bfloat16)).dtype


def test_a_strong_type_survives_in_a_weak_target(trip):
    assert not trip.restored(jnp.ones(()), jnp.asarray(0.0)).weak_type


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: jnp.asarray(2.5), id="weak"),
        pytest.param(lambda: jnp.ones(3, jnp.bfloat16), id="strong"),
        pytest.param(lambda: jax.device_put(jnp.ones(2), jax.devices()[0]), id="committed"),
        pytest.param(lambda: jax.random.key(1), id="key"),
        pytest.param(lambda: jax.random.PRNGKey(1), id="raw key"),
    ],
)
def test_nothing_is_traced_again_after_a_restore(trip, make: Any):
    traces = []

    @jax.jit
    def step(x: Any) -> Any:
        traces.append(x)
        return x

    step(make())
    back = trip.restored({"x": make()}, {"x": make()})["x"]
    step(back)

    assert len(traces) == 1


@pytest.mark.parametrize("saved_committed", [False, True])
@pytest.mark.parametrize("target_committed", [False, True])
def test_the_target_says_where_an_array_lives_and_whether_it_is_committed(
    trip, saved_committed: bool, target_committed: bool
):
    device = jax.devices()[0]
    saved, target = jnp.ones(2), jnp.zeros(2)
    saved = jax.device_put(saved, device) if saved_committed else saved
    target = jax.device_put(target, device) if target_committed else target

    back = trip.restored(saved, target)

    assert (back.committed, back.sharding) == (target_committed, target.sharding)


def test_a_restored_array_shares_no_memory_with_the_checkpoint(trip):
    """JAX takes over aligned NumPy buffers without a copy where it can; a later write would reach the array."""
    snapshot = trip.saved(jnp.arange(64.0))
    value = snapshot.components["c"].tree.value

    back = with_weak_type(value, weak_type=False)
    value[:] = 7

    assert back.tolist() == list(range(64))


def test_the_tree_is_a_view_on_the_host_with_the_weak_type(trip):
    tree = trip.tree({"strong": jnp.arange(2, dtype=jnp.int8), "weak": jnp.asarray(1.5)})

    assert isinstance(tree["strong"], Array)
    assert (tree["strong"].value.tolist(), tree["strong"].weak_type) == ([0, 1], False)
    assert (tree["weak"].value.tolist(), tree["weak"].weak_type) == (1.5, True)


@pytest.mark.parametrize(
    ("saved", "target", "texts"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32), ("float32 2×3", "float32 2×4")),
        (np.zeros(2, np.float32), np.zeros(2, ml_dtypes.bfloat16), ("float32 2", "bfloat16 2")),
        (np.zeros((), np.int32), np.zeros(1, np.int32), ("int32 scalar 0", "int32 1")),
        (np.zeros(2, np.uint32), np.zeros(2, np.int32), ("uint32 2", "int32 2")),
    ],
)
def test_another_dtype_or_shape_is_a_finding(trip, saved: np.ndarray, target: np.ndarray, texts: tuple[str, str]):
    found = trip.findings({"mu": [jnp.asarray(saved)]}, {"mu": [jnp.asarray(target)]})

    assert found == [("c/mu/0", *texts)]


def test_the_dtype_s_way_out_is_told(trip):
    refusal = trip.refusal([jnp.zeros(2)], [jnp.zeros(2, jnp.bfloat16)])

    assert str(refusal.findings[0]) == (
        "c/0: float32 2 in the run, bfloat16 2 here. Build it with dtype float32, as the run did."
    )


def test_a_number_where_an_array_is_expected_is_a_finding(trip):
    assert trip.findings([1.0, jnp.ones(1)], [jnp.ones(()), jnp.ones(1)]) == [("c/0", "1.0", "array float32 scalar")]


def test_a_numpy_array_comes_back_as_the_target_s_kind(trip):
    back = trip.restored(np.ones(2, np.float32), jnp.zeros(2))

    assert isinstance(back, jax.Array)
    assert type(trip.restored(jnp.ones(2), np.zeros(2, np.float32))) is np.ndarray


@pytest.mark.parametrize("target", [None, [], {}], ids=repr)
def test_an_array_never_turns_into_a_numpy_array_for_want_of_a_target(trip, target: Any):
    around = {list: lambda x: [x], dict: lambda x: {"a": x}}.get(type(target), lambda x: x)

    try:
        back = trip.restored(around(jnp.ones(2)), target)
    except ContractError:
        return
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(back))


def test_a_deleted_array_is_refused_with_the_reason(trip):
    array = jnp.ones(2) + 1
    array.delete()

    with pytest.raises(CaptureError) as caught:
        trip.component({"opt": [array]})

    assert str(caught.value) == (
        "c/opt/0: the array was deleted, probably donated to a jitted call; hand in the call's result instead."
    )


def test_a_deleted_target_is_refused_with_its_path(trip):
    array = jnp.ones(2) + 1
    snapshot = trip.saved({"x": jnp.ones(2)})
    array.delete()

    with pytest.raises(CaptureError, match=r"^c/x: the array was deleted"):
        trip.component({"x": array})
    assert snapshot.components["c"].tree["x"].value.tolist() == [1, 1]


def test_a_tracer_is_refused_with_its_path(trip):
    def inside(x: Any) -> Any:
        with pytest.raises(CaptureError, match=r"^c/x: "):
            trip.component({"x": x})
        return x

    jax.jit(inside)(jnp.ones(2))


# Keys.


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("shape", [(), (2,), (0,)])
def test_typed_keys_and_arrays_of_them_come_back(trip, implementation: str, shape: tuple[int, ...]):
    def keys(seed: int) -> Any:
        key = jax.random.key(seed, impl=implementation)
        return jax.random.split(key, shape) if shape else key

    back = trip.restored(keys(1), keys(2))

    assert (back.dtype, back.shape) == (keys(1).dtype, shape)
    assert bits_of(jax.random.key_data(back)) == bits_of(jax.random.key_data(keys(1)))
    assert str(jax.random.key_impl(back)) == implementation


def test_a_restored_key_draws_the_same_numbers_and_splits_the_same(trip):
    key = jax.random.key(5)

    back = trip.restored(key, jax.random.key(0))

    assert jax.random.bits(back, (2,)).tolist() == jax.random.bits(key, (2,)).tolist()
    assert bits_of(jax.random.key_data(jax.random.split(back))) == bits_of(jax.random.key_data(jax.random.split(key)))


def test_a_key_is_stored_by_implementation_and_data(trip):
    tree = trip.tree(jax.random.key(7, impl="rbg"))

    assert isinstance(tree, PRNGKey)
    assert (tree.implementation, tree.data.value.dtype, tree.data.value.shape) == ("rbg", np.uint32, (4,))


def test_a_raw_key_stays_raw(trip):
    raw = jax.random.PRNGKey(3)

    back = trip.restored(raw, jax.random.PRNGKey(0))

    assert (back.dtype, back.tolist()) == (np.uint32, raw.tolist())


@pytest.mark.parametrize(
    ("saved", "target", "texts"),
    [
        (("key", "threefry2x32"), ("key", "rbg"), ("threefry2x32 key [0, 1]", "rbg key")),
        (("key", "threefry2x32"), ("raw", "threefry2x32"), ("threefry2x32 key [0, 1]", "array uint32 2")),
        (("raw", "threefry2x32"), ("key", "threefry2x32"), ("uint32 2", "threefry2x32 key")),
    ],
    ids=["implementation", "typed for raw", "raw for typed"],
)
def test_another_kind_of_key_is_a_finding(trip, saved: Any, target: Any, texts: tuple[str, str]):
    make = {"key": jax.random.key, "raw": jax.random.PRNGKey}

    found = trip.findings([make[saved[0]](1, impl=saved[1])], [make[target[0]](1, impl=target[1])])

    assert found == [("c/0", *texts)]


def test_another_number_of_keys_is_a_finding(trip):
    key = jax.random.key(1)

    assert trip.findings(jax.random.split(key, 2), jax.random.split(key, 3)) == [("c", "uint32 2×2", "uint32 3×2")]


def test_a_deleted_key_is_refused_with_the_reason(trip):
    key = jax.random.split(jax.random.key(1), 2)
    key.delete()

    with pytest.raises(CaptureError, match=r"^c/key: the array was deleted"):
        trip.component({"key": key})


def test_one_array_in_two_places_is_no_shared_object(trip):
    array = jnp.ones(2)

    tree = trip.tree([array, array])

    assert [type(node) for node in tree] == [Array, Array]
