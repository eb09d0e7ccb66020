"""How long the training loop is blocked by a checkpoint that goes on in the background."""

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.common.timing import Sample, Work, interleaved, seconds
from benchmarks.peers.measuring import SPARE
from benchmarks.peers.orbax import OrbaxStandard, OrbaxV1
from benchmarks.peers.ours import Boundaries, saving_run
from benchmarks.peers.states import Make, State, made, size_bytes

BACKGROUND = "perdure: boundary, background writer"
SYNCHRONOUS = "perdure: boundary, synchronous"
ORBAX = "Orbax StandardCheckpointer.save"
ORBAX_V1 = "Orbax v1.save_async"


def measure_blocked(state: Callable[[int], State], make: Make, directory: Path, repeats: int) -> dict[str, Sample]:
    """Each save begins when the one before is on disk, and saves arrays that have changed since."""

    def fresh(turn: int) -> Any:
        return made(state(turn), make)

    with ExitStack() as stack:
        works: dict[str, Work] = {}
        for name, background in ((BACKGROUND, True), (SYNCHRONOUS, False)):
            run = stack.enter_context(saving_run(directory / f"run_{background}", fresh(0), background=background))
            works[name] = _boundary(run, fresh)
        for name, save in ((ORBAX, OrbaxStandard("", make).save_async), (ORBAX_V1, OrbaxV1("", make).save_async)):
            works[name] = _orbax(save, directory / name.replace(" ", "_"), fresh)
        return interleaved(works, repeats)


def _boundary(run: Boundaries, fresh: Callable[[int], Any]) -> Work:
    def work(turn: int) -> float:
        state = fresh(turn + 1)
        taken = seconds(lambda: run.boundary(state), spare_bytes=_spare(state))
        run.wait()
        return taken

    return work


def _orbax(save: Callable[[Path, Any], Callable[[], object]], home: Path, fresh: Callable[[int], Any]) -> Work:
    home.mkdir()

    def work(turn: int) -> float:
        state = fresh(turn + 1)
        waits: list[Callable[[], object]] = []
        taken = seconds(lambda: waits.append(save(home / str(turn), state)), spare_bytes=_spare(state))
        waits[0]()
        shutil.rmtree(home / str(turn))
        return taken

    return work


def _spare(state: Any) -> int:
    return SPARE * size_bytes(state)
