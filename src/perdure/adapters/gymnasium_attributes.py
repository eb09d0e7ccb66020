"""Gymnasium's objects by their attributes: what is state, what was chosen when they were built, what cannot be seen."""

import functools
import importlib.metadata
import inspect
import marshal
import re
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from enum import Enum
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from perdure.adapters.containers import Children
from perdure.adapters.gymnasium_versions import STATISTICS_OF_SINGLE, STATISTICS_OF_VECTORS, WRAPPERS
from perdure.adapters.walk import Walk
from perdure.contract.facts import LONGEST_TEXT, facts_in
from perdure.contract.naming import name_of
from perdure.errors import CaptureError
from perdure.format.digests import digest_of
from perdure.tree.leaves import PLAIN_TYPES
from perdure.tree.paths import format_path

CHOSEN = frozenset(
    {"_cached_spec", "_ezpickle_args", "_ezpickle_kwargs", "_metadata", "_saved_kwargs", "env_fns", "metadata", "spec"}
)
"""Attributes that say how an object was built: facts tell them, as far as they matter."""

RENDERING = frozenset({"render_mode"})
"""Attributes that no step looks at, so that a resume may choose another."""

WALL_CLOCK = frozenset({"episode_start_time", "episode_start_times", "t0", "time_queue"})
"""What RecordEpisodeStatistics knows of real time, which is no state: it starts anew with a restore."""

AUTORESET = "autoreset_mode"
"""What a vector environment does where an episode ends. Chosen, and told by a fact."""

TABLES = frozenset({"P", "initial_state_distrib"})
"""Tables of the toy texts. They are large and follow from the arguments, so a fact tells their digest."""

_SEES_NOTHING_MORE = (*PLAIN_TYPES, np.ndarray, np.generic, np.dtype, np.ufunc, type, types.ModuleType, Enum, frozenset)
_TABLES = (dict, OrderedDict, defaultdict, Counter)
_AROUND_OTHERS = (*WRAPPERS, gymnasium.vector.SyncVectorEnv)
_GYMNASIUM = (gymnasium.Env, gymnasium.vector.VectorEnv, gymnasium.Space, EnvSpec)


def state_of(obj: Any) -> Children:
    """The attributes that are state, by name, sorted: objects that set theirs in another order agree.

    Spaces may be attributes of the class.
    """
    skipped = CHOSEN | RENDERING
    if isinstance(obj, (*STATISTICS_OF_SINGLE, *STATISTICS_OF_VECTORS)):
        skipped |= WALL_CLOCK
    if has_table(obj):
        skipped |= TABLES
    if isinstance(obj, gymnasium.vector.VectorEnv):
        skipped |= {AUTORESET, "_actions"}  # the actions of a step that is done: an iterator, in 0.29
    spaces = {name: getattr(type(obj), name) for name in _spaces_of(type(obj))}
    return {name: value for name, value in sorted({**spaces, **vars(obj)}.items()) if name not in skipped}


@functools.lru_cache(maxsize=1024)
def _spaces_of(kind: type) -> tuple[str, ...]:
    names = {name for cls in kind.__mro__ for name in vars(cls)}
    return tuple(name for name in sorted(names) if isinstance(getattr(kind, name, None), gymnasium.Space))


def has_table(obj: Any) -> bool:
    """Whether the object is one of Gymnasium's toy texts, or of a subclass."""
    return _is_toy_text(type(obj))


@functools.lru_cache(maxsize=1024)
def _is_toy_text(kind: type) -> bool:
    return any(cls.__module__.startswith("gymnasium.envs.toy_text.") for cls in kind.__mro__)


def note_choices(obj: Any, walk: Walk) -> None:
    """Notes as facts how the object was built: the arguments of a wrapper, the id and the arguments of an environment.

    Facts of the component are the versions of Gymnasium and of the packages that define the dynamics.
    """
    for package, version in _versions(type(obj)):
        walk.facts[(walk.path[0], package)] = version
    _note_arguments(getattr(obj, "_saved_kwargs", {}), walk, "arguments")
    if not isinstance(obj, _AROUND_OTHERS) and obj.spec is not None:
        walk.fact(obj.spec.id, "spec")
        arguments = {name: value for name, value in obj.spec.kwargs.items() if name not in RENDERING}
        _note_arguments(arguments, walk, "spec", "arguments")
    if isinstance(obj, gymnasium.vector.VectorEnv) and AUTORESET in vars(obj):
        walk.fact(vars(obj)[AUTORESET].value, AUTORESET)
    for name in TABLES & vars(obj).keys() if has_table(obj) else ():
        # Only digested, never read back. The text of a table would take fifty times as long, at every boundary.
        walk.fact(f"table {digest_of(marshal.dumps(vars(obj)[name], 2))}", name)


_ENGINES = {"gymnasium.envs.mujoco": "mujoco", "gymnasium.envs.box2d": "Box2D"}
"""Packages that do the work for modules of Gymnasium."""


@functools.lru_cache(maxsize=1024)
def _versions(kind: type) -> tuple[tuple[str, str], ...]:
    """The packages of the class and of those it inherits from, and of their engines, as far as they have versions."""
    modules = [cls.__module__ for cls in kind.__mro__]
    engines = {engine for start, engine in _ENGINES.items() for name in modules if name.startswith(start)}
    packages = {name.split(".")[0] for name in modules} | engines | {"gymnasium"}
    known = {name: _version_of(name) for name in sorted(packages - {"builtins", "typing", "abc"})}
    return tuple((name, version) for name, version in known.items() if version is not None)


def _version_of(package: str) -> str | None:
    version = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(version, str):
        return version
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # a script, or a package that is not installed
        return None


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
"""Where an object lies in memory, as its text tells: elsewhere in each process."""


def note_space(space: gymnasium.Space[Any], walk: Walk) -> None:
    """Notes as a fact what a space contains. Functions of it (MiniGrid's missions) count by their names."""
    text = _ADDRESS.sub("", repr(space))
    walk.fact(text if len(text) <= LONGEST_TEXT else f"{type(space).__name__}, {digest_of(text.encode())}")


def _note_arguments(arguments: dict[str, Any], walk: Walk, *below: str) -> None:
    if not arguments:  # the usual case, at every boundary
        return
    for path, text in facts_in(arguments):
        walk.fact(text, *below, *path)


def refuse_hidden_state(obj: Any, attributes: Children, walk: Walk) -> None:
    """Refuses attributes behind which state may stand that a walk over attributes cannot see.

    Plain data that a function binds is a fact, and need not be refused: a resume compares it.

    Raises:
        CaptureError: attributes in slots, methods of objects that are not written in Python, functions that bind
            objects.
    """
    place = format_path(walk.path)
    slots = _slots_of(type(obj))
    if slots:
        raise CaptureError(
            f"{place}: {type(obj).__qualname__} keeps {', '.join(slots)} in __slots__, where perdure does not look. "
            "Remove __slots__, or give the class state_dict() and load_state_dict()."
        )
    refuse_hidden_functions(obj, attributes, walk)


def refuse_hidden_functions(obj: Any, attributes: Children, walk: Walk) -> None:
    """Refuses functions among the attributes that bind objects, and methods of objects not written in Python.

    Raises:
        CaptureError: there is one.
    """
    for name, value in attributes.items():
        for hidden in () if type(value) in PLAIN_TYPES else _hidden(value):
            raise CaptureError(
                f"{format_path(walk.path)}/{name}: {hidden}, whose state a checkpoint would miss. Keep it as an "
                f"attribute of the {type(obj).__qualname__} itself, or give the class state_dict() and "
                "load_state_dict()."
            )


@functools.lru_cache(maxsize=1024)
def _slots_of(kind: type) -> list[str]:
    """The slots of a class and of those it inherits from."""
    found = [cls.__dict__.get("__slots__", ()) for cls in kind.__mro__]
    slots = [slot for each in found for slot in ([each] if isinstance(each, str) else each)]
    return [slot for slot in slots if slot not in ("__dict__", "__weakref__")]


def _hidden(value: Any) -> Iterator[str]:
    """Objects behind the functions in an attribute, each described; nothing of what adapters see."""
    if isinstance(value, types.FunctionType):
        yield from _bound_objects(value)
    elif isinstance(value, types.BuiltinFunctionType):
        if not isinstance(value.__self__, types.ModuleType | type | None):
            yield f"the method {value.__name__} of {_described(value.__self__)}"
    elif isinstance(value, functools.partial):
        yield from _hidden_in_fact(value.func)
        yield from _hidden([*value.args, *value.keywords.values()])
    elif type(value) in (list, tuple, deque):
        for item in value:
            yield from _hidden(item)
    elif type(value) in _TABLES:
        yield from _hidden_in_fact(getattr(value, "default_factory", None))
        for item in value.values():
            yield from _hidden(item)
    elif callable(value) and not isinstance(value, type) and hasattr(value, "__wrapped__"):
        yield from _hidden_in_fact(inspect.unwrap(value))


def _hidden_in_fact(function: Any) -> Iterator[str]:
    """The same where a method, too, counts by its name alone."""
    if not isinstance(function, types.MethodType):
        yield from _hidden(function)
    elif not isinstance(function.__self__, (type, *_GYMNASIUM)):
        yield f"the method {function.__name__} of {_described(function.__self__)}"


def _bound_objects(function: types.FunctionType) -> Iterator[str]:
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        if isinstance(content, types.FunctionType) and content is not function:
            yield from _bound_objects(content)
        elif content is not function and _may_hold_state(content):
            yield f"the function {function.__qualname__} binds {name}, {_described(content)}"
    for content in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if _may_hold_state(content):
            yield f"the function {function.__qualname__} has a default that is {_described(content)}"


def _may_hold_state(value: Any) -> bool:
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
        return any(True for _ in _hidden(value))
    if type(value) in (list, tuple, deque):
        return any(map(_may_hold_state, value))
    if type(value) in _TABLES:
        return any(map(_may_hold_state, value.values()))
    return not isinstance(value, (*_SEES_NOTHING_MORE, *_GYMNASIUM))


def _described(value: Any) -> str:
    return f"an object of {name_of(type(value))}"
