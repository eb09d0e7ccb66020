"""Python's own mutable blocks of bytes and numbers: `bytearray` and `array.array`."""

import array
from typing import Any

import numpy as np

from perdure.adapters.adapter import ExactAdapter
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree

TYPECODE = "typecode"
NUMBERS = "numbers"
_TEXT = "uw"
"""Typecodes of arrays of characters."""


class ByteArray(ExactAdapter):
    """`bytearray`, of whatever length."""

    id = "bytearray"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The bytes, as numbers of a tensor file: a manifest is no place for megabytes."""
        return Array(np.array(memoryview(obj), np.uint8), immutable=True)

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Bytes."""
        if walk.made_here == self.id and isinstance(tree, Array):
            return []
        return [walk.finding(summary(tree), f"a bytearray of {len(obj)}", "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target itself if it is part of a live object and as long, for others may look into it; else a new one."""
        made = rebuild_byte_array(tree, walk)
        if not walk.inside_live or len(obj) != len(made):
            return made
        obj[:] = made
        return obj


class PythonArray(ExactAdapter):
    """`array.array`, of whatever length."""

    id = "array-array"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The typecode, and the numbers; a copy, for an array that lends its memory cannot grow."""
        numbers: Tree = obj.tounicode() if obj.typecode in _TEXT else Array(np.array(obj, obj.typecode), immutable=True)
        return {TYPECODE: obj.typecode, NUMBERS: numbers}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same typecode, and numbers of the same size."""
        if walk.made_here != self.id or not isinstance(tree, dict):
            return [walk.finding(summary(tree), f"array.array of {len(obj)}", "Build it as the run did.")]
        found = obj.typecode if obj.typecode in _TEXT else np.dtype(obj.typecode)
        saved = tree[TYPECODE] if tree[TYPECODE] in _TEXT else tree[NUMBERS].value.dtype
        if (obj.typecode, found) == (tree[TYPECODE], saved):
            return []
        return [walk.finding(f"array.array of {saved}", f"array.array of {found}", "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target itself if it is part of a live object and as long, for others may look into it; else a new one."""
        made = rebuild_array(tree, walk)
        if not walk.inside_live or len(obj) != len(made):
            return made
        obj[:] = made
        return obj


def rebuild_byte_array(tree: Tree, walk: Walk) -> Any:
    """A `bytearray` without a target."""
    return bytearray(tree.value.tobytes())


def rebuild_array(tree: Tree, walk: Walk) -> Any:
    """An `array.array` without a target."""
    numbers = tree[NUMBERS]
    return array.array(tree[TYPECODE], numbers.value.tobytes() if isinstance(numbers, Array) else numbers)
