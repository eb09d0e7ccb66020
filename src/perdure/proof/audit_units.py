"""What differs after a resume, in units: a variable, an attribute, or an object of a library with all its parts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perdure.memory.look import Seen
from perdure.memory.values import DATA


@dataclass(frozen=True)
class Unit:
    """One thing that no checkpoint holds."""

    place: str
    """Its access path."""
    paths: tuple[str, ...]
    """Those of its parts that differ."""
    first: str
    """What the straight run holds in the first of them."""
    second: str
    """What the other look holds there."""

    @property
    def is_value(self) -> bool:
        """Whether it is one value as a whole, or fields of a named tuple: `state(mu)`."""
        return self.paths == (self.place,) or all(path.startswith(f"{self.place}(") for path in self.paths)


def differing(first: Mapping[str, Seen], second: Mapping[str, Seen]) -> dict[str, Unit]:
    """What differs between two looks, by place, without what the snapshot holds in both and what only one look has."""
    parts: dict[str, list[str]] = {}
    for path, seen in first.items():
        other = second.get(path)
        # Held on one side only: a reference to what was restored, where the straight run keeps something of its own.
        if other is not None and other.digest != seen.digest and not (seen.held and other.held):
            parts.setdefault(seen.unit, []).append(path)
    return {place: _unit(place, paths, first, second) for place, paths in parts.items()}


def _unit(place: str, paths: list[str], first: Mapping[str, Seen], second: Mapping[str, Seen]) -> Unit:
    telling = min(paths, key=lambda path: (first[path].shows == second[path].shows, first[path].kind != DATA))
    return Unit(place, tuple(paths), first[telling].shows, second[telling].shows)


def only(units: Mapping[str, Unit], agreed: Mapping[str, Seen], also: Mapping[str, Seen]) -> list[Unit]:
    """Those units, with those parts, in which two straight runs agree."""
    found = []
    for unit in units.values():
        paths = tuple(path for path in unit.paths if path in also and also[path].digest == agreed[path].digest)
        if paths:
            found.append(Unit(unit.place, paths, unit.first, unit.second))
    return found


def paths_of(units: Iterable[Unit]) -> list[str]:
    """All parts."""
    return [path for unit in units for path in unit.paths]
