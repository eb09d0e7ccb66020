"""State digests: what two runs compare when they ask whether they are the same.

A component's digest covers paths, kinds, dtypes, shapes, weak types, memory orders and every bit. The order of
dict keys is left out (`jit` sorts them), and so is whether equal objects are shared: an alias counts as what it
stands for. Containers are digested from the digests of their children, so a shared node is read once.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite

import numpy as np

from perdure.errors import DamagedError
from perdure.format import canonical, dtypes, numbers
from perdure.format.digests import digest_of
from perdure.format.known import Memory
from perdure.format.row_nodes import rows_form
from perdure.format.tensors import contiguous_bytes
from perdure.tree.leaves import PLAIN_TYPES, Alias, Array, PRNGKey, Tree, memory_axes
from perdure.tree.paths import Path, Step, format_path
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Snapshot

ArrayDigest = Callable[[Path, Array], str]
"""Gives the digest of the array at a path."""


def digest_array(_path: Path, array: Array) -> str:
    """The digest of an array's bytes in memory order, read now."""
    value = array.value
    if (
        value.dtype.isbuiltin == 1 and value.dtype.kind in _WITH_BUFFER and value.flags.c_contiguous
    ):  # the usual case: its memory as it is
        return digest_of(value.data)
    return digest_of(contiguous_bytes(value))


_WITH_BUFFER = frozenset("biufc")
"""Kinds of NumPy's own numbers, whose arrays show their memory to everybody; dtypes of others share the letters."""


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
        name: digest_of(f"{forms.form(component.tree, (name,))}\n".encode("ascii"))
        for name, component in snapshot.components.items()
    }


def state_digest(digests: Mapping[str, str], env_steps: int, updates: int, boundary: int) -> str:
    """The digest of a whole snapshot: its components' digests and its three counters."""
    form = [sorted(digests.items()), env_steps, updates, boundary]
    return digest_of(canonical.encode(form))


class _Forms:
    """Spells nodes as the canonical JSON that is digested, remembering what shared nodes came to.

    It is put together as text: hundreds of small documents a boundary, each of which the encoder would look at anew.
    """

    def __init__(self, snapshot: Snapshot, array_digest: ArrayDigest, memory: Memory) -> None:
        self._snapshot = snapshot
        self._memory = memory
        self._array_digest = array_digest
        self._open: list[Path] = []
        self._known: dict[Path, str] = {}
        self._arrays: dict[int, str] = {}  # by identity: an optimizer refers to every weight of a network

    def form(self, tree: Tree, path: Path) -> str:
        kind = type(tree)
        if kind in PLAIN_TYPES:
            return _plain(tree)
        if kind is Array:
            if id(tree) not in self._arrays:
                self._arrays[id(tree)] = f'["array",{self._array(tree, path)}]'
            return self._arrays[id(tree)]
        if kind is Alias:
            return self._shared(tree.path, path)
        if isinstance(tree, dict | list | tuple):
            return self._memory.of(tree, len(path), lambda: self._container(tree, path))
        if kind is PRNGKey:
            return f'["key",{canonical.spell(tree.implementation)},{self._array(tree.data, path)}]'
        if kind is Rows:
            return f'"{digest_of(canonical.encode(rows_form(tree)))}"'
        return _plain(tree)

    def _shared(self, target: Path, path: Path) -> str:
        if target in self._open:
            return f'["ancestor",{len(self._open) - self._open.index(target)}]'
        if target not in self._known:
            self._known[target] = self.form(self._node(target, path), target)
        return self._known[target]

    def _node(self, target: Path, path: Path) -> Tree:
        try:
            return self._snapshot.at(target)
        except (LookupError, TypeError, RecursionError) as error:
            message = f"{format_path(path)}: shared with {format_path(target)}, which does not exist"
            raise DamagedError(message) from error

    def _container(self, tree: Tree, path: Path) -> str:
        self._open.append(path)
        if isinstance(tree, dict):
            parts = [f"[{_key(key)},{self._child(tree[key], path, key)}]" for key in _ordered(tree)]
        else:
            parts = [self._child(child, path, at) for at, child in enumerate(tree)]
        self._open.pop()
        text = f"[{canonical.spell(type(tree).__name__)},[{','.join(parts)}]]\n"
        return f'"{digest_of(text.encode("ascii"))}"'

    def _child(self, child: Tree, path: Path, step: Step) -> str:
        return _plain(child) if type(child) in PLAIN_TYPES else self.form(child, (*path, step))

    def _array(self, array: Array, path: Path) -> str:
        value = array.value
        kind = _kind_of_array(value.dtype, value.shape, memory_axes(value), array.weak_type, array.scalar)
        return f'{kind},"{self._array_digest(path, array)}"'


def _plain(value: Tree) -> str:
    kind = type(value)
    is_ordinary = value is None or kind is bool or kind is str or (kind is float and value and isfinite(value))
    return f'["leaf",{canonical.spell(value if is_ordinary else numbers.encode_plain(value))}]'


@lru_cache(maxsize=4096, typed=True)
def _key(key: Step) -> str:
    return canonical.spell(numbers.encode_plain(key))


def _ordered(tree: dict[Step, Tree]) -> list[Step]:
    """The keys: numbers first, each kind in its own order."""
    try:
        return sorted(tree)
    except TypeError:  # both kinds
        return sorted(tree, key=lambda key: (isinstance(key, str), key))


@lru_cache(maxsize=4096)
def _kind_of_array(dtype: np.dtype, shape: tuple[int, ...], axes: tuple[int, ...], *flags: bool) -> str:
    """All that an array's form says before its digest; most arrays of a state are of few kinds, again and again."""
    parts = [dtypes.name_of(dtype), list(shape), list(axes), *flags]
    return ",".join(map(canonical.spell, parts))
