"""What stands in a pickle that was read without being run, in the place of objects, names and keys of code."""

from dataclasses import dataclass, field
from typing import Any

NOTHING = object()
"""The state of a record that was given none."""


@dataclass(frozen=True)
class Name:
    """The name of a class or function, as text. It is never looked up."""

    module: str
    """Dotted name of the module."""
    name: str
    """Qualified name in the module."""

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, repr=False)
class Record:
    """An object that unpickling would have made by a call; here nothing was called."""

    made_by: Name
    """The class or function that would have been called."""
    arguments: tuple[Any, ...]
    """What it would have been called with."""
    is_class: bool
    """True for `NEWOBJ`: `made_by` is the class itself."""
    state: Any = NOTHING
    """What would have been handed to `__setstate__`."""
    items: list[Any] = field(default_factory=list)
    """What would have been appended, or added to a set."""
    entries: dict[Any, Any] = field(default_factory=dict)
    """What would have been set by key."""


@dataclass(frozen=True, eq=False)
class PersistentId:
    """What the writer kept outside of the pickle, by the name that it gave it."""

    value: Any
    """The name: whatever was pickled in its place."""


@dataclass(frozen=True, eq=False)
class OddKey:
    """A key of a mapping that is neither text nor an integer. No two are equal, for keys are never hashed here."""

    value: Any
    """What stood there as the key."""
