"""What the logger of a model dumps, as rows of the run's metrics."""

from typing import Any

import numpy as np
from stable_baselines3.common.logger import KVWriter

_OF_REAL_TIME = "time/"
_KINDS = (str, bool, int, float, np.number, np.bool_)


class Rows(KVWriter):
    """Collects what is dumped between two boundaries: numbers, texts and booleans, but nothing of real time."""

    def __init__(self) -> None:
        self._row: dict[str, Any] = {}

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Takes what the logger hands to each of its outputs."""
        for name, value in key_values.items():
            if isinstance(value, _KINDS) and not name.startswith(_OF_REAL_TIME):
                self._row[name] = value

    def close(self) -> None:
        """Nothing is open."""

    def take(self) -> dict[str, Any] | None:
        """What was collected since the last call; None if nothing was."""
        row, self._row = self._row, {}
        return row or None
