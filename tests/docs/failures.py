"""Provokes one real failure for each public error type, for the gallery in docs/errors.md."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import perdure
from perdure.format import canonical
from perdure.format.digests import digest_of


class Unlucky:
    """An object whose first load fails."""

    def __init__(self) -> None:
        self.loads = 0

    def state_dict(self) -> dict[str, int]:
        return {"x": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.loads += 1
        if self.loads == 1:
            raise ValueError("a tensor has another device")


def opened(name: str = "x", **options: Any) -> perdure.Run:
    given = {"config": {"learning_rate": 3e-4, "seed": 1}, "every": perdure.Every(updates=1), **options}
    return perdure.Run(f"runs/{name}", background=False, **given)


def begun(steps: int = 20) -> None:
    """A run that stands at `steps`."""
    with opened() as run:
        run.restore(x=1)
        while run.env_steps < steps:
            run.boundary(env_steps=run.env_steps + 10, x=1)


def newest() -> Path:
    return max(Path("runs/x/checkpoints").iterdir())


def usage() -> None:
    opened(mode="again")


def forgotten() -> None:
    with opened() as run:
        run.restore(x=1, next_observation=np.zeros(2))
        run.boundary(env_steps=10, x=1)


def capture() -> None:
    opened().restore(table={(0, 1): "a tuple is no key"})


def unknown_object() -> None:
    opened().restore(mutex=threading.Lock())


def unsupported_leaf() -> None:
    opened().restore(names=np.array(["a", None], object))


def damaged() -> None:
    begun()
    manifest = newest() / "MANIFEST.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"boundary":2', b'"boundary":3'))
    opened(strict=True).restore(x=1)


def from_the_future() -> None:
    begun()
    manifest = newest() / "MANIFEST.json"
    document = json.loads(manifest.read_bytes())
    document |= {"version": 7}
    del document["digest"]
    manifest.write_bytes(canonical.encode({**document, "digest": digest_of(canonical.encode(document))}))
    opened().restore(x=1)


def no_run() -> None:
    opened("typo", mode="resume").restore(x=1)


def no_checkpoint() -> None:
    begun()
    shutil.rmtree("runs/x/checkpoints")
    opened(mode="resume").restore(x=1)


def all_damaged() -> None:
    begun()
    for checkpoint in Path("runs/x/checkpoints").iterdir():
        manifest = checkpoint / "MANIFEST.json"
        manifest.write_bytes(manifest.read_bytes()[:100])
    opened().restore(x=1)


def contract() -> None:
    begun()
    opened(config={"learning_rate": 1e-4, "seed": 2}).restore(x=1)


def restore() -> None:
    with opened() as run:
        run.restore(agent=Unlucky())
    opened().restore(agent=Unlucky())


def commit() -> None:
    Path("runs/policy").mkdir(parents=True)
    perdure.save("runs/policy", x=1)


def locked() -> None:
    begun()
    code = (
        "import perdure, time\n"
        "run = perdure.Run('runs/x', config={'learning_rate': 3e-4, 'seed': 1})\n"
        "run.restore(x=1)\n"
        "print(1, flush=True)\n"
        "time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        opened().restore(x=1)
    finally:
        child.kill()
        child.communicate()


FAILURES: dict[type[perdure.PerdureError], tuple[str, Callable[[], None], str]] = {
    perdure.UsageError: (
        "A call that cannot be right: a bad name, a counter that goes back, an acceptance without a run.",
        usage,
        "Correct the call. Nothing was touched.",
    ),
    perdure.ForgottenValueError: (
        "A value that `restore` was given is missing at a boundary. What is not handed in again would be saved stale.",
        forgotten,
        "Hand it in at each boundary. Live objects (modules, generators) are remembered; numbers, arrays and JAX trees "
        "are not.",
    ),
    perdure.CaptureError: (
        "An object holds something that has no exact form on disk.",
        capture,
        "Change what it holds, or give its class `state_dict()` and `load_state_dict()`.",
    ),
    perdure.UnknownObjectError: (
        "No adapter knows an object, and perdure never pickles.",
        unknown_object,
        "One of the three ways that the message names.",
    ),
    perdure.UnsupportedLeafError: (
        "An array has a dtype without an exact form on disk.",
        unsupported_leaf,
        "Use another dtype, or a list.",
    ),
    perdure.DamagedError: (
        "A file is not what was written: a flipped bit, a cut file, an edit. With `strict=True` a resume refuses; "
        "without it, it steps back to the newest intact checkpoint and moves the damaged one aside.",
        damaged,
        "Restore the file from a copy, or resume without `strict` from the checkpoint before. `perdure verify RUN` "
        "names all damage.",
    ),
    perdure.UnsupportedVersionError: (
        "A newer perdure wrote the checkpoint. Stepping back over it would lose work.",
        from_the_future,
        "Install a newer perdure.",
    ),
    perdure.NoRunError: (
        "There is no run at the path: a mistyped path must not begin a training.",
        no_run,
        "Check the spelling. Without insisting on a resume, a run would begin there.",
    ),
    perdure.NoCheckpointError: (
        "The run has no checkpoint: it was stopped before its first was committed, or they were removed.",
        no_checkpoint,
        "Start it again without insisting on a resume.",
    ),
    perdure.AllDamagedError: (
        "No checkpoint of the run is intact. It does not start afresh by itself.",
        all_damaged,
        "Restore one from a copy. What is left can be read by hand ([format.md](format.md)).",
    ),
    perdure.ContractError: (
        "The resume would not be the same run. All differences come at once, and nothing was changed.",
        contract,
        "Pass the saved values, or accept the differences that you want ([contract.md](contract.md)).",
    ),
    perdure.RestoreError: (
        "An object's own `load_state_dict` failed while a checkpoint was applied. What was there before was put back.",
        restore,
        "Look at the cause (the exception is chained), and resume again: the run is as it was.",
    ),
    perdure.CommitError: (
        "A checkpoint could not be committed: a full disk, a taken name. Earlier checkpoints are untouched.",
        commit,
        "Make room, or choose another path. In a run the next boundary tries again.",
    ),
    perdure.LockedError: (
        "Another process trains the run; two writers would mix their histories.",
        locked,
        "Stop the other process, or wait for it. A killed process leaves no lock behind.",
    ),
}
"""Error type -> what happened, how to provoke it, what to do."""
