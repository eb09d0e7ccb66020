"""Tensors of every dtype and layout come back bit for bit: values as new tensors, parts of live objects in place."""

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from perdure.errors import CaptureError, UnsupportedLeafError  # noqa: E402
from perdure.tree.leaves import Alias, Array  # noqa: E402

STORED = {
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
}
"""What has an exact form; everything else that torch has must be refused."""

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


def bits(tensor: Any) -> list[int]:
    """Every byte of a tensor, in the order of its elements."""
    flat = tensor.detach().resolve_conj().contiguous().reshape(-1)
    return flat.view(torch.uint8).tolist() if flat.numel() else []


def of_bits(dtype: Any, shape: tuple[int, ...], *, seed: int = 0) -> Any:
    """A tensor of arbitrary bits: NaN payloads, subnormals and negative zeros are among them."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.empty((), dtype=dtype).element_size()
    number = 1
    for length in shape:
        number *= length
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (number * size,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).reshape(shape) if number else torch.empty(shape, dtype=dtype)


@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4)], ids=str)
@pytest.mark.parametrize("name", sorted(STORED & DTYPES.keys()))
def test_every_dtype_comes_back_bit_for_bit(trip, name: str, shape: tuple[int, ...]):
    source, target = of_bits(DTYPES[name], shape), of_bits(DTYPES[name], shape, seed=1)
    before = bits(target)

    back = trip.restored(source, target)

    assert (type(back), back.dtype, back.shape) == (torch.Tensor, source.dtype, source.shape)
    assert bits(back) == bits(source)
    assert back is not target
    assert bits(target) == before


@pytest.mark.parametrize("name", sorted(STORED & DTYPES.keys()))
def test_one_flipped_bit_is_seen(trip, name: str):
    """The twin of the round trip."""
    source = of_bits(DTYPES[name], (3, 5))
    other = source.clone()
    other.view(torch.uint8).reshape(-1)[-1] ^= 1

    assert trip.digest(source) != trip.digest(other)


def made(name: str) -> Any:
    """A tensor of this dtype; None if torch itself makes none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental or deprecated dtypes say so
        try:
            return torch.empty(4, dtype=DTYPES[name])
        except (RuntimeError, TypeError):
            return None


REFUSED = [name for name in sorted(DTYPES.keys() - STORED) if made(name) is not None]


@pytest.mark.parametrize("name", REFUSED)
def test_a_dtype_without_an_exact_form_is_refused_by_name(trip, name: str):
    with pytest.raises(UnsupportedLeafError, match=rf"^c: a {name} tensor of layout strided cannot be stored exactly"):
        trip.tree(made(name))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantised_tensors_are_refused(trip):
    tensor = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)

    with pytest.raises(UnsupportedLeafError, match=r"^c: a qint8 tensor of layout strided cannot be stored exactly"):
        trip.tree(tensor)


LAYOUTS = {
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "every other column": lambda: torch.arange(12.0).reshape(3, 4)[:, ::2],
    "channels last": lambda: torch.arange(48.0).reshape(1, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "expanded number": lambda: torch.tensor(2.0).expand(5),
    "overlapping windows": lambda: torch.arange(8.0).unfold(0, 4, 2),
    "conjugated": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negated": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "a slice of more": lambda: torch.arange(9.0)[2:5],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_comes_back_with_its_numbers_in_memory_of_its_own(trip, layout: str):
    source = LAYOUTS[layout]()

    back = trip.restored(source, torch.zeros(source.shape, dtype=source.dtype))

    assert torch.equal(back, source)
    back[0] = 7
    assert not torch.equal(back, source)


@pytest.mark.parametrize("layout", ["transposed", "channels last"])
def test_the_memory_order_of_a_value_is_restored_for_sums_depend_on_it(trip, layout: str):
    source = LAYOUTS[layout]()

    back = trip.restored(source, torch.zeros(source.shape))

    assert back.stride() == source.stride()


SPARSE = {
    "coo": lambda x: torch.tensor([[0.0, x], [2.0, 0.0]]).to_sparse(),
    "uncoalesced": lambda x: torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, x], (2, 2), check_invariants=True),
    "empty": lambda x: torch.zeros(2, 2).to_sparse(),
}


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_tensors_come_back_as_they_are(trip, kind: str):
    source = SPARSE[kind](3.0)

    back = trip.restored(source, torch.zeros(2, 2).to_sparse())

    assert back.is_coalesced() == source.is_coalesced()
    assert back._indices().tolist() == source._indices().tolist()
    assert back._values().tolist() == source._values().tolist()


@pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|compressed) tensor support:UserWarning")
@pytest.mark.parametrize("convert", ["to_sparse_csr", "to_sparse_csc"])
def test_compressed_sparse_tensors_come_back(trip, convert: str):
    source = getattr(torch.tensor([[0.0, 3.0, 0.0], [2.0, 0.0, 1.0]]), convert)()

    back = trip.restored(source, getattr(torch.eye(2, 3), convert)())

    assert back.layout == source.layout
    assert torch.equal(back.to_dense(), source.to_dense())


@pytest.mark.parametrize(
    ("saved", "target", "finding"),
    [
        (torch.zeros(2), torch.zeros(3), ("c", "float32 2", "float32 3")),
        (torch.zeros(2), torch.zeros(2).double(), ("c", "float32 2", "float64 2")),
        (torch.zeros(2), torch.zeros(2).bfloat16(), ("c", "float32 2", "bfloat16 2")),
        (torch.eye(2).to_sparse(), torch.eye(2), ("c", "float32 coo tensor (2, 2)", "float32 strided tensor (2, 2)")),
        (torch.eye(2), torch.eye(2).to_sparse(), ("c", "float32 2×2", "float32 coo tensor (2, 2)")),
        (1.5, torch.zeros(2), ("c", "1.5", "array float32 2")),
    ],
    ids=["shape", "dtype", "bfloat16", "sparse", "dense", "number"],
)
def test_another_shape_dtype_or_layout_is_a_finding(trip, saved: Any, target: Any, finding: tuple[str, str, str]):
    assert trip.findings(saved, target) == [finding]


def test_values_that_start_as_none_come_back_as_tensors(trip):
    back = trip.restored({"carry": torch.ones(2)}, {"carry": None})

    assert torch.equal(back["carry"], torch.ones(2))


def test_one_tensor_under_two_names_stays_one(trip):
    shared = torch.ones(2)
    source = {"a": shared, "b": shared}

    assert trip.tree(source)["b"] == Alias(("c", "a"))
    back = trip.restored(source, {"a": torch.zeros(2), "b": torch.zeros(2)})
    assert back["a"] is back["b"]


def test_leaves_that_want_gradients_are_restored_in_place(trip):
    """SAC's log_alpha: the optimizer knows it by identity."""
    target = torch.zeros(1, requires_grad=True)
    address = target.data_ptr()

    back = trip.restored(torch.ones(1, requires_grad=True), target)

    assert back is target
    assert target.data_ptr() == address
    assert target.requires_grad
    assert target.is_leaf
    assert target.tolist() == [1]


def test_a_graph_behind_a_value_is_refused(trip):
    hidden = torch.ones(2, requires_grad=True) * 2

    with pytest.raises(CaptureError, match=r"^c/hidden: the tensor has a graph behind it.*Hand in tensor.detach\(\)"):
        trip.tree({"hidden": hidden})


def test_tensors_made_in_inference_mode_are_values_like_others(trip):
    with torch.inference_mode():
        source = torch.ones(2) * 3

    assert trip.restored(source, torch.zeros(2)).tolist() == [3, 3]


def test_a_tensor_without_numbers_is_refused(trip):
    with pytest.raises(CaptureError, match=r"^c: a tensor on the device meta has no numbers"):
        trip.tree(torch.empty(2, device="meta"))


def test_a_subclass_that_may_hold_more_is_refused(trip):
    class Labelled(torch.Tensor):
        pass

    with pytest.raises(CaptureError, match=r"^c: a .*Labelled may hold more than numbers"):
        trip.tree(torch.ones(2).as_subclass(Labelled))


def test_the_background_writer_gets_a_copy(trip):
    """Tensors change in place: what was captured is borrowed until it is made the writer's own."""
    tensor = torch.zeros(2)
    borrowed = trip.tree(tensor)
    owned = borrowed.owned()

    tensor += 1

    assert isinstance(borrowed, Array)
    assert borrowed.value.tolist() == [1, 1]
    assert owned.value.tolist() == [0, 0]


@pytest.mark.parametrize("constant", [torch.float32, torch.strided, torch.channels_last], ids=str)
def test_constants_are_facts(trip, constant: Any):
    component = trip.component([constant])

    assert component.tree == [None]
    assert component.facts == {"0": str(constant)}


def test_devices_are_neither_state_nor_facts_for_a_run_may_move(trip):
    component = trip.component([torch.device("cpu")])

    assert (component.tree, component.facts) == ([None], {})


def test_another_dtype_constant_is_a_finding(trip):
    assert trip.findings([torch.float32], [torch.float64]) == [("c/0", "torch.float32", "torch.float64")]


def test_sizes_are_tuples_of_integers(trip):
    back = trip.restored([torch.Size((2, 3))], [torch.Size(())])

    assert back == [torch.Size((2, 3))]
    assert type(back[0]) is torch.Size
    assert trip.findings([1], [torch.Size(())]) == [("c/0", "1", "torch.Size([])")]
