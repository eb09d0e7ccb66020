"""Parts: what an object holds, each with its step of the access path, and how another value is put there."""

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

from perdure.memory import slots
from perdure.memory.containers import CONTAINERS, is_named_tuple
from perdure.memory.frames import is_users
from perdure.memory.slots import Put

Part = tuple[Any, str, Put | None]
"""An object, the step that leads to it, and how another one gets there; None: in no way."""

CALLABLE = (types.FunctionType, types.MethodType, functools.partial)

_SKIPPED_ATTRIBUTES = frozenset({"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__"})


def parts_of_callable(obj: Any) -> Iterator[Part]:
    """Of a function: what it binds and its attributes; of a method its object; of a partial its arguments."""
    if isinstance(obj, types.FunctionType):
        yield from _closure(obj)
    elif isinstance(obj, types.MethodType):
        yield obj.__self__, ".__self__", None
    else:
        yield obj.func, ".func", None
        yield from ((part, f".args[{at}]", None) for at, part in enumerate(obj.args))
        yield from ((part, f".keywords[{key!r}]", None) for key, part in obj.keywords.items())


def is_plain_class(cls: type) -> bool:
    """A class that the user wrote, or one that holds nothing."""
    if cls.__module__ in ("builtins", "abc", "typing"):
        return cls.__name__ in ("object", "ABC", "Generic", "Protocol")
    return cls.__module__ == "types" or _is_users_class(cls)  # types: SimpleNamespace


def _is_users_class(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    return module is not None and is_users(vars(module).get("__file__"))


def items_of_tuple(obj: tuple[Any, ...], put: Put | None) -> Iterator[Part]:
    """Of a tuple, or of a named one, whose fields are written like this: `state(mu)`."""
    names = getattr(type(obj), "_fields", None) if is_named_tuple(type(obj)) else None
    of_index = slots.of_tuple(obj, put)
    for at, part in enumerate(tuple.__iter__(obj)):
        yield part, f"({names[at]})" if names else f"[{at}]", of_index(at)


def _closure(function: types.FunctionType) -> Iterator[Part]:
    if not is_users(function.__code__.co_filename):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        yield value, f".<{name}>", slots.of_cell(cell)
    for name, value in function.__dict__.items():
        yield value, f".{name}", slots.of_item(function.__dict__, name)


def attributes_of_class(cls: type) -> Iterator[Part]:
    """Of the user's classes; not what their objects look up in another way."""
    if not _is_users_class(cls):
        return
    for name, value in sorted(vars(cls).items()):
        if not (name.startswith("__") and name.endswith("__")) and not hasattr(type(value), "__get__"):
            yield value, f".{name}", slots.of_class(cls, name)


def attributes(obj: Any) -> Iterator[Part]:
    """What stands in an object's dict and slots; what PyTorch keeps in tables under their own names."""
    try:
        attributes = object.__getattribute__(obj, "__dict__")
    except (AttributeError, TypeError):
        attributes = {}
    if type(attributes) is dict:
        for name, value in list(attributes.items()):
            if name in _TABLES and type(value) in CONTAINERS and isinstance(value, dict):
                yield from ((part, f".{key}", slots.of_item(value, key)) for key, part in value.items())
            elif isinstance(name, str) and name not in _SKIPPED_ATTRIBUTES:
                yield value, f".{name}", slots.of_item(attributes, name)
    for cls in type(obj).__mro__:
        for name, descriptor in vars(cls).items():
            if type(descriptor) is types.MemberDescriptorType and name not in _SKIPPED_ATTRIBUTES:
                try:
                    value = descriptor.__get__(obj)
                except AttributeError:  # not assigned
                    continue
                yield value, f".{name}", slots.of_slot(descriptor, obj)


_TABLES = frozenset({"_parameters", "_buffers", "_modules"})
