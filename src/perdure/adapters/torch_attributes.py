"""Attributes of PyTorch's objects: which of them are state, how they are captured and put back."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from perdure.adapters.adapter import Kind
from perdure.adapters.containers import Children, Container
from perdure.adapters.rebuilding import skeleton
from perdure.adapters.torch_slots import check_slot, restore_slot
from perdure.adapters.walk import Walk
from perdure.contract.naming import name_of
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import PLAIN_TYPES, Tree
from perdure.tree.paths import Step

SHAPE, DTYPE = "shape", "dtype"
"""Below a tensor among the attributes: the settings that tell the shape and the dtype a fresh start gives it."""

PARTS = ".parts"
"""Below an attribute: the fact that tells which of its parts a fresh start must hold, for no tree can make them."""

_OWN_PACKAGES = frozenset({"torch", "builtins", "typing", "abc"})


class ByAttributes(Container):
    """An object that is the attributes it holds: what was chosen and what it counts look alike, so all are state."""

    kind: Kind = "live"
    has_identity = True
    holds_settings = True

    def subject(self, obj: Any) -> Any:
        """Whose class and attributes count."""
        return obj

    def attributes(self, obj: Any) -> Children:
        """What is captured, by name, sorted."""
        return dict(sorted(vars(obj).items()))

    def put(self, obj: Any, name: str, value: Any) -> None:
        """Sets an attribute that is a value."""
        vars(obj)[name] = value

    def remove(self, obj: Any, name: str) -> None:
        """Takes away what was not there before, when the state from before is put back."""
        del vars(obj)[name]

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the attributes' trees; the class and its plain attributes are facts, those of `obj` settings."""
        note_class(self.subject(obj), walk)
        return self.attribute_trees(obj, walk)

    def attribute_trees(self, obj: Any, walk: Walk) -> dict[str, Tree]:
        """The attributes' trees, by name."""
        return {name: captured(value, name, walk) for name, value in self.attributes(obj).items()}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Attributes must fit; plain ones that an object sets as it goes may be missing."""
        if not isinstance(tree, dict):
            return [walk.finding(summary(tree), type(obj).__name__, "Build it as the run did.")]
        return list(self._findings(self.attributes(obj), tree, walk))

    def _findings(self, attributes: Children, tree: dict[Any, Tree], walk: Walk) -> Iterator[Finding]:
        for name in sorted(attributes.keys() | tree.keys()):
            if name in tree:
                yield from check_slot(attributes.get(name), tree[name], name, walk)
            else:
                advice = "Build it as the run did, and hand it in before it has been used."
                yield walk.finding("no such attribute", type(attributes[name]).__name__, advice, name)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the attributes that are values, and restores the others in place."""
        attributes = self.attributes(obj)
        for name in sorted(attributes.keys() | tree.keys()):
            if name not in tree:
                self.remove(obj, name)
                continue
            restored = restore_slot(attributes.get(name), tree[name], name, walk)
            if name not in attributes or restored is not attributes[name]:
                self.put(obj, name, restored)
        return obj


def note_class(obj: Any, walk: Walk, *below: Step) -> None:
    """Notes the class of an object at this place, or at the steps `below`, and what it has for all its objects.

    Also what the object has a value of its own for by now (`self.steps += 1`), which a fresh one does not have yet.
    """
    kind = type(obj)
    name, attributes = _facts_of_class(kind)
    walk.fact(name, *below)
    for attribute in attributes:
        walk.fact(repr(getattr(kind, attribute)), *below, attribute)  # as it is now: a class may count, too


def captured(value: Any, name: Step, walk: Walk) -> Tree:
    """The tree of an attribute of an object that holds settings.

    A plain value, of which a network has hundreds, takes the short way: it is its own tree, and a setting.
    """
    if type(value) in PLAIN_TYPES:
        walk.settings[(*walk.path, name)] = value
        return value
    if isinstance(value, torch.Tensor):  # its numbers are state, and its shape and its dtype may become others
        walk.settings[(*walk.path, name, SHAPE)] = "×".join(map(str, value.shape)) or "no axes"
        walk.settings[(*walk.path, name, DTYPE)] = str(value.dtype).removeprefix("torch.")
    tree = walk.capture(value, name)
    if not isinstance(value, np.random.Generator):  # which comes back where none was
        parts = skeleton(value, walk)
        if parts is not None:
            walk.fact(parts, name, PARTS)
    return tree


def is_data(value: Any) -> bool:
    """Whether a value is made of numbers, texts, arrays and tensors alone, under keys that a tree can have."""
    if type(value) is dict:
        return all(type(key) in (str, int) and is_data(part) for key, part in value.items())
    if type(value) in (list, tuple):
        return all(map(is_data, value))
    return type(value) in PLAIN_TYPES or isinstance(value, torch.Tensor | np.ndarray | np.generic)


@lru_cache(maxsize=1024)
def _facts_of_class(kind: type) -> tuple[str, tuple[str, ...]]:
    """Its name, and where a user's class has plain values for all its objects (`class Net(nn.Module): scale = 0.1`)."""
    found: dict[str, Any] = {}
    for cls in reversed(kind.__mro__):
        found |= vars(cls) if cls.__module__.partition(".")[0] not in _OWN_PACKAGES else {}
    plain = sorted(name for name, value in found.items() if type(value) in PLAIN_TYPES)
    return name_of(kind), tuple(name for name in plain if not name.startswith("_"))
