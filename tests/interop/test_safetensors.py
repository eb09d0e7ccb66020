"""safetensors files go in and out bit for bit; the stock library reads ours and we read its; what is cut is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.errors import DamagedError, UsageError
from perdure.interop import convert
from perdure.interop.carried import Carried
from perdure.interop.kinds.safetensors import KIND

DTYPES = [
    np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64,
    np.float16, np.float32, np.float64, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
]  # fmt: skip


def arrays_with(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Random bits of every dtype: NaNs with payloads, infinities, denormals."""
    found = {}
    for number in range(count):
        dtype = np.dtype(DTYPES[int(generator.integers(len(DTYPES)))])
        shape = tuple(int(length) for length in generator.integers(0, 4, int(generator.integers(0, 4))))
        raw = generator.integers(0, 2 if dtype == np.bool_ else 256, int(np.prod(shape)) * dtype.itemsize, np.uint8)
        found[f"block.{number}/w é"] = raw.view(dtype).reshape(shape)
    return found


def same(first: Any, second: Any) -> bool:
    a, b = np.asarray(first), np.asarray(second)
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), count=st.integers(0, 6))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, seed: int, count: int):
    arrays = arrays_with(np.random.default_rng(seed), count)
    plain: dict[Any, Any] = {"step": 3, "name": "é", "none": None, "on": True, "rate": 0.1, "deep": {}}
    file = tmp_path_factory.mktemp("out") / "x"
    KIND.prepare(Carried(arrays | plain, {"source": "here"}), widen=False).write(file)

    assert KIND.recognises(file)
    read = KIND.read(file)
    assert read.tree.keys() == (arrays | plain).keys()
    assert all(same(read.tree[name], value) for name, value in arrays.items())
    assert {name: read.tree[name] for name in plain} == plain
    assert (read.metadata, read.losses) == ({"writer": "perdure", "source": "here"}, ())
    sizes = {leaf.name: leaf.size_bytes for leaf in KIND.contents(file).leaves}
    assert sizes == {name: value.nbytes for name, value in arrays.items()} | dict.fromkeys(plain, 0)


def test_the_stock_library_reads_ours_and_we_read_its(tmp_path: Path):
    arrays = {"a.weight": np.arange(12, dtype=np.float32).reshape(3, 4), "a.bias": np.array([-0.0, np.nan])}
    KIND.prepare(Carried(dict(arrays)), widen=False).write(tmp_path / "ours")
    theirs = {"w": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)).copy("C"), "empty": np.zeros((0, 2))}
    safetensors.numpy.save_file(theirs, tmp_path / "theirs", {"note": "x"})

    read = safetensors.numpy.load_file(tmp_path / "ours")
    assert read.keys() == arrays.keys()
    assert all(same(read[name], arrays[name]) for name in arrays)
    back = KIND.read(tmp_path / "theirs")
    assert back.tree.keys() == theirs.keys()
    assert all(same(back.tree[name], theirs[name]) for name in theirs)
    assert back.metadata == {"note": "x"}


def test_a_component_of_a_checkpoint_goes_out_and_comes_in_again(tmp_path: Path):
    network = {"layers": [{"w": np.array([[1, 2], [3, 4]], np.float32)}, {"w": np.array([5], np.float32)}], "steps": 7}
    perdure.save(tmp_path / "saved", network=network, other={"x": np.zeros(3)})
    out = convert(tmp_path / "saved", tmp_path / "n.safetensors", component="network")
    again = convert(tmp_path / "n.safetensors", tmp_path / "again", names=[r"^layers\.(\d)\.w$=linear\1.weight"])

    assert [leaf.name for leaf in out.leaves] == ["layers.0.w", "layers.1.w", "steps"]
    assert out.target == "a safetensors file"
    assert "other: left out, for only network was asked for." in out.losses
    assert "steps: a plain value, kept in the file's metadata under perdure.plain." in out.losses
    assert again.origins == ("layers.0.w", "layers.1.w", "steps")
    content = perdure.read(tmp_path / "again")["content"]
    assert content["steps"] == 7
    assert same(content["linear0.weight"], network["layers"][0]["w"])
    assert same(content["linear1.weight"], network["layers"][1]["w"])


def test_losses_of_components_that_were_not_asked_for_are_not_told(tmp_path: Path):
    """Names that begin alike are kept apart, and what two components have in common is told of the one."""
    shared = np.zeros(2, np.float32)
    perdure.save(tmp_path / "saved", net={"a": shared, "b": shared}, net2={"a": shared, "k": [shared, shared]})
    whole = convert(tmp_path / "saved", tmp_path / "whole.safetensors").losses
    first = convert(tmp_path / "saved", tmp_path / "first.safetensors", component="net").losses
    second = convert(tmp_path / "saved", tmp_path / "second.safetensors", component="net2").losses

    copies = "the same object as net/a; it became a copy."
    assert f"net/b and 3 more: {copies}" in whole
    assert f"net/b: {copies}" in first
    assert f"net2/a and 2 more: {copies}" in second
    assert [loss for loss in first if loss.startswith("net2")] == ["net2: left out, for only net was asked for."]
    assert [loss for loss in second if loss.startswith("net:")] == ["net: left out, for only net2 was asked for."]
    assert not any(loss.startswith("net/") for loss in second)


def test_a_dry_run_writes_nothing_and_says_the_same(tmp_path: Path):
    perdure.save(tmp_path / "saved", network={"w": np.zeros(2, np.float32)})
    rules = [r"network\.=policy."]
    dry = convert(tmp_path / "saved", tmp_path / "a.safetensors", names=rules, dry_run=True)
    assert not (tmp_path / "a.safetensors").exists()

    assert dry == convert(tmp_path / "saved", tmp_path / "a.safetensors", names=rules)
    assert [leaf.name for leaf in dry.leaves] == ["policy.w"]


def test_what_the_format_cannot_hold_is_named_and_nothing_is_written(tmp_path: Path):
    state = {"a": np.array([1j]), "b": b"bytes", "c": 1j, "d": np.ones(1, np.float32), "e": np.array(["text"])}
    perdure.save(tmp_path / "saved", state=state)
    with pytest.raises(UsageError) as caught:
        convert(tmp_path / "saved", tmp_path / "x.safetensors")

    assert str(caught.value) == (
        "a safetensors file cannot hold 4 of the leaves; nothing was written. Leave them out with --map 'PATTERN=', "
        "where PATTERN fits the whole name, or choose another kind with --to.\n"
        "  state.a: complex128 1: the format has no code for this dtype.\n"
        "  state.b: a bytes, which neither the format nor JSON has.\n"
        "  state.c: a complex, which neither the format nor JSON has.\n"
        "  state.e: <U4 1: the format has no code for this dtype."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    left = convert(tmp_path / "saved", tmp_path / "x.safetensors", names=[r"state\.[abce]="])
    assert [leaf.name for leaf in left.leaves] == ["state.d"]
    assert "state.a and 3 more: left out, as --map says." in left.losses


def header(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """A file with the same arrays under a changed header."""

    def changed(data: bytes) -> bytes:
        length = int.from_bytes(data[:8], "little")
        document = json.loads(data[8 : 8 + length])
        text = json.dumps(change(document) or document).encode()
        return len(text).to_bytes(8, "little") + text + data[8 + length :]

    return changed


def entry(**fields: Any) -> Callable[[bytes], bytes]:
    return header(lambda document: document["b"].update(fields))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:7], "a header of"),
        (lambda data: data[:40], "a header of"),
        (lambda data: data[:-1], "its tensors end at byte 28 of the data, the file at byte 27"),
        (lambda data: data + b"x", "its tensors end at byte 28 of the data, the file at byte 29"),
        (lambda data: (1 << 63).to_bytes(8, "little") + data[8:], "a header of 9,223,372,036,854,775,808 bytes"),
        (lambda data: data[:9] + b"\xff" + data[10:], "UnicodeDecodeError"),
        (entry(data_offsets=[12, 28]), "'b' is float32 3 in 16 bytes"),
        (entry(data_offsets=[12, 24]), "'b' begins at byte 12 of the data, not 16: it overlaps what stands before it"),
        (entry(data_offsets=[20, 32]), "'b' begins at byte 20 of the data, not 16: it leaves a hole before it"),
        (entry(shape=[2]), "'b' is float32 2 in 12 bytes"),
        (entry(shape=[-3]), "'b' has the shape [-3]"),
        (entry(shape=[3.0]), "'b' has the shape [3.0]"),
        (entry(shape=[True, 3]), "'b' has the shape [True, 3]"),
        (entry(shape=[1 << 61, 1 << 61]), "'b' is float32"),
        (entry(dtype="F128"), "'b' has the dtype 'F128'"),
        (entry(more=1), "'b' has ['data_offsets', 'dtype', 'more', 'shape']"),
        (header(lambda document: document.pop("b") and None), "its tensors end at byte 16 of the data"),
        (header(lambda document: [1]), "not one of safetensors"),
        (header(lambda document: {"__metadata__": {"a": 1}}), "__metadata__ is no mapping of texts"),
    ],
)
def test_damage_is_refused_with_its_place(tmp_path: Path, damage: Callable[[bytes], bytes], message: str):
    file = tmp_path / "x"
    safetensors.numpy.save_file({"a": np.zeros((2, 2), np.float32), "b": np.ones(3, np.float32)}, file)
    file.write_bytes(damage(file.read_bytes()))
    for look in (KIND.contents, KIND.read):
        with pytest.raises(DamagedError) as caught:
            look(file)
        assert str(caught.value).startswith(f"{file}: ")
        assert message in str(caught.value)


def test_a_name_that_stands_there_twice_is_refused(tmp_path: Path):
    text = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    (tmp_path / "x").write_bytes(len(text).to_bytes(8, "little") + text + b"x")
    with pytest.raises(DamagedError, match="a name stands there twice"):
        KIND.read(tmp_path / "x")


@pytest.mark.parametrize(
    "plain", ['{"w": 3}', '{"a": [[1]]}', '{"a": {"b": 1}}', '{"a": ' + "[" * 900 + "]" * 900 + "}"]
)
def test_metadata_that_only_looks_like_plain_values_takes_no_arrays_place(tmp_path: Path, plain: str):
    file = tmp_path / "x"
    safetensors.numpy.save_file({"w": np.ones(2, np.float32)}, file, {"perdure.plain": plain})
    carried = KIND.read(file)

    assert carried.tree.keys() == {"w"}
    assert same(carried.tree["w"], np.ones(2, np.float32))
    assert carried.losses == ("perdure.plain: no plain values as perdure writes them; left out.",)
    assert [leaf.what for leaf in KIND.contents(file).leaves] == ["float32 2"]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            '{"w": {"dtype": "F32", "shape": [1152921504606846976, 9, 0], "data_offsets": [0, 0]}}',
            "which no memory holds",
        ),
        (r'{"\ud800": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}', "surrogates not allowed"),
        (r'{"__metadata__": {"a": "\ud800"}}', "surrogates not allowed"),
    ],
)
def test_what_only_a_careless_reader_takes_is_refused(tmp_path: Path, header: str, message: str):
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header.encode())
    for look in (KIND.contents, KIND.read):
        with pytest.raises(DamagedError, match=message):
            look(tmp_path / "x")


def test_a_file_that_is_cut_between_its_header_and_its_arrays_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    safetensors.numpy.save_file({"w": np.ones(2, np.float32)}, tmp_path / "x")
    whole = np.fromfile
    monkeypatch.setattr(np, "fromfile", lambda *words, **more: whole(*words, **more)[:-4])
    with pytest.raises(DamagedError, match="it was written anew while it was read"):
        KIND.read(tmp_path / "x")
