"""Sparse tensors as their parts: indices, values, shape."""

from typing import Any

import torch
from perdure.adapters.torch_dtypes import array_of, tensor_from
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree

SPARSE = frozenset({torch.sparse_coo, torch.sparse_csr, torch.sparse_csc})
"""Layouts that are taken apart; other sparse ones are refused."""

_PARTS = {
    "coo": ("indices", "values"),
    "csr": ("crow_indices", "col_indices", "values"),
    "csc": ("ccol_indices", "row_indices", "values"),
}


def sparse_tree(tensor: torch.Tensor) -> Tree:
    """Layout, shape, indices and values; of an uncoalesced one as they are, for their sum depends on their order."""
    layout = _name(tensor)
    prefix = "_" if layout == "coo" else ""
    parts = {name: array_of(getattr(tensor.detach(), prefix + name)()) for name in _PARTS[layout]}
    coalesced = tensor.is_coalesced() if layout == "coo" else None
    return {"layout": layout, "shape": tuple(tensor.shape), "coalesced": coalesced, **parts}


def check_sparse(obj: torch.Tensor, tree: Tree, walk: Walk) -> list[Finding]:
    """Layout, shape and dtype must be the same; the number of values may differ."""
    found = f"{str(obj.dtype).removeprefix('torch.')} {_name(obj)} tensor {tuple(obj.shape)}"
    if isinstance(tree, dict) and tree.keys() >= {"layout", "shape", "values"} and isinstance(tree["values"], Array):
        saved = f"{tree['values'].value.dtype} {tree['layout']} tensor {tree['shape']}"
    else:
        saved = summary(tree)
    return [] if saved == found else [walk.finding(saved, found, "Build it as the run did.")]


def sparse_from(tree: dict[str, Any]) -> torch.Tensor:
    """A new sparse tensor on the CPU."""
    *indices, values = (tensor_from(tree[name].value) for name in _PARTS[tree["layout"]])
    if tree["layout"] == "coo":
        coalesced = tree["coalesced"]
        return torch.sparse_coo_tensor(indices[0], values, tree["shape"], is_coalesced=coalesced, check_invariants=True)
    make = torch.sparse_csr_tensor if tree["layout"] == "csr" else torch.sparse_csc_tensor
    return make(indices[0], indices[1], values, tree["shape"], check_invariants=True)


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.layout).removeprefix("torch.").removeprefix("sparse_")
