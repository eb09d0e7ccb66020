"""Containers: Python's own, classes that derive from them, named tuples; read without running a method of the user."""

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

CONTAINERS = (list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict, Counter)


def is_subclass_of_container(kind: type) -> bool:
    """Whether a class is a list, a dict, a set or a deque with something added: its content can be read and filled."""
    return kind not in CONTAINERS and issubclass(kind, (list, dict, set, deque))


def is_named_tuple(kind: type) -> bool:
    """Whether a class is a named tuple: the optimizer states of JAX, a step of an environment."""
    return kind is not tuple and issubclass(kind, tuple) and type(vars(kind).get("_fields")) is tuple


def base_of(kind: type) -> Any:
    """The container that a class is, or derives from: whose methods run nothing of the user."""
    return next(cls for cls in kind.__mro__ if cls in CONTAINERS)


def plain_of(obj: Any) -> Any:
    """The content of a subclass of a container as the container alone; anything else is returned as it is."""
    kind = type(obj)
    if not is_subclass_of_container(kind):
        return obj
    if isinstance(obj, dict):
        return OrderedDict(OrderedDict.items(obj)) if isinstance(obj, OrderedDict) else dict(dict.items(obj))
    if isinstance(obj, deque):
        return deque(deque.__iter__(obj), vars(deque)["maxlen"].__get__(obj))
    return base_of(kind)(base_of(kind).__iter__(obj))
