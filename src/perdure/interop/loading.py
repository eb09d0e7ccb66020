"""Weights of any kind of file into a live module, by name: everything checked, then everything written."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import UsageError
from perdure.interop.carried import Leaf, described
from perdure.interop.changes import apply_all
from perdure.interop.conversion import Conversion, component_of, mapped, read_by
from perdure.interop.losses import Losses
from perdure.interop.names import Rule, flat
from perdure.interop.recognition import kind_of
from perdure.interop.slots import Slot, Slots, slots_of
from perdure.tree.leaves import Tree

_NNX_ENDINGS = (".value", ".raw_value")


def load_into(
    path: str | os.PathLike[str],
    module: object,
    *,
    names: Sequence[str] = (),
    component: str | None = None,
    dry_run: bool = False,
    strict: bool = True,
) -> Conversion:
    r"""Puts the arrays of a file into a module that lives: all of them, or, after any error, none.

    Leaves are told by their names: those of `state_dict()` of a PyTorch module, and of an NNX module the dotted paths
    of its variables (`layers.0.kernel`). A number must have the very dtype and shape of its place; nothing is cast.
    Typed PRNG keys take their key data. Modules keep their parameters, devices and `requires_grad`.

    Args:
        path: what `convert` reads: safetensors, a checkpoint of perdure or Orbax, …
        module: a PyTorch module; an NNX module, optimizer or state; or a nested dict of NumPy arrays.
        names: rules `PATTERN=REPLACEMENT` that turn the file's names into the module's, as of `convert`.
        component: of a source that has several, only this one, without its name before the leaves' names.
        dry_run: everything but the writing.
        strict: a leaf of the file that has no place is an error; otherwise it is left out, and said among the losses.

    Returns:
        What was loaded, by the module's names, and what was not.

    Raises:
        UsageError: a leaf is missing, has no place, or has another dtype or shape: all such are named, and nothing was
            changed. Or a name is wrong, or `module` is of no kind that is known.
        NoCheckpointError: there is nothing at `path`, or nothing that is known.
        DamagedError: the file is not what was written.
    """
    source = Path(path).expanduser()
    rules = [Rule.of(text) for text in names]
    slots = slots_of(module)
    kind = kind_of(source)
    losses = Losses()
    carried, origins = mapped(component_of(read_by(kind, source), component), rules, losses)
    named = _named(carried.tree, slots, losses)
    _refuse(source, kind.name, slots, list(_problems(named, slots, strict=strict)))
    chosen = {name: slot for slot in slots.slots for name in slot.names if name in named}
    for name in named.keys() - chosen.keys():
        if not _is_empty(named[name]):
            losses.add(name, "has no place in the module; it is left out.")
    if not dry_run:
        apply_all([slot.change(slot.made(named[name])) for name, slot in chosen.items()])
    leaves = tuple(Leaf(name, described(named[name]), getattr(named[name], "nbytes", 0)) for name in chosen)
    told = (*carried.losses, *losses.lines(), *slots.notes)
    return Conversion(
        kind.title, slots.title, leaves, tuple(origins.get(name, name) for name in chosen), told, dict(carried.metadata)
    )


def _named(tree: Mapping[Any, Tree], slots: Slots, losses: Losses) -> dict[str, Tree]:
    """The leaves by name; keys as their data, and NNX's `value` behind each variable taken off."""
    named = {name: _key_data(leaf) for name, leaf in flat(tree).items()}
    held = [name for name, leaf in named.items() if not _is_empty(leaf)]
    for ending in _NNX_ENDINGS:
        is_nnx = bool(held) and all(name.endswith(ending) for name in held)
        if is_nnx and not any(name.endswith(ending) for slot in slots.slots for name in slot.names):
            losses.add("names", f"the {ending} that NNX writes behind each variable was taken off.")
            return {name.removesuffix(ending): leaf for name, leaf in named.items()}
    return named


def _key_data(leaf: Tree) -> Tree:
    if str(getattr(leaf, "dtype", ""))[:4] != "key<":
        return leaf
    import jax

    return np.asarray(jax.random.key_data(leaf))


def _is_empty(leaf: Tree) -> bool:
    return isinstance(leaf, dict | list | tuple)


def _problems(named: Mapping[str, Tree], slots: Slots, *, strict: bool) -> Iterator[str]:
    for slot in slots.slots:
        present = [name for name in slot.names if name in named]
        if not present:
            yield f"{slot.names[0]}: {slot.described()} in the module, nothing in the file."
        for name in present:
            if slot.trouble:
                yield f"{name}: {slot.trouble}"
            elif not _fits(named[name], slot):
                yield f"{name}: {_told(named[name])} in the file, {slot.described()} in the module."
            elif not _same(named[name], named[present[0]]):
                yield f"{name}: other numbers than {present[0]}, which is the same parameter of the module."
    known = {name for slot in slots.slots for name in slot.names}
    for name, leaf in named.items():
        if strict and name not in known and not _is_empty(leaf):
            yield f"{name}: {_told(leaf)} in the file, nothing of this name in the module."


def _told(leaf: Tree) -> str:
    is_array = isinstance(leaf, np.ndarray | np.generic)
    return described(leaf) if is_array else f"{described(leaf)}, a plain {type(leaf).__name__},"


def _fits(leaf: Tree, slot: Slot) -> bool:
    if slot.dtype is None:
        return type(leaf) is slot.plain
    if not isinstance(leaf, np.ndarray | np.generic):
        return False
    return (leaf.dtype, leaf.shape) == (slot.dtype, slot.shape)


def _same(first: Tree, second: Tree) -> bool:
    if first is second:
        return True
    return np.asarray(first).tobytes() == np.asarray(second).tobytes()


def _refuse(source: Path, kind: str, slots: Slots, problems: Sequence[str]) -> None:
    if not problems:
        return
    count = f"{len(problems)} of the leaves" if len(problems) > 1 else "one of the leaves"
    lines = "".join(f"\n  {problem}" for problem in problems)
    raise UsageError(f"{source} does not fit {slots.title}: {count}; nothing was changed. {_way_out(kind)}{lines}")


def _way_out(kind: str) -> str:
    if kind == "storage-ckpt":
        verb = "perdure.interop.storage_ckpt.load_params(module, path)"
        return f"This format has no shapes: {verb} knows how modules lie in it."
    return (
        "Give names=['PATTERN=NEW'] for other names, an empty NEW (with a PATTERN that fits the whole name) or "
        "strict=False for leaves that the module does not have, component=... for one component, or build the module "
        "as the file's was."
    )
