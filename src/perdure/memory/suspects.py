"""Suspects: what changes from look to look and is not in the snapshot, seen in one process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.adapters.resolve import Resolver
from perdure.memory.examiner import held_by
from perdure.memory.frames import looked_at, users_modules
from perdure.memory.look import Roots, Seen, look
from perdure.memory.values import kind_of


@dataclass(frozen=True)
class Suspect:
    """A variable that changes while the run goes on, and that no checkpoint holds."""

    place: str
    """Its access path: `frame main: eps`, `module train: HISTORY`, `component agent.lr_cached`."""
    before: str
    """What it held, shortened."""
    now: str
    """What it holds."""

    def __str__(self) -> str:
        return f"{self.place}: {self.before}, then {self.now}"


class Watch:
    """Remembers the looks of one process."""

    def __init__(self, resolver: Resolver) -> None:
        """Nothing was seen so far."""
        self._resolver = resolver
        self._before: dict[str, Seen] = {}
        self._found: dict[str, Suspect] = {}

    def look(self, live: Mapping[str, Any], handed_in: frozenset[str], counters: tuple[int, ...], frame: Any) -> None:
        """Looks now, from a frame, and compares with the look before.

        Args:
            live: the run's live components.
            handed_in: names of its values: variables of such a name are taken for what is handed in.
            counters: numbers that the run keeps anyway.
            frame: whose variables count, with its callers'.
        """
        held = held_by(live, self._resolver)
        components = {name: obj for name, obj in live.items() if kind_of(obj) is None and name != "process_rng"}
        roots = Roots(components, looked_at(frame), users_modules())
        now = look(roots, held, self._resolver, {}).values
        for path, seen in now.items():
            before = self._before.get(path)
            name = seen.unit.replace(".", " ").split(" ")[-1]
            if before is None or seen.held or before.digest == seen.digest or name in handed_in:
                continue
            if seen.shows not in map(str, counters):
                self._found.setdefault(seen.unit, Suspect(seen.unit, before.shows, seen.shows))
        self._before = now

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """All so far, by place."""
        return tuple(self._found[place] for place in sorted(self._found))
