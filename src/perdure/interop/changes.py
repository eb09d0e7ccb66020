"""Changes to live modules that can be taken back: all of them are made, or none."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class Change(Protocol):
    """One thing to set, all that could fail of it done before."""

    def apply(self) -> None:
        """Sets it."""
        ...

    def undo(self) -> None:
        """Puts back what was there before `apply`; does nothing if that was not called."""
        ...


def apply_all(changes: Iterable[Change]) -> None:
    """Applies all, or none: what is raised on the way is raised after everything has been put back.

    What could not be put back is told in notes of the error.
    """
    done: list[Change] = []
    try:
        for change in changes:
            done.append(change)
            change.apply()
    except BaseException as error:
        for change in reversed(done):
            try:
                change.undo()
            except Exception as again:  # noqa: BLE001 - the others are put back all the same
                error.add_note(f"A part could not be put back: {again!r}")
        raise


@dataclass
class Setting:
    """A change by two functions."""

    get: Callable[[], Any]
    put: Callable[[Any], None]
    value: Any
    before: Any = None
    is_applied: bool = False

    def apply(self) -> None:
        """See `Change`."""
        self.before = self.get()
        self.is_applied = True
        self.put(self.value)

    def undo(self) -> None:
        """See `Change`."""
        if self.is_applied:
            self.put(self.before)


@dataclass
class Copied:
    """Values copied into a tensor in place, so that whoever holds it sees them."""

    target: Any
    staged: Any
    before: Any = None

    def apply(self) -> None:
        """See `Change`."""
        self.before = self.target.detach().clone()
        _copy(self.target, self.staged)

    def undo(self) -> None:
        """See `Change`."""
        if self.before is not None:
            _copy(self.target, self.before)


def _copy(target: Any, source: Any) -> None:
    import torch

    with torch.no_grad():
        target.copy_(source)
