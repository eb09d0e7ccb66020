"""Omission: components that a run knows by name and leaves out of its checkpoints, at the price of exactness."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.adapters.omitted import Omitted
from perdure.errors import UsageError

_log = logging.getLogger("perdure")


class Omissions:
    """What a run has to do with the components that it leaves out; nothing, unless it was told to."""

    def __init__(self, names: Sequence[str]) -> None:
        """Begins.

        Args:
            names: of the components.

        Raises:
            UsageError: they are no names.
        """
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise UsageError(f"omit={names!r}: a tuple of component names, such as ('replay',).")
        self._names = frozenset(names)

    def __bool__(self) -> bool:
        """Whether anything is left out."""
        return bool(self._names)

    def check(self, components: Mapping[str, Any]) -> None:
        """Refuses names that are no components.

        Raises:
            UsageError: there are some.
        """
        if unknown := sorted(self._names - components.keys()):
            raise UsageError(f"restore: omit={unknown}, but there are no such components: {sorted(components)}.")

    def marked(self, components: dict[str, Any]) -> dict[str, Any]:
        """The components, with what stands for those that are left out in their place."""
        return {name: Omitted(part) if name in self._names else part for name, part in components.items()}

    def unmarked(self, objects: dict[str, Any]) -> dict[str, Any]:
        """The reverse."""
        return {name: part.component if isinstance(part, Omitted) else part for name, part in objects.items()}

    def notices(self, place: str) -> list[str]:
        """What to tell of a resume."""
        told = [f"{name} is as this start made it: omit leaves it out of checkpoints." for name in sorted(self._names)]
        for notice in told:
            _log.warning("%s: %s", place, notice)
        return told
