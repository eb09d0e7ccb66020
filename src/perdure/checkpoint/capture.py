"""Capture: live objects and values to one snapshot."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.contract.facts import formatted
from perdure.contract.text import Plain
from perdure.errors import CaptureError, UsageError
from perdure.format.nodes import large_leaves
from perdure.tree.leaves import Tree
from perdure.tree.paths import Path, Step
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Component, Snapshot


@dataclass(frozen=True)
class Counters:
    """Where a run stands."""

    env_steps: int = 0
    """Environment steps taken."""
    updates: int = 0
    """Policy updates made."""
    boundary: int = 0
    """Number of the boundary."""


@dataclass(frozen=True)
class Captured:
    """A snapshot and what was learnt on the way."""

    snapshot: Snapshot
    """Its arrays are borrowed: read or own them before the objects change."""
    values: frozenset[str]
    """Names of the components that are values, so that the caller must hand them in again."""
    lives: frozenset[str]
    """Names of the components that hold a live object, so that a restore changes them in place."""
    settings: Mapping[Path, Plain] = field(default_factory=dict)
    """Plain values that were chosen when modules were built (a dropout rate), by path."""


def capture(objects: Mapping[str, Any], resolver: Resolver, counters: Counters) -> Captured:
    """The state of all objects now.

    Args:
        objects: by component name.
        resolver: finds their adapters.
        counters: where the run stands.

    Raises:
        UsageError: a component's name cannot be a file's name.
        CaptureError: an object cannot be turned into a tree.
    """
    check_names(objects)
    walk = Walk(resolver)
    trees = {name: _capture_one(walk, objects[name], name) for name in in_order(objects, resolver)}
    components = {}
    facts, made = _by_component(walk.facts), _by_component(walk.made)
    for name, tree in sorted(trees.items()):
        adapter = resolver.resolve(objects[name], (name,)).id
        told = {path[1:]: fact for path, fact in facts.get(name, {}).items()}
        fidelity, reason = walk.weakest.get(name, ("exact-snapshot", "full state captured"))
        components[name] = Component(adapter, tree, formatted(told), fidelity, reason, made.get(name, {}))
    snapshot = Snapshot(components, counters.env_steps, counters.updates, counters.boundary)
    lives = frozenset(map(str, walk.lives))
    values = frozenset(name for name in objects if name in walk.values or name not in lives)
    return Captured(snapshot, values, lives, walk.settings)


def empty_rings(objects: Mapping[str, Any], resolver: Resolver) -> dict[Path, Rows]:
    """The rings among all objects that hold no rows, by path: their memory may take those of a checkpoint.

    Not rings of JAX arrays, whose memory nobody may write to.

    Raises:
        CaptureError: an object cannot be turned into a tree.
    """
    trees = {name: part.tree for name, part in capture(objects, resolver, Counters()).snapshot.components.items()}
    found = {path: leaf for path, leaf in large_leaves(trees, ()) if isinstance(leaf, Rows)}
    return {path: rows for path, rows in found.items() if rows.start == rows.stop and _is_writable(rows)}


def _is_writable(rows: Rows) -> bool:
    return all(column.flags.writeable for column in rows.columns.values())


def in_order(objects: Mapping[str, Any], resolver: Resolver) -> list[str]:
    """The names in the order of every walk: sorted, but what refers to parts of others after those others.

    Else an optimizer whose name comes first would hold its network's weights, and the network's file none.
    """
    return sorted(objects, key=lambda name: (getattr(resolver.resolve(objects[name], (name,)), "walks_after", 0), name))


def _by_component(noted: Mapping[Path, str]) -> dict[Step, dict[Path, str]]:
    """What a walk noted, by the component that it belongs to."""
    found: dict[Step, dict[Path, str]] = {}
    for path, text in noted.items():
        found.setdefault(path[0], {})[path] = text
    return found


def _capture_one(walk: Walk, obj: Any, name: str) -> Tree:
    try:
        return walk.capture(obj, name)
    except RecursionError as error:
        raise CaptureError(f"{name}: objects are nested too deeply; flatten them.") from error


def check_names(names: Mapping[str, Any]) -> None:
    """Component names become file names.

    Raises:
        UsageError: a name is no identifier, or two differ in upper and lower case only.
    """
    for name in names:
        if not name.isidentifier() or not name.isascii() or name.startswith("_"):
            raise UsageError(f"component name {name!r}: use a plain identifier, for it names a file.")
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            message = f"component names {other!r} and {name!r} differ in case only; some disks cannot tell."
            raise UsageError(message)
