"""What a conversion carries in another form or not at all."""

from collections.abc import Collection
from dataclasses import dataclass, field

from perdure.tree.paths import Path, format_path


@dataclass
class Losses:
    """What is carried in another form or not at all, told once for all places that have it in common."""

    _places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, place: Path | str, what: str) -> None:
        """Notes a loss.

        Args:
            place: a path, or its text.
            what: the sentence after the colon.
        """
        text = place if isinstance(place, str) else format_path(place)
        self._places.setdefault(what, []).append(text)

    def lines(self) -> tuple[str, ...]:
        """`PLACE: SENTENCE` each, in the order of their first places."""
        return tuple(f"{_told(places)}: {what}" for what, places in self._places.items())

    def outside_of(self, components: Collection[str]) -> "Losses":
        """Those of all places that are in none of these components."""
        kept = {
            what: [place for place in places if not _is_in(place, components)] for what, places in self._places.items()
        }
        return Losses({what: places for what, places in kept.items() if places})


def _is_in(place: str, components: Collection[str]) -> bool:
    return any(place == name or place.startswith((f"{name}/", f"{name}.")) for name in components)


def _told(places: list[str]) -> str:
    more = len(places) - 1
    text = places[0] if not more else f"{places[0]} and {more:,} more"
    return "".join(letter if letter.isprintable() else "?" for letter in text)
