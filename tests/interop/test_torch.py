"""Files of torch.save are read as torch.load reads them, bit for bit, without torch and without running anything."""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.interop.torch_files import (
    Call,
    Members,
    Outside,
    assert_same,
    made,
    members,
    raw,
    rewritten,
    saved,
    storage,
    tensor,
)
from torch import _utils

import perdure
from perdure.errors import DamagedError, NoCheckpointError, PerdureError, UsageError
from perdure.interop import convert
from perdure.interop.carried import Carried
from perdure.interop.kinds.torch import KIND
from perdure.interop.recognition import kind_of

pytestmark = pytest.mark.full

DTYPES = [
    torch.bool, torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def bits(dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """Random bits: NaNs with payloads, infinities, denormals."""
    size = count * dtype.itemsize
    data = np.random.default_rng(seed).integers(0, 2 if dtype == torch.bool else 256, size, np.uint8)
    return torch.from_numpy(data).view(dtype)


class Network(torch.nn.Module):
    """With what a state_dict has: parameters, buffers, one that passes, a module in a module."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("passing", torch.ones(1), persistent=False)


def trained() -> tuple[Network, torch.optim.Optimizer]:
    network = Network()
    optimizer = torch.optim.Adam(network.parameters())
    for _ in range(3):
        network.layers(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
    return network, optimizer


def test_a_network_and_its_optimizer_come_as_torch_loads_them(tmp_path: Path):
    network, optimizer = trained()
    state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": 3, "best": -1.5, "note": "é"}
    file = saved(state, tmp_path / "x.pt")

    assert kind_of(file) is KIND
    carried = KIND.read(file)
    assert assert_same(carried.tree, torch.load(file, weights_only=True)) == 10 + 3 * 6
    assert carried.losses == ("model: the versions of its modules, which a state_dict bears, are not kept.",)
    names = {leaf.name: leaf for leaf in KIND.contents(file).leaves}
    assert names["model/layers.0.weight"].what == "float32 4×3"
    assert names["model/layers.0.weight"].size_bytes == 48
    assert names["optimizer/state/0/exp_avg"].what == "float32 4×3"
    assert names["note"].what == "'é'"
    assert KIND.contents(file).kind == "torch.save (zip, version 3)"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("protocol", [2, 4])
def test_every_dtype_comes_bit_for_bit(tmp_path: Path, dtype: torch.dtype, protocol: int):
    whole = bits(dtype, 12)
    state = {"a": whole, "b": whole.clone().reshape(3, 4).t(), "c": whole[:0], "d": whole[5].clone()}
    file = saved(state, tmp_path / "x.pt", pickle_protocol=protocol)

    assert assert_same(KIND.read(file).tree, torch.load(file, weights_only=protocol == 2)) == 4


@pytest.mark.full
@settings(max_examples=60)
@given(data=st.data())
def test_any_view_of_any_storage_is_the_same_numbers(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    shape = data.draw(st.lists(st.integers(0, 4), min_size=0, max_size=4))
    strides = [data.draw(st.integers(0, 5)) for _ in shape]
    offset = data.draw(st.integers(0, 3))
    dtype = data.draw(st.sampled_from(DTYPES))
    view = bits(dtype, 90).as_strided(shape, strides, offset)
    file = saved([view, {"again": view}], tmp_path_factory.mktemp("view") / "x")

    carried = KIND.read(file)
    assert_same(carried.tree["content"], [view, {"again": view}])
    assert "content: stands alone in the file, without a name." in carried.losses


def test_conjugated_and_negated_views_are_resolved(tmp_path: Path):
    numbers = torch.tensor([1 + 2j, -0.0j, 3 - 1j])
    state = {"conjugated": numbers.conj(), "negated": numbers.clone().conj().imag, "one": numbers[0].clone().conj()}
    file = saved(state, tmp_path / "x.pt")

    assert assert_same(KIND.read(file).tree, state) == 3


def test_what_shares_a_storage_became_a_copy_and_that_is_said(tmp_path: Path):
    weight = torch.arange(6.0)
    file = saved({"in": weight, "out": weight, "part": weight[2:4], "other": weight.clone()}, tmp_path / "x.pt")

    assert KIND.read(file).losses == ("out and 1 more: shares the storage of in; it became a copy.",)
    perdure_copy = convert(file, tmp_path / "copy")
    assert perdure_copy.losses[0] == "out and 1 more: shares the storage of in; it became a copy."
    assert_same(perdure.read(tmp_path / "copy")["content"], torch.load(file))


PLAIN: dict[Any, Any] = {
    "none": None, "on": True, "big": 2**300, "negative": -(2**63), "rate": 0.1, "complex": 1 - 2j, "text": "é",
    "bytes": b"\x00\xff", "empty": {}, "list": [1, [2, (3,)]], 7: {-1: "x"},
}  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_come_as_they_are(tmp_path: Path, protocol: int):
    file = saved(PLAIN, tmp_path / "x.pt", pickle_protocol=protocol)

    assert KIND.read(file).tree == PLAIN
    assert KIND.read(file).losses == ()


@pytest.mark.parametrize("protocol", [2, 4])
def test_values_of_other_classes_come_plain_and_that_is_said(tmp_path: Path, protocol: int):
    state = {
        "size": torch.Size([2, 3]), "dtype": torch.float32, "device": torch.device("cpu"), "set": {1},
        "frozen": frozenset(["a"]), "mutable": bytearray(b"x"), "counted": collections.Counter("aab"),
        "queue": collections.deque([1, 2], maxlen=3), "default": collections.defaultdict(list, a=[1]),
        "options": argparse.Namespace(lr=0.1, name="x"), "array": np.arange(3), "scalar": np.float32(0.5),
        "ordered": collections.OrderedDict(b=1, a=2), "parameter": torch.nn.Parameter(torch.ones(1)),
        "bare": torch.arange(2.0).untyped_storage(),
    }  # fmt: skip
    carried = KIND.read(saved(state, tmp_path / "x.pt", pickle_protocol=protocol))

    plain = {name: value for name, value in carried.tree.items() if raw(value) is None}
    assert plain == {
        "size": (2, 3), "dtype": "torch.float32", "device": "cpu", "set": [1], "frozen": ["a"], "mutable": b"x",
        "counted": {"a": 2, "b": 1}, "queue": [1, 2], "default": {"a": [1]}, "options": {"lr": 0.1, "name": "x"},
        "ordered": {"b": 1, "a": 2},
    }  # fmt: skip
    assert raw(carried.tree["array"]) == raw(state["array"])
    assert raw(carried.tree["scalar"]) == raw(state["scalar"])
    assert raw(carried.tree["parameter"]) == raw(torch.ones(1))
    assert carried.tree["bare"].tobytes() == np.arange(2, dtype=np.float32).tobytes()
    assert carried.losses == (
        "size: a torch.Size became a tuple.",
        "dtype: torch.float32, a name of code, became that name as text.",
        "device: a torch.device became its name.",
        "set and 1 more: a set became a list.",
        "mutable: a bytearray became bytes.",
        "counted: a Counter became a dict.",
        "queue: a deque became a list.",
        "default: a defaultdict became a dict.",
        "options: argparse.Namespace became a mapping of its fields.",
        "parameter: that it requires gradients is not kept.",
        "bare: a storage, not a tensor; it became an array of one axis.",
    )


def unread(protocol: int) -> dict[str, Any]:
    quantised = Call(_utils._rebuild_qtensor, storage(torch.QInt8Storage, "0", 16), 0, (2,), (1,), (), False, {})
    found = {
        "sparse": torch.eye(2).to_sparse(),
        "path": pathlib.PurePosixPath("/x"),
        "partial": partial(int, base=2),
        "slice": slice(1),
        "keys": {(1, 2): 3, None: 4, 1.5: 5, "kept": 6},
        "in a list": [1, slice(2), 3],
        "objects": np.array([object, None], object),
        "meta": torch.ones(2, device="meta"),
        "nested": {"deep": [{"x": slice(3)}]},
    }
    return found if protocol == 2 else found | {"quantised": quantised}


def test_what_is_not_read_is_named_and_the_rest_is_read(tmp_path: Path):
    carried = KIND.read(saved(unread(2) | {"kept": torch.ones(2)}, tmp_path / "x.pt"))

    assert list(carried.tree) == ["keys", "in a list", "nested", "kept"]
    assert (carried.tree["keys"], carried.tree["in a list"]) == ({"kept": 6}, [1, None, 3])
    assert carried.tree["nested"] == {"deep": [{}]}
    assert raw(carried.tree["kept"]) == raw(torch.ones(2))
    assert carried.losses == (
        "sparse: a sparse tensor, not read.",
        "path: an object of pathlib.PurePosixPath, not read.",
        "partial: an object of functools.partial, not read.",
        "slice and 2 more: an object of builtins.slice, not read.",
        "keys: an entry with a key of the type tuple, neither text nor an integer, not read.",
        "keys: an entry with a key of the type NoneType, neither text nor an integer, not read.",
        "keys: an entry with a key of the type float, neither text nor an integer, not read.",
        '"in a list"/1: None stands in its place.'.replace('"', ""),
        "objects: an array of objects or of records, not read.",
        "meta: a tensor without data, not read.",
    )


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (tensor(storage(torch.QInt8Storage, "0", 16), 0, (2,), (1,)), "a quantised tensor"),
        (Call(_utils._rebuild_qtensor, storage(), 0, (2,), (1,)), "a quantised tensor"),
        (
            tensor(storage(torch.UntypedStorage, "0", 16), 0, (2,), (1,), _utils._rebuild_tensor_v3, False, {},
                   torch.float4_e2m1fn_x2),
            "a tensor of torch.float4_e2m1fn_x2, which NumPy does not have",
        ),
        (tensor(Outside(("storage", torch.FloatStorage, "0", "cpu", 4, ("1", 0, 2)))), "a view into storage '0'"),
    ],
)  # fmt: skip
def test_tensors_that_are_no_plain_arrays_are_named(tmp_path: Path, call: Call, what: str):
    carried = KIND.read(made({"odd": call, "kept": tensor()}, tmp_path / "x"))

    assert list(carried.tree) == ["kept"]
    assert carried.losses[0].startswith(f"odd: {what}")
    assert carried.losses[0].endswith(", not read.")


@pytest.mark.parametrize("new_format", [True, False], ids=["zip", "before 1.6"])
@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
def test_a_whole_module_gives_what_its_state_dict_holds(tmp_path: Path, new_format: bool):
    network, _ = trained()
    file = saved(network, tmp_path / "x.pt", _use_new_zipfile_serialization=new_format)
    carried = KIND.read(file)

    flat = convert(file, tmp_path / "out.safetensors", dry_run=True)
    assert sorted(leaf.name for leaf in flat.leaves) == sorted(network.state_dict())
    layers = carried.tree["layers"]
    for name, value in network.state_dict().items():
        found = carried.tree["kept"] if name == "kept" else layers[name.split(".")[1]][name.split(".")[2]]
        assert raw(found) == raw(value), name
    assert "of which only parameters and buffers are read." in carried.losses[0]


def test_the_format_from_before_1_6(tmp_path: Path):
    network, optimizer = trained()
    weight = torch.arange(6.0)
    state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "tied": [weight, weight[1:3]]}
    file = saved(state, tmp_path / "x.pt", _use_new_zipfile_serialization=False)

    assert kind_of(file) is KIND
    assert assert_same(KIND.read(file).tree, torch.load(file, weights_only=True)) == 30
    assert KIND.contents(file).kind == "torch.save (format 1001)"
    assert KIND.contents(file).notes[0] == (
        "It is of the format from before torch 1.6, which has no checksums: a flipped bit in a tensor passes unnoticed."
    )


@pytest.mark.parametrize("cut", [40, 200, -1])
def test_the_format_from_before_1_6_cut(tmp_path: Path, cut: int):
    file = saved({"a": torch.ones(9)}, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(DamagedError) as caught:
        KIND.read(file)
    assert str(caught.value).startswith(f"{file}: ")

    file = saved({"a": torch.ones(9)}, file, _use_new_zipfile_serialization=False)
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(DamagedError, match="its storages end at byte"):
        KIND.read(file)


@pytest.mark.parametrize("name", ["x.json", "x.cleanrl_model.json"])
def test_a_side_file_is_in_the_metadata(tmp_path: Path, name: str):
    file = saved({"w": torch.ones(1)}, tmp_path / "x.cleanrl_model")
    (tmp_path / name).write_text(json.dumps({"env": "CartPole-v1", "seed": 1}))

    assert KIND.read(file).metadata == {"side_file": {"env": "CartPole-v1", "seed": 1}}
    assert KIND.contents(file).notes == (f"{name}, which stands beside it, is in the metadata under side_file.",)
    (tmp_path / name).write_text("{")
    assert KIND.read(file).metadata == {}
    assert KIND.contents(file).notes == (f"{name}, which stands beside it, is not JSON and is not read.",)
    (tmp_path / name).write_text("[" * 100_000)
    assert KIND.contents(file).notes == (f"{name}, which stands beside it, is not JSON and is not read.",)


def flipped(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


@pytest.mark.full
def test_a_flipped_bit_anywhere_in_a_member_is_found(tmp_path: Path):
    state = {"a": torch.arange(6.0), "b": bits(torch.bfloat16, 5), "step": 3}
    whole = saved(state, tmp_path / "x.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        found = {entry.filename: entry.file_size for entry in archive.infolist()}
    for name in ("x/data.pkl", "x/data/0", "x/data/1", "x/byteorder", "x/version"):
        content = members(tmp_path / "x.pt")[name]
        start = whole.index(content)
        for at in range(found[name]):
            flipped(tmp_path / "x.pt", start + at)
            with pytest.raises(DamagedError, match=f"{name}: its bytes are not those that its checksum"):
                KIND.read(tmp_path / "x.pt")
            flipped(tmp_path / "x.pt", start + at)
    assert_same(KIND.read(tmp_path / "x.pt").tree, state)


@pytest.mark.full
def test_a_flipped_bit_anywhere_changes_nothing_unseen(tmp_path: Path):
    """In names, places, sizes, checksums, padding: it is found, or everything comes as it was."""
    state = {"a": torch.arange(6.0), "b": torch.arange(3)}
    file = saved(state, tmp_path / "x.pt")
    whole, found = file.read_bytes(), 0
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        file.write_bytes(data)
        try:
            assert_same(KIND.read(file).tree, state)
        except DamagedError:
            found += 1

    assert 200 < found < len(whole)


def test_what_was_read_outlives_the_file(tmp_path: Path):
    """A trainer that writes its newest model over the last one neither changes nor breaks what was read."""
    file = saved({"a": torch.arange(5000.0)}, tmp_path / "x.pt")
    carried = KIND.read(file)
    saved({"b": torch.ones(1)}, file)

    assert_same(carried.tree, {"a": torch.arange(5000.0)})


def test_the_contents_are_told_without_the_storages(tmp_path: Path):
    file = saved({"a": torch.full((1000,), 7.0)}, tmp_path / "x.pt")
    flipped(file, file.read_bytes().index(np.full(1000, 7, np.float32).tobytes()))

    assert [leaf.what for leaf in KIND.contents(file).leaves] == ["float32 1000"]
    with pytest.raises(DamagedError, match="x/data/0: its bytes are not those that its checksum"):
        KIND.read(file)


def test_a_file_without_checksums_is_read_and_that_is_said(tmp_path: Path):
    torch.serialization.set_crc32_options(False)
    try:
        file = saved({"a": torch.arange(6.0)}, tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(True)

    assert_same(KIND.read(file).tree, torch.load(file))
    assert KIND.read(file).losses == (
        "the file: It has no checksums, for torch was told to write none: a flipped bit in a tensor passes unnoticed.",
    )


class Harm:
    """Pickled by a call of `os.system`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch harmed",)


class WithState:
    """Whose state is a call of `os.system`."""

    def __init__(self) -> None:
        self.harm = Harm()


@pytest.mark.parametrize("new_format", [True, False], ids=["zip", "before 1.6"])
def test_nothing_in_a_pickle_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_format: bool):
    monkeypatch.chdir(tmp_path)
    state = {"w": torch.ones(2), "harm": Harm(), "deep": {"list": [Harm()]}, "state": WithState()}
    file = saved(state, tmp_path / "x.pt", _use_new_zipfile_serialization=new_format)
    carried = KIND.read(file)
    KIND.contents(file)
    convert(file, tmp_path / "out")

    assert [path.name for path in sorted(tmp_path.iterdir())] == ["out", "x.pt"]
    assert carried.losses[0] == "harm and 1 more: an object of posix.system, not read."
    assert raw(carried.tree["w"]) == raw(torch.ones(2))
    torch.load(file, weights_only=False)
    assert (tmp_path / "harmed").exists()


@pytest.mark.full
def test_reading_needs_no_torch(tmp_path: Path):
    file = saved({"w": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "x.pt")
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from perdure.interop import convert\n"
        f"print([leaf.what for leaf in convert({str(file)!r}, {str(tmp_path / 'out.safetensors')!r}).leaves])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (result.stdout, result.stderr) == ("['bfloat16 2']\n", "")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_big_endian_archives_are_turned(tmp_path: Path, dtype: torch.dtype):
    value = bits(dtype, 12)
    size = value.element_size() // (2 if dtype.is_complex else 1)

    def turn(found: Members) -> None:
        found["x/byteorder"] = b"big"
        found["x/data/0"] = np.frombuffer(found["x/data/0"], f"u{size}").byteswap().tobytes()

    file = rewritten(saved({"a": value, "b": value.reshape(3, 4).t()}, tmp_path / "x.pt"), turn)

    assert_same(KIND.read(file).tree, {"a": value, "b": value.reshape(3, 4).t()})
    rewritten(file, lambda found: found.update({"x/byteorder": b"middle"}))
    with pytest.raises(DamagedError, match="x/byteorder: 'middle', neither little nor big"):
        KIND.read(file)


def test_archives_from_before_the_byte_order_was_written(tmp_path: Path):
    file = rewritten(saved({"a": torch.arange(3.0)}, tmp_path / "x.pt"), lambda found: found.pop("x/byteorder"))

    assert_same(KIND.read(file).tree, {"a": torch.arange(3.0)})


def doubled(times: int, value: Any) -> Any:
    """A list that holds the one before twice, and so on: short in a pickle, which keeps what it has seen."""
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (tensor(size=(2, 3)), "its last element is number 4 of storage '0', which has 4 of float32"),
        (tensor(stride=(4, 1)), "its last element is number 5"),
        (tensor(offset=1), "its last element is number 4"),
        (tensor(offset=-1), "-1 where a size, a stride or an offset belongs"),
        (tensor(stride=(-2, 1)), "-2 where a size, a stride or an offset belongs"),
        (tensor(size=(2, 1 << 62)), f"{1 << 62} where a size"),
        (tensor(size=(2.0, 2)), "a float where a size"),
        (tensor(size=(True, 2)), "True where a size"),
        (tensor(size=[2, 2]), "a list where sizes or strides belong"),
        (tensor(stride=(1,)), "2 axes with 1 strides"),
        (tensor(size=(1,) * 65, stride=(0,) * 65), "65 axes with 65 strides, at most 64"),
        (tensor(size=(1 << 40, 1 << 40), stride=(0, 0)), "which no memory holds"),
        (tensor(size=(0, 1 << 60), stride=(0, 0)), "which no memory holds"),
        (tensor(size=(1 << 40,), stride=(0,)), "the file unfolds to more than 100 times its size"),
        (tensor(storage(key="7")), "storage '7' is not in the file"),
        (tensor(storage(key="../0")), "storage '../0' is not in the file"),
        (tensor(storage(key=0)), "a persistent id that names no storage as torch does"),
        (tensor(storage(count=5)), "storage '0' has 16 bytes, not 5 elements of 4"),
        (tensor(storage(count=3)), "storage '0' has 16 bytes, not 3 elements of 4"),
        (tensor(storage(torch.Tensor)), "torch.Tensor is no storage of PyTorch"),
        (tensor(storage(os.system)), "posix.system is no storage of PyTorch"),
        (tensor(Outside(("module", 1))), "a persistent id that names no storage"),
        (tensor(Outside(7)), "a persistent id that names no storage"),
        (tensor(Harm()), "a tensor without the storage, offset, size and stride"),
        (Outside("x"), "a persistent id that names no storage"),
        (Call(_utils._rebuild_tensor_v2), "a tensor without the storage"),
        (Call(_utils._rebuild_tensor_v3, storage(), 0, (1,), (1,)), "a tensor without the dtype"),
        (Call(_utils._rebuild_parameter, 1, True, {}), "a parameter without a tensor"),
        (doubled(40, [tensor()]), "the file unfolds to more than 100 times its size"),
    ],
)  # fmt: skip
def test_tensors_that_leave_their_storage_are_refused(tmp_path: Path, call: Any, message: str):
    file = made({"kept": tensor(), "bad": call}, tmp_path / "x")
    for look in (KIND.contents, KIND.read):
        with pytest.raises(DamagedError) as caught:
            look(file)
        assert str(caught.value).startswith(f"{file}: bad")
        assert message in str(caught.value)


@pytest.mark.full
def test_calls_inside_one_another_are_bounded(tmp_path: Path):
    deep = b"ctorch._utils\n_rebuild_parameter\n"
    data = b"\x80\x02}X\x01\x00\x00\x00a" + deep * 60_000 + b"N" + b"\x85R" * 60_000 + b"s."

    with pytest.raises(DamagedError, match="calls inside one another without end"):
        KIND.read(made(None, tmp_path / "x", data=data))


def test_containers_inside_one_another_are_bounded(tmp_path: Path):
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(DamagedError, match="more than 60 containers inside one another, or one that contains itself"):
        KIND.read(made(loop, tmp_path / "x"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x02(ios\nsystem\n.", "the opcode INST is not read"),
        (b"\x80\x02\x82\x01.", "the opcode EXT1 is not read"),
        (b"\x80\x02Pid\n.", "the opcode PERSID is not read"),
        (b"\x80\x06N.", "pickle protocol 6, not 2 to 5"),
        (b"\x80\x02N", "pickle exhausted before seeing STOP"),
        (b"", "pickle exhausted before seeing STOP"),
        (b"\x80\x02c" + b"a" * 100_000 + b"\nb\n.", "no newline found"),
        (b"\x80\x02c" + b"a" * 300 + b"\nb\n.", "where the name of a module or class belongs"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x3f.", "expected"),
    ],
)
def test_pickles_that_are_not_understood_are_refused(tmp_path: Path, data: bytes, message: str):
    file = made(None, tmp_path / "x", data=data)
    with pytest.raises(DamagedError) as caught:
        KIND.read(file)

    assert str(caught.value).startswith(f"{file}: archive/data.pkl: byte ")
    assert message in str(caught.value)
    assert str(caught.value).endswith("take an undamaged copy of the file as torch wrote it.")


def test_zips_of_other_kinds_are_told(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        archive.writestr("readme.txt", "no weights")
    with pytest.raises(NoCheckpointError, match=r"x\.pt: of no kind that is known here: .*a file of torch\.save"):
        convert(tmp_path / "x.pt", tmp_path / "out")
    np.savez(tmp_path / "x.npz", a=np.ones(2))
    with pytest.raises(NoCheckpointError, match="of no kind that is known here"):
        kind_of(tmp_path / "x.npz")
    script = made({}, tmp_path / "script.pt", others={"constants.pkl": b""})
    assert kind_of(script) is KIND
    with pytest.raises(UsageError, match="an archive of TorchScript: code, compiled together with its weights"):
        KIND.contents(script)


@pytest.mark.parametrize("cut", [100, 700, -1])
def test_cut_archives_are_known_and_refused(tmp_path: Path, cut: int):
    file = saved({"a": torch.ones(9)}, tmp_path / "x.pt")
    file.write_bytes(file.read_bytes()[:cut])

    assert kind_of(file) is KIND
    with pytest.raises(DamagedError, match="no whole zip archive: File is not a zip file"):
        KIND.contents(file)


def test_archives_that_were_packed_anew_are_read(tmp_path: Path):
    """With compression, in another order, under another name."""
    state = {"a": torch.arange(600.0), "b": torch.zeros(5000)}
    file = saved(state, tmp_path / "x.pt")
    found = members(file)
    with zipfile.ZipFile(tmp_path / "anything", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("x")
        for name in reversed(found):
            archive.writestr(name, found[name])

    assert kind_of(tmp_path / "anything") is KIND
    assert_same(KIND.read(tmp_path / "anything").tree, state)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_mutations_raise_typed_errors_or_nothing(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch):
    """Of an archive with right checksums, so that they are not what finds it."""
    monkeypatch.chdir(tmp_path)
    network, optimizer = trained()
    state = {"m": network.state_dict(), "o": optimizer.state_dict(), "s": {1}, "n": np.arange(3), "h": Harm()}
    whole = members(saved(state, tmp_path / "x.pt"))
    generator, refused = random.Random(seed), 0
    for _ in range(150):
        data = bytearray(whole["x/data.pkl"])
        for _ in range(generator.randrange(1, 4)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        rewritten(tmp_path / "x.pt", lambda found, data=data: found.update({"x/data.pkl": bytes(data)}))
        try:
            KIND.read(tmp_path / "x.pt")
        except PerdureError:
            refused += 1

    assert 20 < refused < 150
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


ARRAYS = [np.dtype(str(dtype).removeprefix("torch.")) if not hasattr(ml_dtypes, str(dtype).removeprefix("torch."))
          else np.dtype(getattr(ml_dtypes, str(dtype).removeprefix("torch."))) for dtype in DTYPES]  # fmt: skip


@pytest.mark.full
@settings(max_examples=40)
@given(data=st.data())
def test_what_is_written_torch_loads_as_weights(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    arrays: dict[Any, Any] = {}
    for at in range(data.draw(st.integers(0, 5))):
        dtype, shape = data.draw(st.sampled_from(ARRAYS)), data.draw(st.lists(st.integers(0, 3), max_size=3))
        seed = data.draw(st.integers(0, 99))
        random_bits = np.random.default_rng(seed).integers(0, 2 if dtype.kind == "b" else 256, 27 * 16, np.uint8)
        arrays[f"a.{at}"] = random_bits.view(dtype)[: int(np.prod(shape))].reshape(shape)
    tree = {"arrays": arrays, "more": [arrays, (1, 2.5, None)], 3: PLAIN}
    file = tmp_path_factory.mktemp("out") / "x.pt"
    prepared = KIND.prepare(Carried(tree), widen=False)
    prepared.write(file)

    assert prepared.losses == ()
    loaded = torch.load(file, weights_only=True)
    assert_same(tree, loaded)
    assert_same(KIND.read(file).tree, loaded)


def test_memory_orders_and_scalars_are_written_as_their_numbers(tmp_path: Path):
    tree = {"f": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "s": np.float32(0.5), "v": np.arange(8)[::-2]}
    prepared = KIND.prepare(Carried(tree, {"env_steps": 3, "updates": 1}), widen=False)
    prepared.write(tmp_path / "x.pt")

    loaded = torch.load(tmp_path / "x.pt", weights_only=True)
    assert {name: value.tolist() for name, value in loaded.items()} == {
        "f": [[0, 1, 2], [3, 4, 5]], "s": 0.5, "v": [7, 5, 3, 1],
    }  # fmt: skip
    assert prepared.losses == (
        "f: its order in memory is not kept; sums over it may round otherwise.",
        "s: a scalar of NumPy became a tensor without axes.",
        "metadata: env_steps, updates: not kept, for the file has no place for it.",
    )


def test_what_torch_does_not_have_is_named_and_nothing_is_written(tmp_path: Path):
    small = np.ones(2, ml_dtypes.float8_e3m4)
    state = {"a": np.array(["x"]), "b": np.ones(2, ml_dtypes.int4), "c": b"", "d": 1 << 3000, "e": small, "f": 1}
    state["g"] = np.array([1, 2], ">i4")
    perdure.save(tmp_path / "saved", state=state)
    with pytest.raises(UsageError) as caught:
        convert(tmp_path / "saved", tmp_path / "x.pt")

    assert str(caught.value) == (
        "a file of torch.save cannot hold 6 of the leaves; nothing was written. Leave them out with --map 'PATTERN=', "
        "where PATTERN fits the whole name, or choose another kind with --to.\n"
        "  state/a: <U1 1: PyTorch has no such dtype.\n"
        "  state/b: int4 2: PyTorch has no such dtype.\n"
        "  state/c: bytes without any, which torch.load(weights_only=True) does not take.\n"
        "  state/d: an integer of 3,001 bits, which torch.load(weights_only=True) does not take.\n"
        "  state/e: float8_e3m4 2: PyTorch has no such dtype.\n"
        "  state/g: >i4 2: PyTorch has no such dtype."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    done = convert(tmp_path / "saved", tmp_path / "x.pt", names=[r"state\.[abcdg]="], widen=True)
    assert "state.e: float8_e3m4 became float32, with the same values." in done.losses
    loaded = torch.load(tmp_path / "x.pt", weights_only=True)
    assert (loaded["state.e"].dtype, loaded["state.e"].tolist(), loaded["state.f"]) == (torch.float32, [1, 1], 1)


def test_from_torch_to_every_kind_and_back(tmp_path: Path):
    network, optimizer = trained()
    state = {"model": dict(network.state_dict()), "optimizer": optimizer.state_dict(), "step": 3}
    file = saved(state, tmp_path / "x.pt")
    convert(file, tmp_path / "run")
    convert(tmp_path / "run", tmp_path / "back.pth")
    rules = [r"^model\.(.*)=\1", r"^(optimizer|step).*="]
    weights = convert(file, tmp_path / "w.safetensors", names=rules)
    convert(tmp_path / "w.safetensors", tmp_path / "w.pt")

    assert_same(torch.load(tmp_path / "back.pth", weights_only=True), state)
    assert weights.target == "a safetensors file"
    again = Network()
    again.load_state_dict(torch.load(tmp_path / "w.pt", weights_only=True))
    assert_same(dict(again.state_dict()), dict(network.state_dict()))
    assert any("left out, as --map says." in loss for loss in weights.losses)


def test_a_place_that_is_taken_is_kept(tmp_path: Path):
    file = saved({"a": torch.ones(1)}, tmp_path / "x.pt")
    before: Callable[[], bytes] = file.read_bytes
    whole = before()
    with pytest.raises(UsageError, match="there is something already"):
        convert(file, file)
    assert before() == whole


def test_a_tensor_that_repeats_a_number_may_be_larger_than_its_file(tmp_path: Path):
    torch.save({"mask": torch.ones(1).expand(1000, 1000)}, tmp_path / "x")

    assert KIND.read(tmp_path / "x").tree["mask"].tobytes() == np.ones((1000, 1000), np.float32).tobytes()


def test_another_order_in_memory_is_said(tmp_path: Path):
    torch.save({"w": torch.ones(2, 3).t(), "row": torch.ones(1, 3).t(), "same": torch.ones(2, 3)}, tmp_path / "x")
    for to in ("torch", "safetensors"):
        done = convert(tmp_path / "x", tmp_path / to, to=to)

        assert done.losses == ("w: its order in memory is not kept; sums over it may round otherwise.",)


def test_text_that_is_none_is_not_written():
    with pytest.raises(UsageError) as caught:
        KIND.prepare(Carried({"a\ud800": np.ones(1), "b": "\ud800"}), widen=False)

    assert r'"a\ud800": a name that has no form in UTF-8.' in str(caught.value)
    assert r"b: '\ud800': a text that has no form in UTF-8." in str(caught.value)
