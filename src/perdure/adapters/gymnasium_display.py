"""What an environment needs to show itself and no step looks at: a resumed one keeps its own."""

from typing import Any

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.leaves import Tree

NAMES = frozenset({"Surface", "Clock", "MujocoRenderer"})
"""The classes, without their modules: nothing of them is imported for this."""


class Display(ExactAdapter):
    """Surfaces and clocks of pygame, and renderers of MuJoCo: made again when something is shown again."""

    id = "display"
    kind: Kind = "fact"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Nothing: drawing starts from the state, never the other way round."""

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """Nothing, or a display, stood here."""
        return [] if tree is None else [walk.finding("state", type(obj).__name__, "Build it as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target's own."""
        return obj

    def fidelity(self, obj: Any) -> tuple[str, str]:
        """As exact as without it."""
        return "exact-snapshot", f"a {type(obj).__qualname__} only shows the environment, and is left out"


def is_display(obj: Any) -> bool:
    """Whether it is one of these."""
    return type(obj).__name__ in NAMES and type(obj).__module__.split(".")[0] in ("pygame", "gymnasium")


def rebuild(tree: Tree, walk: Walk) -> Any:
    """Where the target has none: None, with which every environment begins."""
