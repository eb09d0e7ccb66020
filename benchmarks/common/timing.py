"""Timing: peers take turns in one process, so that whatever else the machine does hits all of them alike."""

import gc
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Work = Callable[[int], float]
"""Does something for the n-th time and returns the seconds of the part that counts."""


@dataclass(frozen=True)
class Sample:
    """One quantity, measured several times."""

    values: tuple[float, ...]
    """In the order in which they were measured."""

    @property
    def median(self) -> float:
        """Half of the values lie below."""
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the values lies below the first and above the second."""
        if len(self.values) == 1:
            return self.values[0], self.values[0]
        first, _, third = statistics.quantiles(self.values, n=4, method="inclusive")
        return first, third


def seconds(work: Callable[[], object], *, spare_bytes: int = 0) -> float:
    """How long one call takes.

    Beforehand garbage is collected, the disk is given the time to write what others left behind, and so much memory is
    touched and freed: on virtual machines the first use of a page can cost many times the work itself, which would
    hit whoever comes first.
    """
    gc.collect()
    os.sync()
    np.ones(spare_bytes, np.uint8)
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(works: Mapping[str, Work], repeats: int) -> dict[str, Sample]:
    """Measures all works `repeats` times, taking turns; a first round is thrown away.

    The order of each round is drawn anew (from a fixed seed), so that nobody always follows the same one and pays for
    the memory and the disk that it leaves behind.
    """
    names = list(works)
    values: dict[str, list[float]] = {name: [] for name in names}
    order = random.Random(0)
    for turn in range(repeats + 1):
        for name in order.sample(names, len(names)):
            taken = works[name](turn)
            if turn:
                values[name].append(taken)
    return {name: Sample(tuple(found)) for name, found in values.items()}


def note(text: str) -> None:
    """Says on stderr what takes time."""
    print(text, file=sys.stderr, flush=True)
