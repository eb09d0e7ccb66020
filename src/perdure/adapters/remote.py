"""Objects in another process: captured, checked and restored there, by the same adapters, by messages that go between.

A message is a tree of leaves with a few texts. It travels through a pipe between processes of one program, which
pickles it; nothing that was read from a file is ever unpickled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from perdure import errors
from perdure.adapters.resettable import Resettable
from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError, Finding, RestoreError
from perdure.tree.leaves import Array, Tree, children, memory_axes
from perdure.tree.paths import Path, Step, format_path

Verb = Literal["capture", "check", "restore"]
View = Literal["whole", "resettable"]
"""All of an object's state, or that of environments which are reset at each checkpoint."""


@dataclass(frozen=True)
class Request:
    """What is to be done with an object elsewhere."""

    verb: Verb
    """What."""
    path: Path
    """Where the object stands in the run."""
    tree: Tree = None
    """For `check` and `restore`: its saved state."""
    made: Mapping[Path, str] = field(default_factory=dict)
    """For `check` and `restore`: the ids of the adapters that made it."""
    view: View = "whole"
    """How much of the object counts."""


@dataclass(frozen=True)
class Reply:
    """What came of it."""

    tree: Tree = None
    """Of `capture`: the state."""
    findings: tuple[Finding, ...] = ()
    """Of `check`: why the state does not fit."""
    facts: Mapping[Path, str] = field(default_factory=dict)
    """Of `capture`: functions, classes and dtypes on the way."""
    made: Mapping[Path, str] = field(default_factory=dict)
    """Of `capture`: the ids of adapters on the way."""
    weakest: tuple[str, str] | None = None
    """Of `capture`: the weakest class that was met, and why."""
    problem: tuple[str, str] | None = None
    """The name of an exception, and its text, if it failed."""


def request(verb: Verb, walk: Walk, tree: Tree, *below: Step, view: View = "whole") -> Request:
    """A request for the object that stands at the steps `below` of the walk's place."""
    path = (*walk.path, *below)
    return Request(verb, path, _packed(tree), {} if verb == "capture" else walk.saved_made(*below), view)


def answer(obj: Any, asked: Request, resolver: Resolver) -> Reply:
    """Does what was asked with the object, which lives in this process. Errors are part of the reply."""
    walk = Walk(resolver, asked.made, asked.path[:-1])
    try:
        return _DO[asked.verb](obj if asked.view == "whole" else Resettable(obj), asked, walk)
    except Exception as error:  # noqa: BLE001 - whoever asked raises it
        return Reply(problem=(type(error).__name__, str(error)))


def taken(reply: Reply, walk: Walk) -> Reply:
    """The reply with its tree ready for use; what was noted there is noted here too.

    Raises:
        CaptureError: the object cannot be captured; as it was raised there.
        RuntimeError: anything else that failed there.
    """
    if reply.problem is not None:
        name, text = reply.problem
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, CaptureError):
            raise kind(text)
        raise RuntimeError(f"{name}: {text}")
    walk.facts.update(reply.facts)
    walk.made.update(reply.made)
    if reply.weakest is not None:
        walk.weaken(*reply.weakest)
    return replace(reply, tree=_unpacked(reply.tree))


def refusal(asked: Request, problem: str) -> Reply:
    """The reply where the object that was asked for cannot be captured."""
    return Reply(problem=(CaptureError.__name__, f"{format_path(asked.path)}: {problem}"))


def not_restored(reply: Reply, path: Path) -> Exception:
    """What to raise where the object at `path` could not be restored in its process, which says why."""
    name, text = reply.problem or ("", "")
    if name == RestoreError.__name__:  # of a class that speaks for itself: the place is named
        return RestoreError(text)
    return RuntimeError(f"{format_path(path)}, in its worker: {name}: {text}")


def _capture(obj: Any, asked: Request, walk: Walk) -> Reply:
    tree = _packed(walk.capture(obj, asked.path[-1]))
    return Reply(tree, (), walk.facts, walk.made, walk.weakest.get(asked.path[0]))


def _check(obj: Any, asked: Request, walk: Walk) -> Reply:
    return Reply(findings=tuple(walk.check(obj, _unpacked(asked.tree), asked.path[-1])))


def _restore(obj: Any, asked: Request, walk: Walk) -> Reply:
    restored = walk.restore(obj, _unpacked(asked.tree), asked.path[-1])
    for restore_rng in walk.postponed:
        restore_rng()
    if restored is not obj:
        raise TypeError(f"a {type(obj).__qualname__} cannot be restored in place")
    return Reply()


_DO: Mapping[Verb, Callable[[Any, Request, Walk], Reply]] = {
    "capture": _capture,
    "check": _check,
    "restore": _restore,
}


@dataclass(frozen=True, eq=False)
class _Permuted:
    """An array leaf whose memory order is neither C's nor Fortran's: pickling alone would lose it."""

    leaf: Array
    axes: tuple[int, ...]


def _packed(tree: Tree) -> Tree:
    if isinstance(tree, Array):
        axes = memory_axes(tree.value)
        if tree.value.flags.c_contiguous or tree.value.flags.f_contiguous or axes == tuple(range(tree.value.ndim)):
            return tree
        return _Permuted(replace(tree, value=np.ascontiguousarray(tree.value.transpose(axes))), axes)
    return _each(_packed, tree)


def _unpacked(tree: Tree) -> Tree:
    if isinstance(tree, _Permuted):
        return replace(tree.leaf, value=tree.leaf.value.transpose(np.argsort(tree.axes)))
    return _each(_unpacked, tree)


def _each(change: Callable[[Tree], Tree], tree: Tree) -> Tree:
    if isinstance(tree, dict):
        return {step: change(child) for step, child in children(tree)}
    if isinstance(tree, list | tuple):
        return type(tree)(change(child) for child in tree)
    return tree
