"""State digests: what two runs compare when they ask whether they are the same.

A component's digest covers paths, kinds, dtypes, shapes, weak types, memory orders and every bit. The order of
dict keys is left out (`jit` sorts them), and so is whether equal objects are shared: an alias counts as what it
stands for. Containers are digested from the digests of their children, so a shared node is read once.
"""

from collections.abc import Callable, Mapping

from perdure.errors import DamagedError
from perdure.format import canonical, dtypes, numbers
from perdure.format.canonical import Json
from perdure.format.digests import digest_of
from perdure.format.known import Memory
from perdure.format.row_nodes import rows_form
from perdure.format.tensors import contiguous_bytes
from perdure.tree.leaves import PLAIN_TYPES, Alias, Array, PRNGKey, Tree, memory_axes
from perdure.tree.paths import Path, format_path
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Snapshot

ArrayDigest = Callable[[Path, Array], str]
"""Gives the digest of the array at a path."""


def digest_array(_path: Path, array: Array) -> str:
    """The digest of an array's bytes in memory order, read now."""
    return digest_of(contiguous_bytes(array.value))


def component_digests(
    snapshot: Snapshot, array_digest: ArrayDigest = digest_array, memory: Memory | None = None
) -> dict[str, str]:
    """The digest of every component.

    Args:
        snapshot: the snapshot.
        array_digest: where the arrays' digests are known already, from the write that hashed them.
        memory: the forms of plain subtrees that are known already.

    Raises:
        DamagedError: an alias points nowhere.
    """
    forms = _Forms(snapshot, array_digest, memory or Memory())
    return {
        name: digest_of(canonical.encode(forms.form(component.tree, (name,))))
        for name, component in snapshot.components.items()
    }


def state_digest(digests: Mapping[str, str], env_steps: int, updates: int, boundary: int) -> str:
    """The digest of a whole snapshot: its components' digests and its three counters."""
    form = [sorted(digests.items()), env_steps, updates, boundary]
    return digest_of(canonical.encode(form))


class _Forms:
    """Turns nodes into the JSON that is digested, remembering what shared nodes came to."""

    def __init__(self, snapshot: Snapshot, array_digest: ArrayDigest, memory: Memory) -> None:
        self._snapshot = snapshot
        self._memory = memory
        self._array_digest = array_digest
        self._open: list[Path] = []
        self._known: dict[Path, Json] = {}

    def form(self, tree: Tree, path: Path) -> Json:
        if type(tree) in PLAIN_TYPES:
            return ["leaf", numbers.encode_plain(tree)]
        match tree:
            case Alias():
                return self._shared(tree.path, path)
            case Array():
                return ["array", *self._array(tree, path)]
            case PRNGKey():
                return ["key", tree.implementation, *self._array(tree.data, path)]
            case Rows():
                return digest_of(canonical.encode(rows_form(tree)))
            case dict() | list() | tuple():
                return self._memory.of(tree, len(path), lambda: self._container(tree, path))
            case _:
                return ["leaf", numbers.encode_plain(tree)]

    def _shared(self, target: Path, path: Path) -> Json:
        if target in self._open:
            return ["ancestor", len(self._open) - self._open.index(target)]
        if target not in self._known:
            self._known[target] = self.form(self._node(target, path), target)
        return self._known[target]

    def _node(self, target: Path, path: Path) -> Tree:
        try:
            return self._snapshot.at(target)
        except (LookupError, TypeError, RecursionError) as error:
            message = f"{format_path(path)}: shared with {format_path(target)}, which does not exist"
            raise DamagedError(message) from error

    def _container(self, tree: Tree, path: Path) -> Json:
        self._open.append(path)
        if isinstance(tree, dict):
            ordered = sorted(tree.items(), key=lambda item: (isinstance(item[0], str), item[0]))
            parts = [[numbers.encode_plain(key), self.form(child, (*path, key))] for key, child in ordered]
        else:
            parts = [self.form(child, (*path, at)) for at, child in enumerate(tree)]
        self._open.pop()
        return digest_of(canonical.encode([type(tree).__name__, parts]))

    def _array(self, array: Array, path: Path) -> list[Json]:
        value = array.value
        shape, axes = list(value.shape), list(memory_axes(value))
        digest = self._array_digest(path, array)
        return [dtypes.name_of(value.dtype), shape, axes, array.weak_type, array.scalar, digest]
