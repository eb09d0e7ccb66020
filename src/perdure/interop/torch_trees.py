"""Inert records of PyTorch's pickles to plain trees: tensors, plain values, containers; what is anything else is named.

Unlike `plain_trees.py`, which describes objects of every class, this leaves them out: `torch.load(weights_only=True)`,
whose semantics these are, would not make them either. The rest of the file is read all the same.
"""

from collections.abc import Callable
from typing import Any

from perdure.errors import DamagedError, UnsupportedLeafError
from perdure.interop.losses import Losses
from perdure.interop.pickled_arrays import PickledArray, array_in
from perdure.interop.pickled_values import Name, OddKey, PersistentId, Record
from perdure.interop.torch_archives import TorchArchive
from perdure.interop.torch_tensors import NotReadError, Tensor, storage_in, tensor_in
from perdure.interop.torch_values import READERS, set_items
from perdure.interop.unfolding import Unfolding
from perdure.tree.leaves import Tree
from perdure.tree.paths import Path, format_path

LEFT_OUT = object()
"""Stands for what was not read."""

CONTENT = "content"
"""What is called so that stands alone in a file, without a name."""

WHOLE = "the file"
"""The place of what concerns all of it."""

FREE_ARRAY_BYTES = 1 << 26
"""What tensors may take besides, however small the file: `expand` makes large ones of one number."""

_MAPPINGS = {"collections.OrderedDict": "", "collections.defaultdict": "a defaultdict became a dict."}
_NAMESPACES = frozenset({"argparse.Namespace", "types.SimpleNamespace"})
_SETS = frozenset({"builtins.set", "builtins.frozenset"})
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")


class TorchTrees:
    """Turns what a file of `torch.save` holds into a plain tree; tensors stay `Tensor`, no storage is read."""

    def __init__(self, archive: TorchArchive, losses: Losses, *, fields_of: frozenset[str] = frozenset()) -> None:
        """Begins; how far the tree may unfold goes by the size of the file.

        Args:
            archive: the file.
            losses: where losses are noted.
            fields_of: classes whose objects become mappings of their fields.
        """
        self._archive = archive
        self._losses = losses
        self._fields_of = _NAMESPACES | fields_of
        self._unfolding = Unfolding(archive.size_bytes, archive.place, _WAY_OUT)
        self._free_array_bytes = FREE_ARRAY_BYTES
        self._first_places: dict[str, Path] = {}

    def tree(self, path: Path = ()) -> dict[Any, Tree]:
        """Everything in the file, as a mapping.

        Raises:
            DamagedError: it is deeper or larger than the limits, contains itself, or holds a broken tensor or array.
        """
        found = self.plain(self._archive.content, path)
        if isinstance(found, dict):
            return found
        if found is LEFT_OUT:
            return {}
        self._losses.add((*path, CONTENT), "stands alone in the file, without a name.")
        return {CONTENT: found}

    def plain(self, node: Any, path: Path) -> Any:
        """One node, or `LEFT_OUT`."""
        self._unfolding.enter(path)
        match node:
            case dict():
                return self._mapping(node, path)
            case list() | tuple():
                return self._sequence(node, path)
            case PersistentId() | Record():
                return self._made(node, path)
            case Name():
                self._note(path, f"{node}, a name of code, became that name as text.")
                return str(node)
            case str() | bytes():
                self._unfolding.spend(len(node), path)
        return node

    def _mapping(self, node: dict[Any, Any], path: Path) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, child in node.items():
            if isinstance(key, OddKey):
                self._note(path, f"an entry with a key of {_kind(key.value)}, neither text nor an integer, not read.")
                continue
            self._unfolding.spend(len(key) if isinstance(key, str) else 0, path)
            value = self.plain(child, (*path, key))
            if value is not LEFT_OUT:
                found[key] = value
        return found

    def _sequence(self, node: list[Any] | tuple[Any, ...], path: Path) -> list[Any] | tuple[Any, ...]:
        found = []
        for at, child in enumerate(node):
            value = self.plain(child, (*path, at))
            if value is LEFT_OUT:
                self._losses.add((*path, at), "None stands in its place.")
                value = None
            found.append(value)
        return type(node)(found)

    def _made(self, node: Record | PersistentId, path: Path) -> Any:
        """A tensor, an array, or an object."""
        place = f"{self._archive.place}: {format_path(path)}"
        try:
            tensor = (
                storage_in(node, self._archive) if isinstance(node, PersistentId) else tensor_in(node, self._archive)
            )
            if tensor is not None:
                return self._tensor(tensor, path)
            array = array_in(node, place) if isinstance(node, Record) else None
        except NotReadError as error:
            return self._left_out(path, str(error))
        except UnsupportedLeafError:
            return self._left_out(path, "an array of objects or of records")
        except RecursionError as error:
            raise DamagedError(f"{place}: calls inside one another without end. {_WAY_OUT}") from error
        except DamagedError as error:
            if str(error).startswith(self._archive.place):
                raise
            raise DamagedError(f"{place}: {error}. {_WAY_OUT}") from error
        if isinstance(array, PickledArray):
            self._unfolding.spend(array.value.nbytes, path)
            return array.value
        return self._object(node, path) if isinstance(node, Record) else LEFT_OUT

    def _tensor(self, tensor: Tensor, path: Path) -> Tensor:
        free = min(tensor.nbytes, self._free_array_bytes)
        self._free_array_bytes -= free
        self._unfolding.spend(tensor.nbytes - free, path)
        for note in tensor.notes:
            self._note(path, note)
        first = self._first_places.setdefault(tensor.storage, path)
        if first != path and tensor.nbytes:
            self._note(path, f"shares the storage of {format_path(first)}; it became a copy.")
        return tensor

    def _object(self, record: Record, path: Path) -> Any:
        """What torch's weights-only reader would make, too, and a few classes of which everything is plain."""
        name = f"{record.made_by.module.replace('__builtin__', 'builtins')}.{record.made_by.name}"
        if name in _MAPPINGS:
            return self._ordered(record, _MAPPINGS[name], path)
        if name in READERS:
            value = READERS[name](record)
            if value is not None:
                loss, content = value
                if loss:
                    self._note(path, loss)
                return self.plain(content, path)
        fields = record.state[0] if isinstance(record.state, tuple) and record.state else record.state
        if isinstance(fields, dict) and name in self._fields_of:
            self._note(path, f"{name} became a mapping of its fields.")
            return self._mapping(fields, path)
        if isinstance(fields, dict) and all(isinstance(fields.get(part), dict | Record) for part in _MODULE_PARTS):
            return self._module(name, fields, path)
        return self._left_out(path, f"an object of {name}")

    def _ordered(self, record: Record, loss: str, path: Path) -> dict[Any, Any]:
        if loss:
            self._note(path, loss)
        if isinstance(record.state, dict) and "_metadata" in record.state:
            self._note(path, "the versions of its modules, which a state_dict bears, are not kept.")
        return self._mapping(record.entries, path)

    def _module(self, name: str, fields: dict[Any, Any], path: Path) -> dict[Any, Any]:
        """A whole module: what its `state_dict()` would hold, under nested names."""
        self._note(path, f"an object of {name}, of which only parameters and buffers are read.")
        passing = fields.get("_non_persistent_buffers_set")
        left = set_items(passing) if isinstance(passing, Record) else []
        found: dict[Any, Any] = {}
        for part in _MODULE_PARTS:
            entries = fields[part].entries if isinstance(fields[part], Record) else fields[part]
            kept = {key: child for key, child in entries.items() if child is not None and key not in left}
            found |= self._mapping(kept, path)
        return found

    def _note(self, path: Path, what: str) -> None:
        self._losses.add(path or WHOLE, what)

    def _left_out(self, path: Path, what: str) -> Any:
        self._note(path, f"{what}, not read.")
        return LEFT_OUT


_WAY_OUT = "Take an undamaged copy of the file."


def with_tensors(tree: Tree, turn: Callable[[Tensor], Any]) -> Any:
    """The same tree with something else in the place of each tensor."""
    match tree:
        case dict():
            return {key: with_tensors(child, turn) for key, child in tree.items()}
        case list() | tuple():
            return type(tree)(with_tensors(child, turn) for child in tree)
        case Tensor():
            return turn(tree)
        case _:
            return tree


def _kind(value: Any) -> str:
    return f"the class {value.made_by}" if isinstance(value, Record) else f"the type {type(value).__name__}"
