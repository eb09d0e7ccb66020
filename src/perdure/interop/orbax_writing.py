"""Trees as checkpoints of Orbax: checked, written by the installed Orbax, read back and compared, then named."""

import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import CommitError, DamagedError, UsageError
from perdure.interop.carried import ORDER, Carried, Prepared, described, is_utf8, refuse
from perdure.interop.losses import Losses
from perdure.interop.names import flat
from perdure.interop.orbax_arrays import read_orbax
from perdure.interop.orbax_tree import MAX_DEPTH
from perdure.store.filesystem import FileSystem
from perdure.tree.leaves import Tree, leaves, memory_axes
from perdure.tree.paths import Path as TreePath
from perdure.tree.paths import format_path

_DTYPES = frozenset(
    (
        *("bool", "int2", "int4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "bfloat16", "complex64", "complex128", "float4_e2m1fn", "float8_e3m4"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        "float8_e8m0fnu",
    )
)
"""What Orbax 0.12 and TensorStore write and read."""

_PLAIN = (type(None), bool, int, float, str)


def prepare(carried: Carried, title: str) -> Prepared:
    """Checks whether Orbax can hold what is carried.

    Raises:
        UsageError: it cannot; every leaf in the way is named. Or Orbax is not installed.
    """
    _orbax()
    flat(carried.tree)  # Orbax writes leaves of the same name over one another
    refuse(title, list(_problems(carried.tree)))
    losses = Losses()
    tree = _as_stored(carried.tree, losses)
    metadata = {key: value for key, value in carried.metadata.items() if _is_json(value)}
    for key in carried.metadata.keys() - metadata.keys():
        losses.add(str(key), "said beside the leaves; it has no form in JSON and is left out.")
    return Prepared(lambda target: _write(target, tree, metadata), losses.lines())


def _problems(tree: Tree) -> Iterator[str]:
    if not tree:
        yield "root: Orbax saves no tree without leaves."
    for path, leaf in leaves(tree):
        name = ".".join(map(str, path))
        what = _problem(leaf)
        if what:
            yield f"{name}: {described(leaf)}: {what}"
        if len(path) > MAX_DEPTH:
            yield f"{name[:80]}…: {len(path)} containers inside one another, of {MAX_DEPTH} at most."
        if not is_utf8(name):
            yield f"{name!a}: a name that has no form in UTF-8."
    for place, keys in _dicts(tree):
        if len(set(map(str, keys))) < len(keys):
            yield f"{place}: an integer and a text of the same digits as names."


def _problem(leaf: Tree) -> str | None:
    if _is_key(leaf):
        return None
    if isinstance(leaf, np.ndarray | np.generic):
        if leaf.dtype.name not in _DTYPES:
            return "Orbax does not have this dtype."
        return None if leaf.size else "Orbax saves no array without elements."
    if isinstance(leaf, dict | list | tuple):
        return None
    if type(leaf) not in _PLAIN:
        return f"Orbax holds no {type(leaf).__name__}."
    if type(leaf) is int and not -(1 << 63) <= leaf < 1 << 64:
        return f"an integer of {leaf.bit_length():,} bits, of 64 at most."
    return "a text that has no form in UTF-8." if isinstance(leaf, str) and not is_utf8(leaf) else None


def _is_key(leaf: Tree) -> bool:
    """A typed PRNG key of JAX, which some kinds carry as it is."""
    return hasattr(leaf, "dtype") and not isinstance(leaf, np.ndarray | np.generic) and str(leaf.dtype)[:4] == "key<"


def _is_json(value: Any) -> bool:
    try:
        return json.loads(json.dumps(value)) == value
    except (TypeError, ValueError, RecursionError):
        return False


def _dicts(tree: Tree, path: TreePath = ()) -> Iterator[tuple[str, list[str | int]]]:
    if isinstance(tree, dict):
        yield format_path(path) or "root", list(tree)
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    for step, child in below:
        yield from _dicts(child, (*path, step))


def _as_stored(node: Tree, losses: Losses, path: TreePath = ()) -> Tree:
    """The tree as Orbax will read it again; every change is noted."""
    match node:
        case dict():
            if any(isinstance(step, int) for step in node):
                losses.add(path or "root", "integers as names became text.")
            return {str(step): _as_stored(child, losses, (*path, step)) for step, child in node.items()}
        case list():
            return [_as_stored(child, losses, (*path, at)) for at, child in enumerate(node)]
        case tuple() if node:
            losses.add(path, "a tuple; Orbax stores it as it stores lists.")
            return [_as_stored(child, losses, (*path, at)) for at, child in enumerate(node)]
        case np.ndarray() | np.generic():
            return _array_as_stored(node, losses, path)
        case str():
            losses.add(path, "a text; StandardCheckpointer reads it, but only PyTreeCheckpointer writes such ones.")
    return node


def _array_as_stored(value: np.ndarray | np.generic, losses: Losses, path: TreePath) -> np.ndarray:
    if isinstance(value, np.generic):
        losses.add(path, "a scalar of NumPy became an array without axes.")
    array = np.asarray(value)
    if not array.dtype.isnative:
        losses.add(path, "its bytes were in the other order than this machine's; the numbers are the same.")
    if memory_axes(array) != tuple(range(array.ndim)):
        losses.add(path, ORDER)
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")


def _write(target: Path, tree: dict[str, Tree], metadata: Mapping[str, Any]) -> None:
    """Whole and durable under its name, or not there at all."""
    files = FileSystem()
    staging = target.absolute().with_name(f".{target.name}.{secrets.token_hex(8)}.new")
    try:
        files.make_directory(staging.parent)
        files.make_new_directory(staging)
        try:
            _save(staging / target.name, tree, metadata)
            _sync(files, staging / target.name)
            if target.exists():
                raise FileExistsError(0, "something stands there by now")
            files.rename(staging / target.name, target)
        finally:
            files.remove_tree(staging)
        files.sync_directory(target.absolute().parent)
    except OSError as error:
        raise CommitError(f"{target}: was not written: {error.strerror or error}.") from error


def _save(directory: Path, tree: dict[str, Tree], metadata: Mapping[str, Any]) -> None:
    """By Orbax; what it wrote is read back and compared."""
    orbax = _orbax()
    has_text = any(isinstance(leaf, str) for _, leaf in leaves(tree))
    try:
        if has_text:
            with orbax.PyTreeCheckpointer() as checkpointer:
                checkpointer.save(directory, tree, custom_metadata=dict(metadata))
        else:
            with orbax.StandardCheckpointer() as checkpointer:
                checkpointer.save(directory, tree, custom_metadata=dict(metadata))
        written = read_orbax(directory)
    except (ValueError, TypeError, RuntimeError, DamagedError) as error:
        raise CommitError(f"{directory.name}: Orbax did not write it: {error}") from error
    other = _difference(tree, written)
    if other is not None:
        raise CommitError(f"{directory.name}: {other}: Orbax wrote something else than it was given.")


def _difference(given: Tree, written: Tree) -> str | None:
    """The first place where two trees are not the same, bit for bit."""
    first, second = dict(leaves(given)), dict(leaves(written))
    if first.keys() != second.keys():
        return format_path(min(first.keys() ^ second.keys(), key=str))
    return next((format_path(path) for path in first if _bits(first[path]) != _bits(second[path])), None)


def _bits(leaf: Tree) -> tuple[Any, ...]:
    if _is_key(leaf):
        import jax

        leaf = np.asarray(jax.random.key_data(leaf))
    if isinstance(leaf, np.ndarray):
        return (leaf.dtype, leaf.shape, leaf.tobytes())
    return (type(leaf), leaf.hex() if isinstance(leaf, float) else leaf)


def _sync(files: FileSystem, directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            files.sync_file(path)
        elif path.is_dir():
            files.sync_directory(path)
    files.sync_directory(directory)


def _orbax() -> Any:
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise UsageError(
            "writing a checkpoint of Orbax needs Orbax, which comes with Flax and is not installed. "
            "Install the `jax` extra: pip install 'perdure[jax]'"
        ) from error
    return orbax.checkpoint
