"""The last lines of a file of JSON lines, without a look at the others: there may be millions."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from perdure.errors import DamagedError
from perdure.format import numbers

TAIL_BYTES = 1 << 16

_WORD = re.compile(r"[A-Za-z]+|\d+")
_NOT_THE_MEAN = frozenset({"std", "var", "min", "max", "median", "length", "scale", "weight", "bonus"})


def last_documents(path: Path, size_bytes: int = TAIL_BYTES) -> Iterator[dict[str, Any]]:
    """The whole lines among a file's last bytes as documents, the newest first; what is none is passed over."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, 2) - size_bytes)
            file.seek(start)
            data = file.read(size_bytes)
    except FileNotFoundError:
        return
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    for line in reversed(lines if start == 0 else lines[1:]):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            yield document


def last_value(metrics: Path, name: str | None = None) -> tuple[str, float] | None:
    """A metric's name and its value in the newest row that has it, among a stream's last rows.

    Args:
        metrics: the stream.
        name: the metric; None: the one that `return_name` picks of all that there are.
    """
    rows = [_numbers_in(row) for row in last_documents(metrics)]
    chosen = name if name is not None else return_name({name for row in rows for name in row})
    value = next((row[chosen] for row in rows if chosen is not None and chosen in row), None)
    return None if value is None or chosen is None else (chosen, value)


def _numbers_in(row: dict[str, Any]) -> dict[str, float]:
    return {name: number for name, value in row.items() if (number := number_of(value)) is not None}


def number_of(value: Any) -> float | None:
    """A row's value as a number, tagged ones (NaN) too; None if it is none."""
    if isinstance(value, dict):
        try:
            value = numbers.decode_plain(value)
        except (DamagedError, LookupError, TypeError, ValueError):
            return None
    return value if type(value) in (int, float) else None


def return_name(names: Iterable[str]) -> str | None:
    """Which metric is the mean return: the first in this order.

    Names with the word `return` or `returns` come before those with `reward`, `rewards` or `rew` (as in
    Stable-Baselines3's `rollout/ep_rew_mean`), evaluations (`eval`) before others, short ones before long ones. Spreads
    and extremes (`std`, `min`, `max`, …) do not count.
    """
    ranked = []
    for name in names:
        words = set(_WORD.findall(name.lower()))
        kind = 0 if words & {"return", "returns"} else 1 if words & {"reward", "rewards", "rew"} else None
        if kind is not None and not words & _NOT_THE_MEAN and not any(word.isdecimal() for word in words):
            ranked.append((kind, not words & {"eval", "evaluation", "test"}, len(name), name))
    return min(ranked)[-1] if ranked else None
