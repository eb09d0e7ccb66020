"""A look: every value that can be reached from components, frames and modules, by its access path.

It draws from no generator and changes nothing; it reads dicts, slots, cells and containers only, so that no property
and no method of the user runs. What it left out it says.
"""

import functools
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

from perdure.adapters.resolve import Resolver
from perdure.memory import slots
from perdure.memory.containers import CONTAINERS, is_named_tuple, is_subclass_of_container
from perdure.memory.parts import (
    CALLABLE,
    Part,
    attributes,
    attributes_of_class,
    is_plain_class,
    items_of_tuple,
    parts_of_callable,
)
from perdure.memory.slots import Put, Target
from perdure.memory.values import digest_of_value, kind_of, memory_of, shown

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
_CALLING = (map, filter)
"""Iterators that call a function of the user for each item."""


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
    """`DATA`, `LIVE`, `TENSOR` or `ITERATOR`."""
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
            if is_subclass_of_container(type(obj)) and not self._is_opaque(type(obj)):
                for part, step, its_put in attributes(obj):
                    self.visit(part, path + step, its_put, unit, depth + 1)
        elif id(obj) not in self._met and id(obj) not in self._without:
            self._met[id(obj)] = obj  # kept, so that no other object gets its identity
            unit = unit or (None if self._is_looked_into(obj) else path)
            for part, step, its_put in self._parts(obj, put):
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
        kind = type(obj)
        if is_named_tuple(kind):  # one value, whatever its class
            return False
        if id(obj) in self._held or isinstance(obj, (*CONTAINERS, type, *CALLABLE)):
            return True
        if callable(getattr(kind, "state_dict", None)) and callable(getattr(kind, "load_state_dict", None)):
            return False
        return all(is_plain_class(cls) for cls in kind.__mro__)

    def _parts(self, obj: Any, put: Put | None) -> Iterator[Part]:
        if isinstance(obj, tuple):
            return items_of_tuple(obj, put)
        if type(obj) in CONTAINERS:
            return self._parts_of_container(obj)
        if isinstance(obj, CALLABLE):
            return parts_of_callable(obj)
        if isinstance(obj, type):
            return attributes_of_class(obj)
        if not self._is_opaque(type(obj)):
            return attributes(obj)
        self._skip(obj)
        return iter(())

    def _skip(self, obj: Any) -> None:
        """Notes what cannot be looked into, if it may hold something."""
        kind = type(obj)
        if isinstance(obj, functools._lru_cache_wrapper):
            if obj.cache_info().currsize:
                self.found.skipped[f"what lru_cache keeps of {obj.__wrapped__.__name__}"] += 1
        elif kind in _CALLING or kind.__module__.partition(".")[0] not in ("builtins", "perdure"):
            self.found.skipped[f"{kind.__module__}.{kind.__qualname__}"] += 1

    def _parts_of_container(self, obj: Any) -> Iterator[Part]:
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
        if kind in _CALLING or kind is functools._lru_cache_wrapper:
            return True
        modules = [cls.__module__.split(".") for cls in kind.__mro__ if isinstance(cls.__module__, str)]
        if any(words[0] == "perdure" and words[1:2] and words[1] in _OF_RUNS for words in modules):
            return True
        return modules[0][0] in _OPAQUE or issubclass(kind, types.ModuleType)


_CALLABLE = (types.FunctionType, types.MethodType, functools.partial)
