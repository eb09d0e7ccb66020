"""NumPy arrays and scalars."""

from typing import Any

import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError, Finding, UnsupportedLeafError
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree
from perdure.tree.paths import format_path


class NdArray(ExactAdapter):
    """Arrays: a new one is returned, in memory of its own and in the saved memory order."""

    id = "numpy-array"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The array, borrowed.

        Raises:
            UnsupportedLeafError: object and structured arrays.
            CaptureError: inside an environment, it shares memory with another array.
        """
        check_storable(obj.dtype, walk)
        if walk.inside_environment:
            _refuse_shared_memory(obj, walk)
        return Array(obj)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Dtype and shape must be the same."""
        return check_array(np.asarray(obj).dtype, obj.shape, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The saved array, in memory of its own."""
        return tree.value


class MemoryMap(ExactAdapter):
    """Arrays in a file that is mapped into memory: restored in place, so the file is rolled back to what was saved."""

    id = "numpy-memmap"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The array, borrowed.

        Raises:
            UnsupportedLeafError: object and structured arrays.
        """
        check_storable(obj.dtype, walk)
        return Array(np.asarray(obj))

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same dtype and shape, in a file that may be written to."""
        if not obj.flags.writeable:
            kinds = (summary(tree), "a memory-mapped array that cannot be written to")
            return [walk.finding(*kinds, "Open it with mode='r+', or leave it out if nobody writes to it.")]
        return check_array(obj.dtype, obj.shape, tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The saved numbers, written into the file."""
        obj[...] = tree.value
        return obj


class NumpyScalar(ExactAdapter):
    """NumPy scalars (`np.float32(1)`), which stay scalars."""

    id = "numpy-scalar"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A 0-d array, marked as a scalar."""
        check_storable(obj.dtype, walk)
        return Array(np.asarray(obj), scalar=True)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Another number is fine, as for Python's own."""
        is_number = type(tree) in (bool, int, float, complex) or (isinstance(tree, Array) and tree.value.ndim == 0)
        if tree is None or is_number:
            return []
        return [walk.finding(summary(tree), f"numpy scalar {obj!r}", "Start it with the kind that the run keeps.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The saved number."""
        return walk.rebuild(tree)


_MOST_WORK: Any = 1_000
"""Candidates that NumPy may try to find an element that two views share (its stubs know no number but 0 and -1)."""


def _refuse_shared_memory(array: np.ndarray, walk: Walk) -> None:
    """Refuses two arrays with elements in common: restored, they would be separate.

    A write to one would not show in the other any more. The same array at two places is no such case: it comes back as
    one.
    """
    met = walk.memory.setdefault(_owner_of(array), [])
    for path, other in met:
        if (array.flags.writeable or other.flags.writeable) and share_elements(array, other):
            raise CaptureError(
                f"{format_path(walk.path)}: an array that shares memory with {format_path(path)}, as a view does. "
                "After a resume they would be two arrays, and what is written to one would not show in the other. Keep "
                "one of them and take the view where it is used, or keep a copy."
            )
    met.append((walk.path, array))


def _owner_of(array: Any) -> int:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return id(array)


def share_elements(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether a write to one array shows in the other."""
    try:
        return np.shares_memory(first, second, max_work=_MOST_WORK)
    except np.exceptions.TooHardError:
        return np.may_share_memory(first, second)


def check_storable(dtype: np.dtype, walk: Walk) -> None:
    """Refuses dtypes without exact bytes of their own, here where the path is known.

    Raises:
        UnsupportedLeafError: object, structured, void, variable-width text, extended precision.
    """
    is_extended = dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16)
    is_void = dtype.kind == "V" and dtype.type is np.void
    if dtype.hasobject or is_void or is_extended or dtype.kind in "OT":
        message = f"{format_path(walk.path)}: dtype {dtype} cannot be stored exactly; use plain numbers."
        raise UnsupportedLeafError(message)


def check_array(dtype: np.dtype, shape: tuple[int, ...], tree: Tree, walk: Walk) -> list[Finding]:
    """The finding for an array leaf of another kind, dtype or shape than the target's."""
    found = f"{dtype} {'×'.join(map(str, shape)) or 'scalar'}"
    if not isinstance(tree, Array) or tree.scalar:
        return [walk.finding(summary(tree), f"array {found}", "Build it as the run did.")]
    if tree.value.dtype != dtype:
        return [walk.finding(summary(tree), found, f"Build it with dtype {tree.value.dtype}, as the run did.")]
    if tree.value.shape != tuple(shape):
        return [walk.finding(summary(tree), found, "Build it with the run's sizes.")]
    return []
