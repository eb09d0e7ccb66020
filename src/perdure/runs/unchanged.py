"""What every resume compares with a fresh start must stay what it was when a run was opened: facts, tensors' names."""

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.adapters.resolve import WITHOUT_TARGET
from perdure.contract.facts import NO_FACT, compare_facts
from perdure.errors import CaptureError
from perdure.tree.leaves import Tree
from perdure.tree.paths import Path, Step, format_path
from perdure.tree.snapshot import Component, Snapshot

_MODULE = "torch-module"
"""The adapter whose trees are flat, and of whose names no restore makes another."""

_WAY_OUT = (
    "Functions, what they bind, classes and dtypes are compared at a resume and never restored, so no checkpoint with "
    "these could be resumed. Keep what changes in an attribute of the environment, wrapper or module itself, or in an "
    "object with state_dict() and load_state_dict(); and build functions and objects of other classes before restore."
)


@dataclass(frozen=True)
class Fixed:
    """What must not change while a run goes on."""

    facts: Mapping[str, Mapping[str, str]]
    """By component, then by formatted path below it."""
    names: Mapping[Path, frozenset[Step]]
    """Of each module of PyTorch, by its place: its tensors and submodules."""
    places: frozenset[Path]
    """Where objects stand that are restored into those of a fresh start."""


def fixed_parts(snapshot: Snapshot) -> Fixed:
    """What must stay as it is in this snapshot of a fresh start."""
    names = {place: found for part in snapshot.components.values() for place, found in _names(part)}
    places = frozenset(place for part in snapshot.components.values() for place in part.made)
    return Fixed({name: part.facts for name, part in snapshot.components.items()}, names, places)


def refuse_changes(opened: Fixed, snapshot: Snapshot) -> None:
    """Refuses a save that no resume could go on from: a function that counts in a variable around it, for instance.

    At the first save at which the change shows, and not at the resume a night later.

    Args:
        opened: what was fixed when the run was opened, as it is in every fresh start.
        snapshot: what would be saved now.

    Raises:
        CaptureError: a fact is another than it was, a module has other weights, or a list has got an object.
    """
    changed = []
    for name, part in snapshot.components.items():
        _refuse_new_objects(opened, part)
        before = opened.facts.get(name, {})
        if part.facts != before:  # the unusual case: this runs at every save
            changed += compare_facts(name, before, part.facts)
        for place, found in _names(part):
            if found != opened.names.get(place, found):
                raise CaptureError(_other_names(place, opened.names[place], found))
    if changed:
        shown = "; ".join(
            f"{each.key}: {_told(each.saved)} when the run was opened, {_told(each.found)} now" for each in changed
        )
        raise CaptureError(f"{shown}. {_WAY_OUT}")


_CONTAINERS = frozenset({"counter", "dataclass", "default-dict", "deque", "named-tuple", "namespace", "ordered-dict"})
"""Ids of adapters, beside the plain ones, that restore part by part into what a fresh start has."""


def _refuse_new_objects(opened: Fixed, part: Component) -> None:
    """A list of plain data may grow; one of objects may not, for a fresh start has no places for them."""
    for place, adapter in part.made.items():
        if place in opened.places or adapter in WITHOUT_TARGET or adapter == _FACT:
            continue
        around = (part.made.get(place[:depth]) for depth in range(1, len(place)))
        if all(each is None or each in _CONTAINERS for each in around):
            kind = f"a {adapter} has come since the run was opened"
            problem = f"{kind}, for which a fresh start has no place, so no checkpoint with it could be resumed"
            way_out = "Keep plain values, arrays or tensors there, or an object with state_dict() and load_state_dict()"
            raise CaptureError(f"{format_path(place)}: {problem}. {way_out}.")


_FACT = "fact"
"""What has none but a name: compared as such."""


def _told(text: str) -> str:
    return "nothing" if text == NO_FACT else text


def _other_names(place: Path, before: frozenset[Step], found: frozenset[Step]) -> str:
    new, gone = (", ".join(sorted(map(str, names))) for names in (found - before, before - found))
    change = " and ".join(filter(None, (new and f"has got {new}", gone and f"has lost {gone}")))
    return (
        f"{format_path(place)}: the module {change} since the run was opened. A fresh start has no place for that, so "
        "no checkpoint with it could be resumed. Build every part, parameter and buffer before restore."
    )


def _names(part: Component) -> list[tuple[Path, frozenset[Step]]]:
    places = [place for place, adapter in part.made.items() if adapter == _MODULE]
    trees = [(place, _below(part.tree, place[1:])) for place in places]
    return [(place, frozenset(tree)) for place, tree in trees if isinstance(tree, Mapping)]


def _below(tree: Tree, path: Path) -> Tree:
    for step in path:
        tree = tree[step]
    return tree
