"""Storages of TorchRL as rows by position: their columns, and how an empty one is laid out for them."""

from importlib import import_module
from typing import Any

import numpy as np
import torch

from perdure.adapters.torch_dtypes import array_of, torch_dtype
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path
from perdure.tree.rows import Rows

tensordict = import_module("tensordict")
"""By its name: those who check types here need not have it."""

ONLY = "data"
"""The column of a storage that holds one tensor."""

_CLASSES = frozenset({"LazyMemmapStorage", "LazyTensorStorage", "TensorStorage"})


def knows(storage: Any) -> bool:
    """Whether it is one of TorchRL's own storages of tensors, and no subclass."""
    kind = type(storage)
    return kind.__module__.startswith("torchrl.data.") and kind.__qualname__ in _CLASSES


def rows_of(storage: Any, cut: int, walk: Walk) -> Rows | None:
    """What the storage holds, borrowed; None if nothing was ever put in.

    Raises:
        CaptureError: not a `TensorDict` of plain tensors, nor a tensor, in the host's memory.
    """
    if not storage.initialized:
        return None
    columns = {name: _column(tensor, name, walk) for name, tensor in _tensors(storage._storage, walk).items()}
    inner = storage._storage.shape[1 : storage.ndim].numel()
    return Rows(0, -(-storage._len // inner), columns, cut=cut)


def layout_of(storage: Any) -> Tree:
    """Keys in their order, and batch sizes, for those of nested `TensorDict`s may be longer; None without any keys."""
    return _layout(storage._storage) if isinstance(storage._storage, tensordict.TensorDictBase) else None


def _layout(data: Any) -> Tree:
    parts = {key: _layout(part) if isinstance(part, tensordict.TensorDictBase) else None for key, part in data.items()}
    return {"batch_size": list(data.batch_size), "parts": parts}


def lay_out(storage: Any, layout: Tree, rows: Rows) -> None:
    """Makes the memory of an empty storage as its first element would have done."""
    parts = {name: torch.zeros(c.shape[1:], dtype=torch_dtype(c.dtype)) for name, c in rows.columns.items()}
    storage._init(parts[ONLY] if layout is None else _element(layout, parts, ()))


def _element(layout: Tree, columns: dict[str, torch.Tensor], path: tuple[str, ...]) -> Any:
    parts = {
        key: columns["/".join((*path, key))] if part is None else _element(part, columns, (*path, key))
        for key, part in layout["parts"].items()
    }
    return tensordict.TensorDict(parts, batch_size=layout["batch_size"][1:])


def forget(storage: Any) -> None:
    """Makes it as empty as a lazy storage is built."""
    storage._storage, storage.initialized, storage._len = None, False, 0
    vars(storage).pop("_total_shape_value", None)
    vars(storage)["_storage_keys"] = None


def fill(storage: Any, saved: Rows, own: Rows) -> None:
    """Puts the saved rows into the storage's own memory, unless they were read into it."""
    for name, column in own.columns.items():
        if _address(column) != _address(saved.columns[name]):
            column[: saved.stop] = saved.columns[name][: saved.stop]


def _tensors(data: Any, walk: Walk) -> dict[str, torch.Tensor]:
    if isinstance(data, torch.Tensor):
        return {ONLY: data}
    if type(data) is not tensordict.TensorDict:
        raise refused(walk, f"a storage of a {type(data).__qualname__}", "Keep a TensorDict, or a tensor")
    items = list(data.items(include_nested=True, leaves_only=True))
    for key, leaf in items:
        if not isinstance(leaf, torch.Tensor):
            raise refused(walk, f"{key!r} of a {type(leaf).__qualname__}", "Keep plain tensors")
    names = ["/".join(_path_of(key)) for key, _ in items]
    if len(set(names)) < len(names):
        raise refused(walk, "keys that only differ in their slashes", "Rename them")
    return dict(zip(names, (leaf for _, leaf in items), strict=True))


def _column(tensor: torch.Tensor, name: str, walk: Walk) -> np.ndarray:
    plain = tensor.detach().as_subclass(torch.Tensor)
    column = array_of(plain).value if plain.layout is torch.strided and plain.is_contiguous() else None
    if column is None or _address(column) != plain.data_ptr():
        raise refused(walk, f"{name!r}, which is no block of numbers in the host's memory", "Keep it there")
    return column


def refused(walk: Walk, what: str, way_out: str) -> CaptureError:
    """The error for a buffer that would not come back as it was."""
    otherwise = "or hand an adapter for the buffer to Run(adapters=[(Class, adapter)]), or keep a perdure.Ring"
    return CaptureError(f"{format_path(walk.path)}: perdure does not save {what}. {way_out}; {otherwise}.")


def _address(column: np.ndarray) -> int:
    return column.__array_interface__["data"][0]


def _path_of(key: Any) -> list[str]:
    return [key] if isinstance(key, str) else list(key)
