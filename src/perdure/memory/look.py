"""A look: every value that can be reached from components, frames and modules, by its access path.

It draws from no generator and changes nothing; it reads dicts, slots, cells and containers only, so that no property
and no method of the user runs. What it left out it says.
"""

import functools
import sys
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

from perdure.adapters.resolve import Resolver
from perdure.memory import slots
from perdure.memory.frames import is_users
from perdure.memory.slots import Put, Target
from perdure.memory.values import CONTAINERS, digest_of_value, kind_of, memory_of, shown

MOST_VALUES = 50_000
"""Of one look."""
DEEPEST = 16
"""Steps of an access path."""
MOST_PARTS = 10_000
"""Of a container that is looked into."""

_OPAQUE = frozenset({"_io", "_thread", "_weakref", "abc", "asyncio", "concurrent", "ctypes", "importlib", "inspect"})
_OPAQUE |= {"io", "jax", "jaxlib", "logging", "matplotlib", "multiprocessing", "pathlib", "re", "rich", "socket"}
_OPAQUE |= {"subprocess", "tempfile", "tensorboard", "threading", "tqdm", "typing", "unittest", "wandb"}
_OPAQUE |= {"weakref"}
"""Packages whose objects hold nothing that a training reads: handles, caches, compiled functions."""
_OF_RUNS = frozenset(
    ("checkpoint", "cli", "contract", "errors", "format", "memory", "proof", "runs", "sinks", "store", "tree")
)
"""perdure's own, which look after themselves."""
_SKIPPED_ATTRIBUTES = frozenset({"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__"})


@dataclass(frozen=True)
class Seen:
    """One value of a look."""

    digest: str
    """Of the value."""
    shows: str
    """The value, shortened."""
    unit: str
    """The access path of what it is a part of: a variable, an attribute, or an object of a library as a whole."""
    kind: str
    """`DATA`, `LIVE` or `ITERATOR`."""
    held: bool
    """Whether the snapshot holds this very object."""


@dataclass
class Look:
    """What was found."""

    values: dict[str, Seen] = field(default_factory=dict)
    """By access path."""
    targets: dict[str, Target] = field(default_factory=dict)
    """By access path, for who wants to put another value there."""
    sharing: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """The access paths that lead to one memory (`memory_of`)."""
    skipped: Counter[str] = field(default_factory=Counter)
    """What was left out, and how often."""


@dataclass(frozen=True)
class Roots:
    """Where a look begins."""

    components: Mapping[str, Any] = field(default_factory=dict)
    """Live components by name."""
    frames: Mapping[str, FrameType] = field(default_factory=dict)
    """Functions at work, by name."""
    modules: Mapping[str, ModuleType] = field(default_factory=dict)
    """The user's modules, by name."""


def look(roots: Roots, held: Mapping[int, Any], resolver: Resolver, without: Mapping[int, Any]) -> Look:
    """Looks at everything that the roots lead to.

    Args:
        roots: where it begins.
        held: the objects that the snapshot holds, by identity.
        resolver: finds the adapters of arrays and generators.
        without: objects that are not looked into, by identity.
    """
    looker = _Looker(held, resolver, without)
    for name, obj in roots.components.items():
        looker.visit(obj, f"component {name}", None, None, 0)
    for name, frame in roots.frames.items():
        for variable, value in sorted(frame.f_locals.items()):
            if not variable.startswith("."):  # a comprehension's own
                looker.visit(value, f"frame {name}: {variable}", slots.of_local(frame, variable), None, 0)
    for name, module in roots.modules.items():
        for variable, value in sorted(vars(module).items()):
            if not (variable.startswith("__") and variable.endswith("__")):
                put = slots.of_item(vars(module), variable)
                looker.visit(value, f"module {name}: {variable}", put, None, 0)
    return looker.found


class _Looker:
    def __init__(self, held: Mapping[int, Any], resolver: Resolver, without: Mapping[int, Any]) -> None:
        self.found = Look()
        self._held, self._resolver, self._without = held, resolver, without
        self._met: dict[int, Any] = {}

    def visit(self, obj: Any, path: str, put: Put | None, unit: str | None, depth: int) -> None:
        """Takes in an object and what it holds."""
        if len(self.found.values) >= MOST_VALUES or depth > DEEPEST:
            self.found.skipped["too many values, or too deep"] += 1
        elif kind_of(obj) is not None:
            self._note(obj, path, put, unit or path)
        elif id(obj) not in self._met and id(obj) not in self._without:
            self._met[id(obj)] = obj  # kept, so that no other object gets its identity
            unit = unit or (None if self._is_looked_into(obj) else path)
            for part, step, its_put in self._parts(obj):
                self.visit(part, path + step, its_put, unit, depth + 1)

    def _note(self, obj: Any, path: str, put: Put | None, unit: str) -> None:
        digest = digest_of_value(obj, self._resolver)
        if digest is None:
            self.found.skipped[f"{type(obj).__qualname__} that cannot be read"] += 1
            return
        self.found.values[path] = Seen(digest, shown(obj), unit, kind_of(obj) or "", id(obj) in self._held)
        self.found.targets[path] = Target(obj, put)
        self.found.sharing.setdefault(memory_of(obj), []).append(path)

    def _is_looked_into(self, obj: Any) -> bool:
        """Whether each part of an object is a finding of its own: the user's objects, containers, functions."""
        if id(obj) in self._held or isinstance(obj, (*CONTAINERS, type, *_CALLABLE)):
            return True
        kind = type(obj)
        if callable(getattr(kind, "state_dict", None)) and callable(getattr(kind, "load_state_dict", None)):
            return False
        return all(_is_plain_class(cls) for cls in kind.__mro__)

    def _parts(self, obj: Any) -> Iterator[tuple[Any, str, Put | None]]:
        kind = type(obj)
        if kind in CONTAINERS:
            yield from self._parts_of_container(obj)
        elif isinstance(obj, types.FunctionType):
            yield from _closure(obj)
        elif isinstance(obj, types.MethodType):
            yield obj.__self__, ".__self__", None
        elif isinstance(obj, functools.partial):
            yield obj.func, ".func", None
            yield from ((part, f".args[{at}]", None) for at, part in enumerate(obj.args))
            yield from ((part, f".keywords[{key!r}]", None) for key, part in obj.keywords.items())
        elif isinstance(obj, type):
            yield from _class(obj)
        elif self._is_opaque(kind):
            if kind.__module__ != "builtins" and kind.__module__.partition(".")[0] != "perdure":
                self.found.skipped[f"{kind.__module__}.{kind.__qualname__}"] += 1
        else:
            yield from _attributes(obj)

    def _parts_of_container(self, obj: Any) -> Iterator[tuple[Any, str, Put | None]]:
        if len(obj) > MOST_PARTS:
            self.found.skipped["a container of too many parts"] += 1
        elif isinstance(obj, dict):
            for at, (key, part) in enumerate(obj.items()):
                step = f"[{key!r}]" if type(key) in (str, int) else f"[key {at}]"
                yield part, step, slots.of_item(obj, key)
        else:
            is_indexed = hasattr(obj, "__setitem__")
            for at, part in enumerate(obj):
                yield part, f"[{at}]", slots.of_item(obj, at) if is_indexed else None

    @staticmethod
    def _is_opaque(kind: type) -> bool:
        modules = [cls.__module__.split(".") for cls in kind.__mro__ if isinstance(cls.__module__, str)]
        if any(words[0] == "perdure" and words[1:2] and words[1] in _OF_RUNS for words in modules):
            return True
        return modules[0][0] in _OPAQUE or issubclass(kind, types.ModuleType)


_CALLABLE = (types.FunctionType, types.MethodType, functools.partial)


def _is_plain_class(cls: type) -> bool:
    """A class that the user wrote, or one that holds nothing."""
    if cls.__module__ in ("builtins", "abc", "typing"):
        return cls.__name__ in ("object", "ABC", "Generic", "Protocol")
    return cls.__module__ == "types" or _is_users_class(cls)  # types: SimpleNamespace


def _is_users_class(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    return module is not None and is_users(vars(module).get("__file__"))


def _closure(function: types.FunctionType) -> Iterator[tuple[Any, str, Put | None]]:
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


def _class(cls: type) -> Iterator[tuple[Any, str, Put | None]]:
    if not _is_users_class(cls):
        return
    for name, value in sorted(vars(cls).items()):
        if not (name.startswith("__") and name.endswith("__")) and not hasattr(type(value), "__get__"):
            yield value, f".{name}", slots.of_class(cls, name)


def _attributes(obj: Any) -> Iterator[tuple[Any, str, Put | None]]:
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
