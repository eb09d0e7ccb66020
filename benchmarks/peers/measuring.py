"""Turns peers into works that can take turns."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.scratch import warm
from benchmarks.common.timing import Sample, Work, interleaved, seconds
from benchmarks.peers.peer import Peer
from benchmarks.peers.states import State, size_bytes

Samples = dict[str, Sample]
SPARE = 4
"""Touched before each measurement, as a multiple of the state: more than any peer needs."""


def measure_saves(
    peers: Sequence[Peer],
    state: Callable[[int], State],
    directory: Path,
    repeats: int,
    others: Mapping[str, Work] | None = None,
) -> Samples:
    """How long each peer takes to save the state of each turn durably.

    Args:
        peers: who takes turns.
        state: the state of each turn.
        directory: where to; the last save of each peer is kept there for loading.
        repeats: turns that count.
        others: works that take turns with them.
    """
    works = {peer.name: _saving(peer, state, _home(directory, peer)) for peer in peers}
    return interleaved({**works, **(others or {})}, repeats)


def measure_loads(peers: Sequence[Peer], state: Callable[[int], State], directory: Path, repeats: int) -> Samples:
    """How long each peer takes to load what it saved last, from the page cache."""
    works = {peer.name: _loading(peer, state, _home(directory, peer)) for peer in peers}
    return interleaved(works, repeats)


def _home(directory: Path, peer: Peer) -> Path:
    return directory / peer.name.replace(" ", "_").replace("/", "_")


def _saving(peer: Peer, state: Callable[[int], State], home: Path) -> Work:
    def work(turn: int) -> float:
        arrays = state(turn)
        prepared = peer.prepare(arrays)
        home.mkdir(exist_ok=True)
        taken = seconds(lambda: peer.save(home / str(turn), prepared), spare_bytes=SPARE * size_bytes(arrays))
        if turn:
            shutil.rmtree(home / str(turn - 1))
        return taken

    return work


def _loading(peer: Peer, state: Callable[[int], State], home: Path) -> Work:
    def work(turn: int) -> float:
        arrays, path = state(turn), next(home.iterdir())
        target = peer.prepare(arrays)
        warm(path)
        loaded: list[Any] = []  # freed after the clock has stopped
        return seconds(lambda: loaded.append(peer.load(path, target)), spare_bytes=SPARE * size_bytes(arrays))

    return work
