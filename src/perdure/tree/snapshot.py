"""Snapshots: all components of a run at one instant, as one immutable value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from perdure.tree.leaves import Alias, Tree
from perdure.tree.paths import Path

CLASSES = ("exact-snapshot", "exact-replay", "boundary-reset", "statistical", "weights-only")
"""Continuation classes from the most faithful to the least."""


@dataclass(frozen=True, eq=False)
class Component:
    """One named part of a run's state."""

    adapter: str
    """The stable id of the adapter that captured it."""
    tree: Tree
    """Its state."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Functions, classes and dtypes met on the way, by path: compared by name, never stored as state."""
    fidelity: str = "exact-snapshot"
    """Its continuation class."""
    reason: str = "full state captured"
    """Why it has that class."""
    made: Mapping[Path, str] = field(default_factory=dict)
    """Where a part of a plain container is not plain itself: the id of the adapter that made it, by path from the
    component on. What is listed here needs a target to become an object again."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The value in the middle: adapters make it, the format writes it, restores read it."""

    components: Mapping[str, Component]
    """By name, sorted. An alias points backwards, or into a component that is walked before this one."""
    env_steps: int
    """Environment steps taken."""
    updates: int
    """Policy updates made."""
    boundary: int
    """Number of the boundary; 0 is the state that a fresh `restore` was handed."""

    def at(self, path: Path) -> Tree:
        """The node at `path`; its first step is the component's name. Aliases on the way are followed."""
        node: Tree = self.components[str(path[0])].tree
        for step in path[1:]:
            node = self.resolve(node)[step]
        return self.resolve(node)

    def resolve(self, node: Tree) -> Tree:
        """`node` itself, or what it is an alias of."""
        return self.at(node.path) if isinstance(node, Alias) else node
