"""Directories of `torch.distributed.checkpoint`: `.metadata` and files of items, each as `torch.save` writes it.

The pickle in `.metadata`, which PyTorch itself unpickles without any restriction, is read without being run.
"""

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import DamagedError
from perdure.interop.carried import Carried, Contents, Leaf, described_array
from perdure.interop.kinds.torch import described_leaves
from perdure.interop.losses import Losses
from perdure.interop.torch_archives import TorchArchive, open_torch
from perdure.interop.torch_dtypes import dtype_named
from perdure.interop.torch_shards import METADATA, MODULE, Chunk, Item, Stored, read_items
from perdure.interop.torch_tensors import Tensor, array_of
from perdure.interop.torch_trees import LEFT_OUT, TorchTrees, with_tensors
from perdure.interop.windows import loaded, mapped
from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path

_SUFFIX = "*.distcp"
_LOOKED_AT = 256


class TorchDistributedDirectory:
    """A checkpoint of `torch.distributed.checkpoint`."""

    name = "torch-distributed"
    title = "a directory of torch.distributed.checkpoint"

    def recognises(self, path: Path) -> bool:
        """A directory with `.metadata` that names PyTorch's class, or with the files that are written before it."""
        if not path.is_dir():
            return False
        file = path / METADATA
        if not file.is_file():
            return next(path.glob(_SUFFIX), None) is not None
        with file.open("rb") as opened:
            return MODULE.encode() in opened.read(_LOOKED_AT)

    def contents(self, path: Path) -> Contents:
        """What `.metadata` says; values that are no tensors are read, tensors are not."""
        items, version = read_items(path)
        reader = _Reader(path, mapped)
        found: list[Leaf] = []
        for item in items.values():
            value = reader.value(item, item.stored) if item.stored is not None else None
            if item.stored is not None:
                found += [] if value is LEFT_OUT else described_leaves(value, item.path)
            elif (dtype := reader.dtype(item)) is not None:
                text = described_array(dtype, item.shape)
                found.append(Leaf(format_path(item.path), text, prod(item.shape) * dtype.itemsize))
        return Contents(f"torch.distributed.checkpoint {version}", found, {}, reader.losses.lines())

    def read(self, path: Path) -> Carried:
        """The dict that was saved; tensors are whole arrays."""
        items, _ = read_items(path)
        reader = _Reader(path, loaded)
        values = [(item.path, reader.read(item)) for item in items.values()]
        tree = _nested([(at, value) for at, value in values if value is not LEFT_OUT], path)
        return Carried(tree, {}, reader.losses)


class _Reader:
    """One reading of a directory. Each file is opened once, by `bytes_of`."""

    def __init__(self, directory: Path, bytes_of: Callable[[Path], memoryview]) -> None:
        self._bytes_of = bytes_of
        self.losses = Losses()
        self._directory = directory
        self._files: dict[str, memoryview] = {}

    def dtype(self, item: Item) -> np.dtype | None:
        """Of a tensor; None, and a loss, if NumPy does not have it."""
        dtype = None if item.dtype is None else dtype_named(item.dtype)
        if dtype is None:
            self.losses.add(item.path, f"a tensor of {item.dtype}, which NumPy does not have, not read.")
        return dtype

    def read(self, item: Item) -> Any:
        """A value or a whole array, or `LEFT_OUT`."""
        if item.stored is not None:
            return self.value(item, item.stored, with_arrays=True)
        dtype = self.dtype(item)
        return LEFT_OUT if dtype is None else self._whole(item, dtype)

    def value(self, item: Item, stored: Stored, *, with_arrays: bool = False) -> Any:
        """What was saved as a value, or `LEFT_OUT`; tensors in it stay as the pickle describes them, if asked for."""
        archive = self._opened(item, stored)
        tree = TorchTrees(archive, self.losses).plain(archive.content, item.path)
        return with_tensors(tree, lambda tensor: array_of(tensor, archive)) if with_arrays else tree

    def _whole(self, item: Item, dtype: np.dtype) -> Any:
        """One array of all chunks. Its memory is allocated only when every chunk is known to be there."""
        parts = [(chunk, self._part(item, dtype, chunk)) for chunk in item.chunks]
        arrays = [(chunk, part()) for chunk, part in parts if part is not None]
        if len(arrays) != len(parts):
            return LEFT_OUT
        if len(arrays) == 1 and arrays[0][0].sizes == item.shape:
            return arrays[0][1]
        whole = np.empty(item.shape, dtype)
        for chunk, array in arrays:
            ends = [at + size for at, size in zip(chunk.offsets, chunk.sizes, strict=True)]
            whole[tuple(map(slice, chunk.offsets, ends))] = array
        return whole

    def _part(self, item: Item, dtype: np.dtype, chunk: Chunk) -> Callable[[], np.ndarray] | None:
        """What gives a chunk's array, which is what `.metadata` says it is; None if it is not read."""
        archive = self._opened(item, chunk.stored)
        tensor = TorchTrees(archive, self.losses).plain(archive.content, item.path)
        if tensor is LEFT_OUT:
            return None
        if not isinstance(tensor, Tensor) or (tensor.dtype, tensor.shape) != (dtype, chunk.sizes):
            found = described_array(tensor.dtype, tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise DamagedError(
                f"{archive.place}: {found}, where {METADATA} says {described_array(dtype, chunk.sizes)}. "
                "Take an undamaged copy of the directory."
            )
        return lambda: array_of(tensor, archive)

    def _opened(self, item: Item, stored: Stored) -> TorchArchive:
        if stored.file not in self._files:
            self._files[stored.file] = self._bytes_of(self._directory / stored.file)
        place = f"{self._directory / stored.file}: {format_path(item.path)}"
        return open_torch(self._files[stored.file][stored.offset : stored.offset + stored.length], place)


class _Node(dict[str | int, Any]):
    """A container that is being put together; no value that was saved has this type."""


def _nested(found: list[tuple[tuple[str | int, ...], Tree]], directory: Path) -> dict[Any, Tree]:
    """The dict that paths and values were made of. Positions are integers there, and keys are text."""
    root = _Node()
    for path, value in found:
        node = root
        for step in path[:-1]:
            node = node.setdefault(step, _Node())
            if not isinstance(node, _Node):
                break
        if not isinstance(node, _Node) or path[-1] in node:
            raise DamagedError(
                f"{directory / METADATA}: {format_path(path)}: stands there twice. Take an undamaged copy."
            )
        node[path[-1]] = value
    return {key: _finished(child) for key, child in root.items()}


def _finished(node: Any) -> Any:
    if not isinstance(node, _Node):
        return node
    children = {key: _finished(child) for key, child in node.items()}
    is_list = set(children) == set(range(len(children)))
    return [children[at] for at in range(len(children))] if is_list else children


KIND = TorchDistributedDirectory()
