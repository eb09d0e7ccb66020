"""Files of `torch.save` for tests: compared with what torch loads, made by hand, and changed member by member."""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import _utils

Members = dict[str, bytes]


def raw(value: Any) -> tuple[str, tuple[int, ...], bytes] | None:
    """Dtype, shape and bytes of an array or a tensor."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        return str(plain.dtype).removeprefix("torch."), tuple(plain.shape), data
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.name, value.shape, value.tobytes()
    return None


def assert_same(found: Any, expected: Any, path: str = "") -> int:
    """Containers, plain values and the bits of every array are those that torch loads; returns how many arrays."""
    if isinstance(expected, dict):
        assert list(found) == list(expected), path
        return sum(assert_same(found[key], expected[key], f"{path}/{key}") for key in expected)
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected), path
        return sum(assert_same(a, b, f"{path}/{at}") for at, (a, b) in enumerate(zip(found, expected, strict=True)))
    if (bits := raw(expected)) is not None:
        assert raw(found) == bits, path
        return 1
    assert (type(found), found) == (type(expected), expected), path
    return 0


def saved(value: Any, path: Path, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path


def members(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: Path, change: Callable[[Members], Any], method: int = zipfile.ZIP_STORED) -> Path:
    """The same archive with other members, and with right checksums."""
    found = members(path)
    change(found)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in found.items():
            archive.writestr(name, content)
    return path


class Call:
    """Pickled as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.parts = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


class Outside:
    """Pickled as a persistent id."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.value if isinstance(obj, Outside) else None


def pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, 2).dump(value)
    return file.getvalue()


def storage(kind: Any = torch.FloatStorage, key: Any = "0", count: Any = 4) -> Outside:
    return Outside(("storage", kind, key, "cpu", count))


def tensor(
    place: Any = None, offset: Any = 0, size: Any = (2, 2), stride: Any = (2, 1), function: Any = None, *rest: Any
) -> Call:
    """A call that gives a tensor of the storage `0`, four float32."""
    function = function or _utils._rebuild_tensor_v2
    more = rest or (False, OrderedDict())
    return Call(function, storage() if place is None else place, offset, size, stride, *more)


def made(
    value: Any, path: Path, storages: Members | None = None, data: bytes | None = None, others: Members | None = None
) -> Path:
    """A file as torch writes it, with a pickle of anything."""
    content = {"data.pkl": pickled(value) if data is None else data, "byteorder": b"little", "version": b"3\n"} | (
        others or {}
    )
    blobs = {"0": np.arange(4, dtype=np.float32).tobytes()} if storages is None else storages
    with zipfile.ZipFile(path, "w") as archive:
        for name, blob in (content | {f"data/{key}": blob for key, blob in blobs.items()}).items():
            archive.writestr(f"archive/{name}", blob)
    return path
