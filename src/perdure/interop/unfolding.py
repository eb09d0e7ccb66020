"""How far the shared and nested parts of a pickle may unfold into a plain tree, where each stands at all its places."""

from perdure.errors import DamagedError
from perdure.tree.paths import Path, format_path

MAX_DEPTH = 60
"""The deepest nesting; perdure's own format ends at 64."""

MAX_GROWTH = 100
"""How many times larger than the file the unfolded tree may be."""

FREE_BYTES = 1 << 16
"""What may unfold from any file, however small."""

NODE_BYTES = 16
"""What a node counts besides its content."""


class Unfolding:
    """What is left of a file's allowance."""

    def __init__(self, size_bytes: int, place: str, way_out: str) -> None:
        """All of it.

        Args:
            size_bytes: the file's size; the tree may grow to `MAX_GROWTH` times that.
            place: the file, for messages.
            way_out: the last sentence of messages.
        """
        self._left = FREE_BYTES + MAX_GROWTH * size_bytes
        self._place = place
        self._way_out = way_out

    def enter(self, path: Path) -> None:
        """Counts a node.

        Raises:
            DamagedError: it is too deep, or one too many.
        """
        if len(path) > MAX_DEPTH:
            self._refuse(path, f"more than {MAX_DEPTH} containers inside one another, or one that contains itself")
        self.spend(NODE_BYTES, path)

    def spend(self, size_bytes: int, path: Path) -> None:
        """Counts content.

        Raises:
            DamagedError: it is more than may unfold.
        """
        self._left -= size_bytes
        if self._left < 0:
            self._refuse(path, f"the file unfolds to more than {MAX_GROWTH} times its size")

    def _refuse(self, path: Path, what: str) -> None:
        raise DamagedError(f"{self._place}: {format_path(path[:5])}: {what}. {self._way_out}")
