"""What an object in a configuration consists of: fields, entries, attributes and slots, those of its classes too."""

import dataclasses
import enum
from argparse import Namespace
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from types import BuiltinFunctionType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

Parts = Mapping[Any, Any]

_NAMESPACES = (Namespace, SimpleNamespace, ModuleType)
"""Whose class says nothing: what counts is what they hold."""

_HEAP_TYPE = 1 << 9
"""The flag of classes that Python code defines; objects of others hold more than attributes (a set its elements)."""


class IncomparableError(Exception):
    """Something has no value that a later start could be compared with; the message says where, and why."""


def kind_of(config: Any) -> str | None:
    """The name of the class where that is a choice of its own: another class with the same parts is another thing."""
    if isinstance(config, (*_NAMESPACES, type, partial, Mapping)):
        return None
    is_sequence = isinstance(config, list | tuple) and not hasattr(config, "_fields")
    return None if is_sequence else type(config).__qualname__


def parts_of(config: Any, place: str) -> Parts:
    """The parts by name, key or position.

    Args:
        config: the object.
        place: where it stands, for messages.

    Raises:
        IncomparableError: the object is none that consists of parts, or a field of a dataclass is not set.
    """
    if isinstance(config, partial):
        return {"function": config.func, "args": config.args, "keywords": config.keywords}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return _of_dataclass(config, place)
    if isinstance(config, Mapping):
        return {**config, **_beside(config, config)}
    if isinstance(config, list | tuple):
        entries = dict(enumerate(config)) if not hasattr(config, "_fields") else _named(config)
        return {**entries, **_beside(config, entries)}
    if isinstance(config, type):
        return dict(_of_class(config))
    own = {**getattr(config, "__dict__", {}), **slots_of(config)}
    if _is_opaque(config) or not (own or hasattr(config, "__dict__")):
        raise IncomparableError(f"{place}: a {type(config).__name__} cannot be compared at a resume.")
    return {**dict(_of_class(type(config))), **_without_caches(config, own)}


def slots_of(obj: Any) -> dict[str, Any]:
    """What stands in the slots of an object, also of one that has a `__dict__` beside them."""
    found = {}
    for cls in reversed(type(obj).__mro__):
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            mangled = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") else name
            if not name.endswith("__") and hasattr(obj, mangled):  # `__dict__`, `__weakref__`, a library's own
                found[name] = getattr(obj, mangled)
    return found


def _of_dataclass(config: Any, place: str) -> Parts:
    """The fields, and what else was put there: an attribute without annotation, one that was set later.

    A function under its own name is a method that a decorator has put there (`replace`).
    """
    fields = {}
    for field in dataclasses.fields(config):
        if not hasattr(config, field.name):
            raise IncomparableError(f"{place}: the field {field.name!r} of a {type(config).__name__} is not set.")
        fields[field.name] = getattr(config, field.name)
    own = _without_caches(config, getattr(config, "__dict__", {}))
    shared = {name: part for name, part in _of_class(type(config)) if getattr(part, "__name__", None) != name}
    others = {**shared, **own}
    return {**fields, **{name: part for name, part in others.items() if name not in fields and name[0] != "_"}}


def _named(config: Any) -> Parts:
    return dict(zip(config._fields, config, strict=True))


def _beside(config: Any, entries: Parts) -> Parts:
    """Attributes of an object of a subclass of a container, which it has beside its entries."""
    own = getattr(config, "__dict__", {}) if isinstance(config, dict | list | tuple) else {}
    return {name: part for name, part in own.items() if name not in entries and name[0] != "_"}


def _without_caches(config: Any, own: Parts) -> Parts:
    """What was not computed from the rest, at whatever time."""
    caches = {
        name for cls in type(config).__mro__ for name, part in vars(cls).items() if isinstance(part, cached_property)
    }
    return {name: part for name, part in own.items() if name not in caches}


def _of_class(cls: type) -> Iterator[tuple[str, Any]]:
    """Values that stand in a class and those above it: `class Config: learning_rate = 3e-4`; classes in it likewise."""
    for base in reversed(cls.__mro__):
        for name, part in vars(base).items() if base.__flags__ & _HEAP_TYPE else ():
            if _is_section(part, base):
                yield name, dict(_of_class(part))
            elif not _is_machinery(name, part, base):
                yield name, part


def _is_section(part: Any, cls: type) -> bool:
    """Whether a class that is defined inside of another holds a section of its values: `class Config: class ppo: …`."""
    return isinstance(part, type) and _is_defined_in(part, cls) and not issubclass(part, enum.Enum | BaseException)


def _is_defined_in(part: Any, cls: type) -> bool:
    return getattr(part, "__qualname__", "").startswith(f"{cls.__qualname__}.")


def _is_machinery(name: str, part: Any, cls: type) -> bool:
    """Whether an entry of a class is its own method or descriptor; functions from elsewhere are values."""
    if name.startswith("__") or name == "_abc_impl":
        return True
    if isinstance(part, partial | np.ufunc):
        return False
    is_function = isinstance(part, type | FunctionType | BuiltinFunctionType) or hasattr(part, "__wrapped__")
    if is_function and not isinstance(part, classmethod | staticmethod):
        return _is_defined_in(part, cls)
    return hasattr(part, "__get__")


def _is_opaque(config: Any) -> bool:
    """Whether an object is more than its attributes, by a class that is not written in Python."""
    known = (object, *_NAMESPACES)
    return any(not cls.__flags__ & _HEAP_TYPE for cls in type(config).__mro__ if cls not in known)
