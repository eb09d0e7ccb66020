"""Files of `torch.save` (`.pt`, `.pth`, `.cleanrl_model`): read with the semantics of weights only, and written.

Reading needs no torch and runs nothing: `restricted_pickle.py` reads the pickle, and tensors are views of its bytes.
"""

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import UsageError
from perdure.format.dtypes import name_of
from perdure.interop.carried import (
    ORDER,
    Carried,
    Contents,
    Leaf,
    Prepared,
    described,
    described_array,
    is_utf8,
    refuse,
)
from perdure.interop.losses import Losses
from perdure.interop.side_files import side_file
from perdure.interop.torch_archives import TorchArchive, is_torch_file, open_torch
from perdure.interop.torch_dtypes import DTYPES
from perdure.interop.torch_tensors import Tensor, array_of
from perdure.interop.torch_trees import WHOLE, TorchTrees, with_tensors
from perdure.interop.windows import loaded, mapped
from perdure.store.streamed_files import create_streamed
from perdure.tree.leaves import Tree, leaves, memory_axes
from perdure.tree.paths import Path as TreePath
from perdure.tree.paths import format_path

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_MAX_INTEGER_BITS = 8 * 255 - 1
_WIDER = "float32"


class TorchFile:
    """A file of `torch.save`."""

    name = "torch"
    title = "a file of torch.save"

    def recognises(self, path: Path) -> bool:
        """A zip archive with a `data.pkl` in its one directory, or the magic number from before torch 1.6."""
        return path.is_file() and is_torch_file(mapped(path))

    def contents(self, path: Path) -> Contents:
        """What the pickle says; no storage is read."""
        archive, losses = open_torch(mapped(path), str(path)), Losses()
        found = described_leaves(TorchTrees(archive, losses).tree())
        metadata, notes = side_file(path)
        return Contents(f"torch.save ({archive.version})", found, metadata, (*_notes(archive), *losses.lines(), *notes))

    def read(self, path: Path) -> Carried:
        """The tree as it was saved; tensors are arrays."""
        archive, losses = open_torch(loaded(path), str(path)), Losses()
        tree = with_tensors(TorchTrees(archive, losses).tree(), lambda tensor: array_of(tensor, archive))
        metadata, notes = side_file(path)
        for note in (*_notes(archive), *notes):
            losses.add(WHOLE, note)
        return Carried(tree, metadata, losses)

    def prepare(self, carried: Carried, *, widen: bool) -> Prepared:
        """The tree as it is: `torch.load(weights_only=True)` takes what is written.

        Raises:
            UsageError: torch is not installed, or has no form for a leaf.
        """
        losses = Losses()
        tree = _widened(carried.tree, (), losses) if widen else carried.tree
        found = list(leaves(tree))
        named = [(format_path(path), leaf) for path, leaf in found]
        names = [_problem_of_name(path) for path, _ in found]
        refuse(self.title, [*filter(None, names), *(each for name, leaf in named for each in _problems(name, leaf))])
        for name, leaf in named:
            if isinstance(leaf, np.generic):
                losses.add(name, "a scalar of NumPy became a tensor without axes.")
            elif isinstance(leaf, np.ndarray) and memory_axes(leaf) != tuple(range(leaf.ndim)):
                losses.add(name, ORDER)
        if carried.metadata:
            losses.add("metadata", f"{', '.join(carried.metadata)}: not kept, for the file has no place for it.")
        _torch()
        return Prepared(lambda target: create_streamed(target, [_saved(tree)]), losses.lines())


def described_leaves(tree: Tree, path: TreePath = ()) -> list[Leaf]:
    """The leaves of a tree of `TorchTrees`, as lines of `perdure show`."""
    return [_described(format_path(at), leaf) for at, leaf in leaves(tree, path)]


def _described(name: str, leaf: Tree) -> Leaf:
    if isinstance(leaf, Tensor):
        return Leaf(name, described_array(leaf.dtype, leaf.shape), leaf.nbytes)
    return Leaf(name, described(leaf), getattr(leaf, "nbytes", 0))


def _notes(archive: TorchArchive) -> list[str]:
    return [f"It {note}." for note in archive.notes]


def _problem_of_name(path: TreePath) -> str:
    steps = [step for step in path if isinstance(step, str)]
    return "" if all(map(is_utf8, steps)) else f"{format_path(path)}: a name that has no form in UTF-8."


def _problems(name: str, leaf: Tree) -> Iterator[str]:
    if isinstance(leaf, np.ndarray | np.generic):
        if leaf.dtype.name not in DTYPES or not leaf.dtype.isnative:
            yield f"{name}: {described(leaf)}: PyTorch has no such dtype."
    elif type(leaf) not in (*_PLAIN, dict, list, tuple):
        yield f"{name}: a {type(leaf).__name__}, which torch.load(weights_only=True) does not take."
    elif type(leaf) is int and leaf.bit_length() > _MAX_INTEGER_BITS:
        yield f"{name}: an integer of {leaf.bit_length():,} bits, which torch.load(weights_only=True) does not take."
    elif isinstance(leaf, str) and not is_utf8(leaf):
        yield f"{name}: {described(leaf)}: a text that has no form in UTF-8."
    elif leaf == b"" and type(leaf) is bytes:
        yield f"{name}: bytes without any, which torch.load(weights_only=True) does not take."


def _widened(tree: Tree, path: tuple[Any, ...], losses: Losses) -> Any:
    """Small floats that torch does not have as float32, which holds all of them exactly."""
    match tree:
        case dict():
            return {key: _widened(child, (*path, key), losses) for key, child in tree.items()}
        case list() | tuple():
            return type(tree)(_widened(child, (*path, at), losses) for at, child in enumerate(tree))
        case np.ndarray() | np.generic() if _is_small_float(tree.dtype):
            losses.add(path, f"{name_of(tree.dtype)} became {_WIDER}, with the same values.")
            return tree.astype(_WIDER)
        case _:
            return tree


def _is_small_float(dtype: np.dtype) -> bool:
    return dtype.itemsize == 1 and dtype.name.startswith("float") and dtype.name not in DTYPES


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise UsageError("--to torch needs PyTorch, which is not installed: pip install 'perdure[torch]'.") from error
    return torch


def _saved(tree: dict[Any, Tree]) -> memoryview:
    """The bytes of the file."""
    file = io.BytesIO()
    _torch().save(_with_torch_tensors(tree), file)
    return file.getbuffer()


def _with_torch_tensors(tree: Tree) -> Any:
    match tree:
        case dict():
            return {key: _with_torch_tensors(child) for key, child in tree.items()}
        case list() | tuple():
            return type(tree)(_with_torch_tensors(child) for child in tree)
        case np.ndarray() | np.generic():
            return _torch_tensor(np.asarray(tree, order="C"))
        case _:
            return tree


def _torch_tensor(array: np.ndarray) -> Any:
    """The same bits. NumPy and torch share no bfloat16, so bytes go over and get their dtype there."""
    torch = _torch()
    dtype = getattr(torch, array.dtype.name)
    if not array.size:
        return torch.empty(array.shape, dtype=dtype)
    with warnings.catch_warnings():
        # The memory may be read-only; nothing writes to the tensor.
        warnings.filterwarnings("ignore", "The given (NumPy array|buffer) is not writ", UserWarning)
        data = torch.from_numpy(array.reshape(-1).view(np.uint8))
    return data.view(dtype).reshape(array.shape)


KIND = TorchFile()
