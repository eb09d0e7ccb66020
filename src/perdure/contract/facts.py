"""Facts: what functions, classes and dtypes are called and what closures bind; compared, never stored as state."""

import dataclasses
import enum
from argparse import Namespace
from collections import deque
from collections.abc import Iterator, Mapping, Set
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from perdure.contract.naming import name_of
from perdure.contract.parts import slots_of
from perdure.contract.sections import RULES
from perdure.errors import Finding
from perdure.format.digests import digest_of
from perdure.tree.paths import Path, format_path

T = TypeVar("T")

LONGEST_TEXT = 200
"""A value in a closure whose text is longer than this is told by a digest."""

LARGEST_ARRAY_BYTES = 1 << 20
"""A larger array in a closure is told by dtype and shape alone, for facts are taken at every boundary."""

MOST_PARTS = 100
"""A container in a closure that holds more facts than this is told by one digest."""

TRACE = "traced"
"""Last step of a fact that holds the digest of a traced function: `DIGEST under VERSION`."""

_UNDER = " under "
NO_FACT = "no function"
"""Where one side has none."""

_ADVICE = "Build it with the function, class or dtype that the run used, or accept the change."
_READABLE = (bool, int, float, complex, str, bytes)
_NAMED = FunctionType | BuiltinFunctionType | ModuleType | type | np.dtype | np.ufunc
_CONTAINERS = Mapping | list | tuple | deque
_LIVE_PACKAGES = frozenset({"flax", "torch"})


def facts_of(function: Any) -> Iterator[tuple[Path, str]]:
    """The function's name at the empty path, and below it everything readable that its closure binds.

    Hyper-parameters of optax live there: `optax.sgd(0.1)` is a function that binds `step_size`.
    """
    seen: set[int] = set()
    yield (), name_of(function)
    if isinstance(function, FunctionType):
        yield from _bound(function, (), seen)
    elif not isinstance(function, type):
        yield from ((path, text) for path, text in _object(function, (), seen) if path)


def facts_in(value: Any) -> Iterator[tuple[Path, str]]:
    """Everything readable that a value holds, itself at the empty path."""
    return _value(value, (), set())


def _bound(function: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, str]]:
    cells = getattr(function, "__closure__", None)
    if not cells or id(function) in seen:
        return
    seen.add(id(function))
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        yield from _value(value, (*path, name), seen)


def _value(value: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, str]]:
    if type(value) in _READABLE:
        yield path, _short(repr(value), value)
    elif isinstance(value, enum.Enum):
        yield path, f"{type(value).__name__}.{value.name}"
    elif isinstance(value, range | PurePath):
        yield path, repr(value) if isinstance(value, range) else f"path {str(value)!r}"
    elif isinstance(value, Set):
        yield path, _short(f"{type(value).__name__} {{{', '.join(sorted(map(_element, value)))}}}", value)
    elif hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type):
        yield path, _array(value)
    elif isinstance(value, _NAMED):
        yield path, name_of(value)
        yield from _bound(value, path, seen)
    elif id(value) not in seen:
        yield from _object(value, path, seen)


def _short(text: str, value: Any) -> str:
    is_long = len(text) > LONGEST_TEXT
    return f"{type(value).__name__} of {len(text)}, {digest_of(text.encode())}" if is_long else text


def _element(value: Any) -> str:
    """An element of a set, or a key: what is readable of it in one text."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_element, value))})"
    facts = list(facts_in(value))
    return facts[0][1] if [path for path, _ in facts] == [()] else repr(facts)


def _array(value: Any) -> str:
    """A number as Python writes it; a longer array by its digest, unless it is large or holds keys."""
    try:
        array = np.asarray(value)
    except (TypeError, NotImplementedError):  # typed keys
        return f"{value.dtype}{list(value.shape)}"
    if array.ndim == 0:
        return repr(array.item())
    kind = f"{array.dtype}{list(array.shape)}"
    return kind if array.nbytes > LARGEST_ARRAY_BYTES else f"{kind} {digest_of(np.ascontiguousarray(array).tobytes())}"


def _object(value: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, str]]:
    """What a container, a partial, a method, a wrapped function or a dataclass holds; nothing of other objects."""
    if isinstance(value, _CONTAINERS):
        seen.add(id(value))
        facts = list(_parts(value, path, seen))
        if len(facts) > MOST_PARTS:
            yield path, f"{type(value).__name__} of {len(value)}, {digest_of(repr(facts).encode())}"
        else:
            yield from facts
    elif isinstance(value, partial):
        seen.add(id(value))
        yield from _value(value.func, path, seen)
        yield from _parts({"args": value.args, "keywords": value.keywords}, path, seen)
    elif isinstance(value, MethodType):
        seen.add(id(value))
        yield path, name_of(value)
        yield from _parts(_attributes(value.__self__), (*path, "self"), seen)
    elif callable(value) and hasattr(value, "__wrapped__"):
        seen.add(id(value))
        yield from _value(getattr(value, "__wrapped__"), path, seen)  # noqa: B009 - no checker knows that it is there
    elif isinstance(value, Namespace | SimpleNamespace):
        seen.add(id(value))
        yield from _parts(vars(value), path, seen)
    elif dataclasses.is_dataclass(value) or _is_of_optax(value):
        seen.add(id(value))
        yield path, name_of(type(value))
        yield from _parts(_attributes(value), path, seen)


def _is_of_optax(value: Any) -> bool:
    """A callable object of optax (`MultiSteps`): it keeps no state, all of it was chosen."""
    return callable(value) and type(value).__module__.startswith("optax.")


def _attributes(value: Any) -> Mapping[Any, Any]:
    """What an object holds; nothing of one that is trained, whose attributes are state."""
    if any(cls.__module__.partition(".")[0] in _LIVE_PACKAGES for cls in type(value).__mro__):
        return {}
    own = {**getattr(value, "__dict__", {}), **slots_of(value)}
    return {**dict(enumerate(value)), **own} if isinstance(value, tuple) else own


def _parts(value: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, str]]:
    for step, part in value.items() if isinstance(value, Mapping) else enumerate(value):
        key = step if isinstance(step, str | int) else _element(step)
        yield from _value(part, (*path, key), seen)


def traced(digest: str, version: str) -> str:
    """The text of a traced fact."""
    return f"{digest}{_UNDER}{version}"


def compare_facts(component: str, saved: Mapping[str, str], found: Mapping[str, str]) -> list[Finding]:
    """Every fact of a component that differs, without those below one that differs already.

    A traced fact decides only where nothing readable beside it differs, and only under one version of the tracer.

    Args:
        component: its name.
        saved: the run's facts, by formatted path below the component.
        found: those of the targets.
    """
    differ = [path for path in sorted(saved.keys() | found.keys()) if saved.get(path) != found.get(path)]
    readable = [path for path in differ if not is_trace(path)]
    shown = [path for path in readable if not any(_is_below(path, other) for other in readable if other != path)]
    traces = [path for path in differ if is_trace(path) and _trace_decides(path, saved, found, readable)]
    return [_finding(component, path, saved, found) for path in sorted(shown + traces)]


def _finding(component: str, path: str, saved: Mapping[str, str], found: Mapping[str, str]) -> Finding:
    old, new = saved.get(path, NO_FACT), found.get(path, NO_FACT)
    rule = RULES["algorithm"]
    key = f"{component}/{path}" if path else component
    return Finding(key, old, new, _ADVICE, "algorithm", rule.meaning, f"{old}:{new}")


def is_trace(path: str) -> bool:
    """Whether the fact at `path` is a trace."""
    return path == TRACE or path.endswith(f"/{TRACE}")


def _trace_decides(path: str, saved: Mapping[str, str], found: Mapping[str, str], readable: list[str]) -> bool:
    if path not in saved or path not in found:
        return False  # the function itself is new or gone, and a finding
    versions = [texts[path].partition(_UNDER)[2] for texts in (saved, found)]
    parent = path.removesuffix(TRACE)
    return versions[0] == versions[1] and not any(other.startswith(parent) for other in readable)


def _is_below(path: str, ancestor: str) -> bool:
    return path.startswith(f"{ancestor}/") if ancestor else bool(path)


def formatted(facts: Mapping[Path, T]) -> dict[str, T]:
    """Facts or settings by formatted path."""
    return {format_path(path): text for path, text in facts.items()}
