"""Files of storage-ckpt as a kind of conversions: flat float32 under names, Adam's moments beside, scalars.

The tree has up to five parts: `params`, `state`, `adam_m`, `adam_v` and `scalars`, each by name. Modules without a
prefix repeat names: the second `0.weight` is called `0.weight #2`, which no name of the format can be, for it has a
space. Such a tree is written as it was read; of any other tree the arrays become parameters under their dotted names,
and numbers become scalars.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import CommitError
from perdure.interop.carried import Carried, Contents, Leaf, Prepared, described, refuse
from perdure.interop.losses import Losses
from perdure.interop.names import flat, note_nesting
from perdure.interop.storage_ckpt import Section, StorageCheckpoint, StorageNameError, describe, is_storage_ckpt, read
from perdure.interop.storage_ckpt.sections import PARAMETER, STATE, SectionKind
from perdure.interop.storage_ckpt.writer import check_names, write
from perdure.store.filesystem import FileSystem
from perdure.tree.leaves import Tree

PARTS = ("params", "state", "adam_m", "adam_v", "scalars")
_WIDENED = frozenset({"float16", "bfloat16"})
_EXACT_INTEGERS = 1 << 53


class StorageCkpt:
    """A file of storage-ckpt."""

    name = "storage-ckpt"
    title = "a file of storage-ckpt"

    def recognises(self, path: Path) -> bool:
        """Its first line."""
        return is_storage_ckpt(path)

    def contents(self, path: Path) -> Contents:
        """What its headers say, and whose file it looks like."""
        checkpoint = read(path)
        told = describe(checkpoint)
        found = [_leaf_of(section) for section in checkpoint.sections]
        found += [Leaf(name, repr(value)) for name, value in checkpoint.scalars.items()]
        agents = [line for line in told.lines if line.startswith("looks like ")]
        notes = [*agents, *checkpoint.notes, "The format has no shapes: every array is flat."]
        return Contents(f"storage-ckpt v{checkpoint.version}", found, {"modules": ", ".join(told.modules)}, notes)

    def read(self, path: Path) -> Carried:
        """The parts named above, in memory: whoever trains may write the file anew meanwhile."""
        checkpoint = read(path).loaded()
        losses = Losses()
        losses.add("every array", "the format has no shapes, so it is flat.")
        for note in checkpoint.notes:
            losses.add(path.name, note)
        tree = _tree(checkpoint)
        if [section.kind for section in checkpoint.sections] != sorted(each.kind for each in checkpoint.sections):
            losses.add("order", "parameters and state of several modules stand in turns; they were put apart.")
        return Carried(tree, {"version": checkpoint.version}, losses)

    def prepare(self, carried: Carried, *, widen: bool) -> Prepared:
        """Sections of a tree that was read from this kind, or of any other.

        Raises:
            UsageError: an array is not float32 (nor, with `widen`, a narrower float), or a name cannot stand there.
        """
        parts = carried.tree if _is_own(carried.tree) else _foreign_parts(carried.tree)
        refuse(self.title, _problems(parts, widen=widen))
        losses = _losses(parts, carried)
        if parts is not carried.tree:
            note_nesting(carried.tree, losses)
        sections = list(_sections(parts))
        scalars = {str(name): float(value) for name, value in parts.get("scalars", {}).items()}
        return Prepared(lambda target: _write(target, sections, scalars), losses.lines())


def _leaf_of(section: Section) -> Leaf:
    moments = ", with Adam's moments" if section.has_moments else ""
    what = f"{'parameter' if section.kind == 'P' else 'state'}, float32 {section.size:,}{moments}"
    return Leaf(section.name, what, sum(array.nbytes for array in section.arrays()))


def _tree(checkpoint: StorageCheckpoint) -> dict[Any, Tree]:
    """By part and name, in the order of the file."""
    parts: dict[str, dict[str, Any]] = {"params": {}, "state": {}, "adam_m": {}, "adam_v": {}}
    counts: Counter[tuple[str, str]] = Counter()
    for section in checkpoint.sections:
        counts[section.kind, section.name] += 1
        count = counts[section.kind, section.name]
        name = section.name if count == 1 else f"{section.name} #{count}"
        parts["params" if section.kind == "P" else "state"][name] = section.value
        if section.has_moments:
            parts["adam_m"][name], parts["adam_v"][name] = section.m, section.v
    tree: dict[Any, Tree] = {part: found for part, found in parts.items() if found or part == "params"}
    return tree | ({"scalars": dict(checkpoint.scalars)} if checkpoint.scalars else {})


def _is_own(tree: Mapping[Any, Tree]) -> bool:
    """Whether a tree is made as `_tree` makes it: flat arrays, moments of parameters that are there, nothing else."""
    if "params" not in tree or not tree.keys() <= set(PARTS) or not all(type(part) is dict for part in tree.values()):
        return False
    moments = tree.get("adam_m", {})
    if moments.keys() != tree.get("adam_v", {}).keys() or not moments.keys() <= tree["params"].keys():
        return False
    arrays = [value for part in PARTS[:-1] for value in tree.get(part, {}).values()]
    return all(isinstance(value, np.ndarray) and value.ndim == 1 for value in arrays)


def _foreign_parts(tree: Mapping[Any, Tree]) -> dict[str, dict[str, Tree]]:
    """Arrays as parameters, the rest as scalars."""
    parts: dict[str, dict[str, Tree]] = {"params": {}, "scalars": {}}
    for name, leaf in flat(tree).items():
        parts["params" if isinstance(leaf, np.ndarray | np.generic) else "scalars"][name] = leaf
    return parts


def _problems(parts: Mapping[str, Mapping[str, Tree]], *, widen: bool) -> Iterator[str]:
    for part in PARTS[:-1]:
        for name, value in parts.get(part, {}).items():
            array = np.asarray(value)
            if array.dtype != np.float32 and not (widen and array.dtype.name in _WIDENED):
                hint = "; --widen makes it float32, exactly" if array.dtype.name in _WIDENED else ""
                yield f"{name}: {described(array)}: the format holds float32 only{hint}."
            if part in ("params", "state"):
                yield from _problem_of_name(_own_name(name))
            if part != "params" and part != "state" and array.size != np.size(parts["params"][name]):
                yield f"{name}: {described(array)}, a moment of {described(parts['params'][name])}."
    for name, value in parts.get("scalars", {}).items():
        yield from _problem_of_name(str(name))
        if type(value) not in (int, float) or (type(value) is int and abs(value) > _EXACT_INTEGERS):
            yield f"{name}: {described(value)}: scalars are floats, and whole numbers up to 2^53."


def _problem_of_name(name: str) -> Iterator[str]:
    try:
        check_names(Path(), [name])
    except StorageNameError:
        yield f"{name!a}: names are not empty, and have no spaces or line ends; rename it with --map."


def _own_name(name: str) -> str:
    """As it stands in the file: without the number of a repetition."""
    return re.sub(r" #[1-9]\d*\Z", "", name)


def _losses(parts: Mapping[str, Mapping[str, Tree]], carried: Carried) -> Losses:
    losses = Losses()
    for part in PARTS[:-1]:
        for name, value in parts.get(part, {}).items():
            array = np.asarray(value)
            if array.ndim != 1:
                losses.add(name, "the format has no shapes, so it became flat, in C order.")
            if array.dtype.name in _WIDENED:
                losses.add(name, f"{array.dtype} became float32, exactly.")
    for name, value in parts.get("scalars", {}).items():
        if type(value) is int:
            losses.add(str(name), "an integer became a float64, exactly.")
    for name in carried.metadata:
        losses.add(name, "the format has no metadata.")
    return losses


def _sections(parts: Mapping[str, Mapping[str, Tree]]) -> Iterator[Section]:
    kinds: tuple[tuple[str, SectionKind], ...] = (("params", PARAMETER), ("state", STATE))
    for part, kind in kinds:
        for name, value in parts.get(part, {}).items():
            moments = [_flat32(parts[each][name]) for each in ("adam_m", "adam_v") if name in parts.get(each, {})]
            m, v = moments if kind == PARAMETER and moments else (None, None)
            yield Section(kind, _own_name(name), _flat32(value), m, v)


def _flat32(value: Tree) -> np.ndarray:
    return np.asarray(value, order="C").astype(np.float32, copy=False).reshape(-1)


def _write(target: Path, sections: Sequence[Section], scalars: Mapping[str, float]) -> None:
    try:
        FileSystem().make_directory(target.parent)
    except OSError as error:
        raise CommitError(f"{target}: was not written: {error}.") from error
    if os.path.lexists(target):
        raise CommitError(f"{target}: was not written: something stands there by now.")
    write(target, sections, scalars)


KIND = StorageCkpt()
