"""The adapter protocol: how one kind of object becomes a tree and comes back."""

from typing import TYPE_CHECKING, Any, Literal, Protocol

from perdure.errors import Finding
from perdure.tree.leaves import Tree

if TYPE_CHECKING:
    from perdure.adapters.walk import Walk

Kind = Literal["live", "value", "container", "fact"]
"""`live`: restored in place, remembered by the run. `value`: handed in again at each boundary, a new object is
returned. `container`: live if everything in it is, else a value. `fact`: a function, class or dtype: no state,
compared by name."""


class Adapter(Protocol):
    """Turns objects of one kind into trees and back.

    `capture` must have no side effect on the object or on any random number generator. `check` changes nothing.
    `restore` may assume that `check` found nothing. Children are handed to the walk, which finds their adapters:
    `walk.capture(child, step)`, `walk.check(child, tree, step)`, `walk.restore(child, tree, step)`.
    """

    id: str
    """Stable name, written into checkpoints. Users' own start with `x-`; never a class's qualified name."""
    kind: Kind
    """See `Kind`."""
    is_rng: bool
    """A live random number generator: restored after everything else, for building and checking may draw."""
    has_identity: bool
    """Mutable, so that whether two places share one object is part of the state."""
    holds_settings: bool
    """Live, and its plain values were chosen when it was built: the contract compares those of fresh starts."""
    walks_after: int
    """As a component, walked after all those with a smaller number, for it refers to parts of them."""

    def capture(self, obj: Any, walk: "Walk") -> Tree:
        """The object's state. Arrays may be borrowed: they are read before the object can change."""
        ...

    def check(self, obj: Any, tree: Tree, walk: "Walk") -> list[Finding]:
        """Why `tree` cannot be restored into `obj`; empty if it can."""
        ...

    def restore(self, obj: Any, tree: Tree, walk: "Walk") -> Any:
        """The restored object: `obj` itself if live, else a new one of the same type."""
        ...

    def fidelity(self, obj: Any) -> tuple[str, str]:
        """The continuation class that this object allows, and why."""
        ...


class ExactAdapter:
    """Defaults for adapters whose capture holds the full state."""

    id = ""
    kind: Kind = "value"
    is_rng = False
    has_identity = False
    holds_settings = False
    walks_after = 0

    def fidelity(self, obj: Any) -> tuple[str, str]:
        """Full state, so exact."""
        return "exact-snapshot", "full state captured"
