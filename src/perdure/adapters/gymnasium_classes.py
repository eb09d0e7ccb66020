"""Classes of plain Python objects: which ones are, what an object of one holds, and how one is made from its name."""

import enum
import sys
import types
from functools import lru_cache
from typing import Any

from perdure.contract.naming import full_name_of

_POINTER_BYTES = tuple.__itemsize__


@lru_cache(maxsize=1024)
def is_plain(kind: type) -> bool:
    """Whether objects of the class are what `__dict__` and `__slots__` hold, and can be made without running its code.

    Memory that a class written in C adds for itself would be missed. A finaliser would run with the state that a
    file holds, which is no way to treat files.
    """
    if getattr(kind, "__module__", "builtins") == "builtins" or issubclass(
        kind, type | enum.Enum | types.ModuleType | BaseException
    ):
        return False
    # Of the class as it is, not of its layout: `__new__` may have been written for it.
    runs_code = kind.__new__ is not object.__new__ or any("__del__" in vars(cls) for cls in kind.__mro__)
    return not runs_code and kind.__itemsize__ == 0 and kind.__basicsize__ <= _size_of_what_is_seen(kind)


def _size_of_what_is_seen(kind: type) -> int:
    """Bytes of an object that has nothing but its dict, its weak references and its slots."""
    dictionary = _POINTER_BYTES if kind.__dictoffset__ > 0 else 0
    references = _POINTER_BYTES if kind.__weakrefoffset__ > 0 else 0
    return object.__basicsize__ + dictionary + references + _POINTER_BYTES * len(_slots(kind))


@lru_cache(maxsize=1024)
def _slots(kind: type) -> dict[str, types.MemberDescriptorType]:
    return {
        name: member
        for cls in reversed(kind.__mro__)
        for name, member in vars(cls).items()
        if isinstance(member, types.MemberDescriptorType)
    }


def attributes_of(obj: Any) -> dict[str, Any]:
    """What the object holds, by attribute, sorted: objects that set theirs in another order agree."""
    found = dict(getattr(obj, "__dict__", {}))
    for name, slot in _slots(type(obj)).items():
        try:
            found[name] = slot.__get__(obj, type(obj))
        except AttributeError:  # not set yet
            continue
    return dict(sorted(found.items()))


def set_attributes(obj: Any, attributes: dict[str, Any]) -> None:
    """Makes these, and no others, the object's attributes. None of its own code runs: a frozen dataclass will do."""
    slots = _slots(type(obj))
    for name in attributes_of(obj).keys() - attributes.keys():
        slots[name].__delete__(obj) if name in slots else vars(obj).pop(name)
    for name, value in attributes.items():
        slots[name].__set__(obj, value) if name in slots else vars(obj).__setitem__(name, value)


def class_name(kind: type) -> str:
    """The name by which `find_class` finds it in another process."""
    return full_name_of(kind)


def find_class(name: str) -> type | None:
    """The class of that name in a module that is imported already; None if there is none. Nothing is imported."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        for module in (sys.modules.get(".".join(parts[:cut])), sys.modules.get("__main__")):
            found: Any = module
            for part in parts[cut:]:
                found = vars(found).get(part) if isinstance(found, type | types.ModuleType) else None
            if isinstance(found, type) and class_name(found) == name:
                return found
    return None


def constant_name(obj: Any) -> str | None:
    """The name of an object that the module of its class holds: code may ask whether something is that very object."""
    module = sys.modules.get(type(obj).__module__)
    names = (name for name, value in vars(module).items() if value is obj) if module is not None else ()
    return next((f"{type(obj).__module__}:{name}" for name in names), None)


def find_constant(name: str) -> Any:
    """The object of that name in a module that is imported already; None if there is none."""
    module, _, attribute = name.partition(":")
    found = vars(sys.modules[module]).get(attribute) if module in sys.modules else None
    return found if is_plain(type(found)) else None
