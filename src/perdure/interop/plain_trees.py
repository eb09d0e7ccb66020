"""Inert records to plain trees: dicts, lists, tuples, plain values, NumPy arrays and keys; every loss is noted."""

from typing import Any

import numpy as np

from perdure.interop.losses import Losses
from perdure.interop.pickled_arrays import KEY_SHAPES, PickledArray, PickledKey, array_in
from perdure.interop.pickled_values import NOTHING, Name, Record
from perdure.interop.unfolding import Unfolding
from perdure.tree.paths import Path, format_path

_STATES = frozenset({"flax.nnx.statelib.State"})
_RAW_VALUES = ("_raw_value", "raw_value")
_ORDERED = frozenset({"collections.OrderedDict"})
_ENUMERATIONS = frozenset({"nnx_ppo.algorithms.types.LoggingLevel"})


class PlainTrees:
    """Turns what `read_pickle` gives into what `perdure.save` takes."""

    def __init__(self, size_bytes: int, place: str, losses: Losses) -> None:
        """Begins.

        Args:
            size_bytes: the file's size; how far all trees together may unfold goes by it.
            place: the file, for messages.
            losses: where losses are noted.
        """
        self._unfolding = Unfolding(size_bytes, place, "nnx-ppo writes no such file; take an undamaged copy.")
        self._place = place
        self._losses = losses

    def plain(self, node: Any, path: Path) -> Any:
        """One tree.

        Raises:
            DamagedError: it is deeper or larger than the limits, contains itself, or holds a broken array.
            UnsupportedLeafError: an array has no exact form.
        """
        self._unfolding.enter(path)
        match node:
            case dict():
                return self._mapping(node, path)
            case list():
                return [self.plain(child, (*path, at)) for at, child in enumerate(node)]
            case tuple():
                return tuple(self.plain(child, (*path, at)) for at, child in enumerate(node))
            case Record():
                return self._record(node, path)
            case Name():
                self._losses.add(path, f"{node}, a name of code, became that name as text.")
                return str(node)
            case str() | bytes():
                self._unfolding.spend(len(node), path)
        return node

    def _mapping(self, node: dict[Any, Any], path: Path) -> dict[Any, Any]:
        self._unfolding.spend(sum(len(key) for key in node if isinstance(key, str)), path)
        return {key: self.plain(child, (*path, key)) for key, child in node.items()}

    def _record(self, record: Record, path: Path) -> Any:
        array = array_in(record, f"{self._place}: {format_path(path)}")
        if isinstance(array, PickledArray):
            return self._array(array, path)
        if isinstance(array, PickledKey):
            return self._key(array, path)
        name, state = str(record.made_by), record.state
        if name in _STATES and isinstance(state, dict):
            return self.plain(state.get("_mapping"), path)
        if name in _ORDERED and not record.arguments:
            return self._mapping(record.entries, path)
        if name == "builtins.complex" and [type(part) for part in record.arguments] == [float, float]:
            return complex(*record.arguments)
        return self._of_class(record, path)

    def _array(self, array: PickledArray, path: Path) -> np.ndarray | np.generic:
        self._unfolding.spend(array.value.nbytes, path)
        if array.weak_type:
            self._losses.add(path, "JAX's weak type is not kept; promotions with this array may give other dtypes.")
        return array.value

    def _key(self, key: PickledKey, path: Path) -> Any:
        """A typed key of JAX again where it is one of JAX's own kinds; perdure keeps its implementation."""
        self._unfolding.spend(key.data.nbytes, path)
        if key.implementation not in KEY_SHAPES:
            kind = (
                f"a typed key of the implementation {key.implementation!r}, which JAX does not have, became its data."
            )
            self._losses.add(path, kind)
            return key.data
        import jax

        return jax.random.wrap_key_data(jax.numpy.asarray(key.data), impl=key.implementation)

    def _of_class(self, record: Record, path: Path) -> Any:
        """What only a class could restore keeps its content, and loses the class."""
        name, state = record.made_by, record.state
        fields = _fields(state)
        is_bare = not (record.items or record.entries)
        if fields is not None and not record.arguments and is_bare:
            return self._of_fields(name, fields, path)
        if str(name) in _ENUMERATIONS and [type(part) for part in record.arguments] == [int]:
            self._losses.add(path, f"{name} became its number.")
            return record.arguments[0]
        if record.is_class and record.arguments and state is NOTHING and is_bare:
            self._losses.add(path, f"{name} became a tuple of its parts.")
            return self.plain(record.arguments, path)
        self._losses.add(path, f"{name} became a mapping that describes how it is made.")
        return self.plain(_description(record), path)

    def _of_fields(self, name: Name, fields: dict[str | int, Any], path: Path) -> Any:
        for field_name in _RAW_VALUES:
            if field_name in fields:
                self._losses.add(path, f"the variable's class {name} and its metadata are not kept, its value is.")
                return self.plain(fields[field_name], path)
        self._losses.add(path, f"{name} became a mapping of its fields.")
        return self._mapping(fields, path)


def _fields(state: Any) -> dict[str | int, Any] | None:
    """The attributes that a state would set: a dict, or a pair of dicts where the class has slots."""
    match state:
        case dict():
            return state
        case (None, dict(slots)):
            return slots
        case (dict(attributes), dict(slots)):
            return attributes | slots
    return None


def _description(record: Record) -> dict[str, Any]:
    parts = {
        "made_by": str(record.made_by),
        "arguments": record.arguments,
        "state": record.state,
        "items": record.items,
        "entries": record.entries,
    }
    return {name: part for name, part in parts.items() if part is not NOTHING and (name == "made_by" or part)}
