"""Whatever two kinds can both hold survives the way from one to the other and back, bit for bit: every pair of them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.interop import convert
from perdure.interop.names import flat
from perdure.interop.recognition import kind_of

pytestmark = pytest.mark.full

BOTH = {"float32", "float64", "float16", "bfloat16", "int8", "int64", "uint16", "bool", "complex64"}
HELD = {
    "safetensors": BOTH,
    "storage-ckpt": {"float32"},
    "torch": {*BOTH, "complex128"},
    "orbax": {*BOTH, "complex128"},
}
"""Dtypes that each kind can hold, of those that are tried."""


def arrays(dtypes: set[str]) -> dict[str, Any]:
    """Random bits of each dtype under nested names: NaNs with payloads, infinities, negative zeros."""
    import ml_dtypes

    generator = np.random.default_rng(7)
    layers: dict[str, Any] = {}
    for name in sorted(dtypes):
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        raw = generator.integers(0, 2 if name == "bool" else 256, 12 * dtype.itemsize, np.uint8).view(dtype)
        layers[name] = {"weight": raw.reshape(3, 4), "bias": raw[:3]}
    return layers


def bits(tree: dict[Any, Any], *, shapes: bool) -> dict[str, Any]:
    """Every array by its dotted name."""
    named = {name: value for name, value in flat(tree).items() if isinstance(value, np.ndarray)}
    return {
        name: (value.dtype.name, value.shape if shapes else value.size, np.ascontiguousarray(value).tobytes())
        for name, value in named.items()
    }


def without_parts(named: dict[str, Any]) -> dict[str, Any]:
    """The names without the part of storage-ckpt's tree; flat files have it in each name."""
    return {re.sub(r"^(params\.)+", "", name): value for name, value in named.items()}


@pytest.mark.parametrize("first", HELD)
@pytest.mark.parametrize("second", HELD)
def test_there_and_back(tmp_path: Path, first: str, second: str):
    for module in ("torch", "orbax.checkpoint"):
        pytest.importorskip(module)
    held = arrays(HELD[first] & HELD[second])
    perdure.save(tmp_path / "start", net=held)
    convert(tmp_path / "start", tmp_path / "a", to=first, component="net")
    convert(tmp_path / "a", tmp_path / "b", to=second)
    convert(tmp_path / "b", tmp_path / "c", to=first)
    convert(tmp_path / "c", tmp_path / "end", to="perdure")

    end = perdure.read(tmp_path / "end")
    if "storage-ckpt" in (first, second):  # which puts parameters into a part of their own, and has no shapes
        read = kind_of(tmp_path / "c").read(tmp_path / "c").tree
        assert without_parts(bits(read, shapes=False)) == bits(held, shapes=False)
    else:
        assert bits({"net": end.get("content", end)}, shapes=True) == bits({"net": held}, shapes=True)


@pytest.mark.parametrize("kind", HELD)
def test_twin_of_one_bit_is_no_equal(tmp_path: Path, kind: str):
    pytest.importorskip("torch" if kind == "torch" else "orbax.checkpoint" if kind == "orbax" else "numpy")
    held = arrays({"float32"})
    perdure.save(tmp_path / "start", net=held)
    convert(tmp_path / "start", tmp_path / "a", to=kind, component="net")
    held["float32"]["weight"].view(np.uint32)[2, 3] ^= 1

    read = kind_of(tmp_path / "a").read(tmp_path / "a").tree
    assert without_parts(bits(read, shapes=False)) != bits(held, shapes=False)


def test_only_what_needs_its_object_again_is_called_plain_values(tmp_path: Path):
    torch = pytest.importorskip("torch")
    perdure.save(tmp_path / "x", net=torch.nn.Linear(1, 1), count=3, table={"a": np.ones(1)}, array=np.ones(2))
    losses = convert(tmp_path / "x", tmp_path / "y", dry_run=True).losses

    assert [loss.partition(",")[0] for loss in losses] == ["net: captured by torch-module"]
