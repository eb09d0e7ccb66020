"""Provokes real failures of each public error type, for the gallery in docs/errors.md."""

import json
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import perdure
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.runs.fork import fork


@dataclass(frozen=True)
class Entry:
    """One error type in the gallery."""

    what: str
    """What happened, one sentence or two."""
    failures: tuple[Callable[[], object], ...]
    """What raises it, each in an empty directory."""
    way_out: str
    """What to do."""


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
    config = {"learning_rate": 3e-4, "seed": 1}
    given: dict[str, Any] = {"config": config, "every": perdure.Every(updates=1), **options}
    return perdure.Run(f"runs/{name}", background=False, **given)


def begun(steps: int = 20) -> None:
    """A run that stands at `steps`, with the checkpoint before it."""
    with opened() as run:
        run.restore(x=1)
        while run.env_steps < steps:
            run.boundary(env_steps=run.env_steps + 10, x=1)


def manifest_of(steps: int) -> Path:
    return Path(f"runs/x/checkpoints/step_{steps:010d}/MANIFEST.json")


def edit(manifest: Path) -> None:
    manifest.write_bytes(manifest.read_bytes().replace(b'"boundary":', b'"boundary":1'))


@contextmanager
def small_files() -> Iterator[None]:
    """No file may grow past 64 KiB: what a full disk is like, without filling one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def counter_goes_back() -> None:
    with opened() as run:
        run.restore(x=1)
        run.boundary(env_steps=10, x=1)
        run.boundary(env_steps=10, x=1)


def acceptance_without_a_run() -> None:
    opened("typo", accept=["algorithm.learning_rate=0.0003:0.0001"]).restore(x=1)


def forgotten() -> None:
    with opened() as run:
        run.restore(x=1, next_observation=np.zeros(2))
        run.boundary(env_steps=10, x=1)


def not_given_before() -> None:
    with opened() as run:
        run.restore(x=1)
        run.boundary(env_steps=10, x=1, best_score=0.5)


def no_exact_form() -> None:
    opened().restore(table={(0, 1): "a tuple is no key"})


def unknown_object() -> None:
    opened().restore(mutex=threading.Lock())


def object_array() -> None:
    opened().restore(names=np.array(["a", None], object))


def strict_about_damage() -> None:
    begun()
    edit(manifest_of(20))
    opened(strict=True).restore(x=1)


def flipped_bit() -> None:
    perdure.save("policy", weights=np.ones(1000))
    path = Path("policy/weights.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    perdure.load("policy", weights=np.zeros(1000))


def policy_of_something_else() -> None:
    with opened(contract={"env": {"env_id": "CartPole-v1", "gravity": 9.8}}, policy=["weights"]) as run:
        run.restore(weights=np.ones(3))
        run.export_policy("policy", weights=np.ones(3))
    perdure.Policy("policy").check(contract={"env": {"env_id": "Acrobot-v1"}})


def from_the_future() -> None:
    begun()
    document = json.loads(manifest_of(20).read_bytes()) | {"version": 7}
    del document["digest"]
    digest = digest_of(canonical.encode(document))
    manifest_of(20).write_bytes(canonical.encode({**document, "digest": digest}))
    opened().restore(x=1)


def no_run() -> None:
    opened("typo", mode="resume").restore(x=1)


def stopped_too_early() -> None:
    """The disk was full when the first checkpoint was to be committed."""
    try:
        full_disk()
    except perdure.CommitError:
        opened(mode="resume").restore(weights=np.zeros(1 << 20))


def no_such_step() -> None:
    begun()
    fork("runs/x", 15, "runs/y")


def all_damaged() -> None:
    begun()
    edit(manifest_of(20))
    manifest_of(10).unlink()
    opened().restore(x=1)


def another_configuration() -> None:
    begun()
    opened(config={"learning_rate": 1e-4, "seed": 2}).restore(x=1)


def another_structure() -> None:
    with opened() as run:
        run.restore(kernel=np.zeros((4, 8), np.float32), bias=np.zeros(8, np.float32), step=0)
    opened().restore(kernel=np.zeros((4, 16), np.float32), bias=np.zeros(8), norm=np.zeros(8))


def mistaken_acceptances() -> None:
    begun()
    accept = ["algorithm.learning_rate=0.001:0.0001", "algorithm.gamma=0.99:0.9"]
    opened(config={"learning_rate": 1e-4, "seed": 1}, accept=accept).restore(x=1)


def load_fails() -> None:
    with opened() as run:
        run.restore(agent=Unlucky())
    opened().restore(agent=Unlucky())


def full_disk() -> None:
    with small_files(), opened() as run:
        run.restore(weights=np.zeros(1 << 20))


def taken_name() -> None:
    Path("policy").mkdir()
    perdure.save("policy", x=1)


def crash_loop() -> None:
    def attempt() -> None:
        with perdure.Run("runs/x") as run:
            run.restore(x=1)
            raise FloatingPointError("the loss is NaN")

    for _ in range(4):
        with suppress(FloatingPointError):
            attempt()
    attempt()


def dead_worker() -> None:
    from gymnasium.envs.classic_control import CartPoleEnv

    from perdure.gym import AsyncVectorEnv, make_vec

    envs = make_vec([CartPoleEnv] * 2, mode="async", context="spawn")
    assert isinstance(envs, AsyncVectorEnv)
    try:
        envs.processes[1].kill()
        envs.reset(seed=1)
    finally:
        envs.close()


def locked_elsewhere() -> None:
    begun()
    code = (
        "import perdure, sys\n"
        "run = perdure.Run('runs/x', config={'learning_rate': 3e-4, 'seed': 1})\n"
        "run.restore(x=1)\n"
        "print(flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"\n"
            opened().restore(x=1)
        finally:
            child.communicate()


def locked_here() -> None:
    with opened() as run:
        run.restore(x=1)
        opened().restore(x=1)


ENTRIES: dict[type[perdure.PerdureError], Entry] = {
    perdure.UsageError: Entry(
        "A call or a command that cannot be right.",
        (counter_goes_back, acceptance_without_a_run),
        "Correct the call. The run is as it was.",
    ),
    perdure.ForgottenValueError: Entry(
        "A boundary was not handed the very values that `restore` was given. What is not handed in again would be "
        "saved stale.",
        (forgotten, not_given_before),
        "Hand every value to each boundary, and to `restore` first. Live objects (modules, generators) are remembered; "
        "numbers, arrays and JAX trees are not.",
    ),
    perdure.CaptureError: Entry(
        "An object holds something that has no exact form on disk.",
        (no_exact_form,),
        "Change what it holds, or give its class `state_dict()` and `load_state_dict()`.",
    ),
    perdure.UnknownObjectError: Entry(
        "No adapter knows an object, and perdure never pickles.",
        (unknown_object,),
        "Take one of the ways that the message names.",
    ),
    perdure.UnsupportedLeafError: Entry(
        "An array has a dtype without an exact form on disk.",
        (object_array,),
        "Use another dtype, or a list.",
    ),
    perdure.DamagedError: Entry(
        "A file is not what was written: a flipped bit, a cut file, an edit. A resume steps back to the newest intact "
        "checkpoint instead of raising this, unless the run is `strict=True`.",
        (strict_about_damage, flipped_bit),
        "Restore the file from a copy, or resume without `strict`. `perdure verify RUN` names all damage.",
    ),
    perdure.UnsupportedVersionError: Entry(
        "Another perdure wrote the checkpoint. It is not damaged, and stepping back over it would lose work.",
        (from_the_future,),
        "Use the perdure that wrote it, or a newer one.",
    ),
    perdure.NoRunError: Entry(
        "There is no run at the path. A mistyped path must not begin a training.",
        (no_run,),
        "Check the spelling. Without insisting on a resume, a run would begin there.",
    ),
    perdure.NoCheckpointError: Entry(
        "There is a run, but not the checkpoint that is asked for.",
        (stopped_too_early, no_such_step),
        "Start a run without any checkpoint again, without insisting on a resume; or name a checkpoint that is there. "
        "`perdure pin` makes one stay.",
    ),
    perdure.AllDamagedError: Entry(
        "No checkpoint of the run is intact. It does not start afresh by itself.",
        (all_damaged,),
        "Restore one from a copy. What is left can be read by hand ([format.md](format.md)).",
    ),
    perdure.ContractError: Entry(
        "The resume would not be the same run: another configuration, another structure, or an acceptance that accepts "
        "nothing. All differences come at once.",
        (another_configuration, another_structure, mistaken_acceptances),
        "Pass what the run has, or accept the differences that you want ([contract.md](contract.md)).",
    ),
    perdure.PolicyMismatchError: Entry(
        "A policy was trained to see or do something else than what it is loaded into or played in.",
        (policy_of_something_else,),
        "Build modules and environments as the run did; `perdure show` tells what the policy was trained for.",
    ),
    perdure.RestoreError: Entry(
        "An object's own `load_state_dict` failed while a checkpoint was applied. What was there before was put back.",
        (load_fails,),
        "Look at the cause (the exception is chained), and resume again: the run is as it was.",
    ),
    perdure.CommitError: Entry(
        "A checkpoint could not be committed: a full disk (here a limit of the file size), a taken name.",
        (full_disk, taken_name),
        "Make room, or choose another path. In a run, the next boundary tries again.",
    ),
    perdure.CrashLoopError: Entry(
        "The last three resumes of one checkpoint each ended in an error before anything new was committed.",
        (crash_loop,),
        "Mend what the traceback shows, then resume once with `--retry`; a script takes `PERDURE_RETRY=1`.",
    ),
    perdure.WorkerDiedError: Entry(
        "The process of an environment ended by itself: killed for want of memory, or by a fault of its engine.",
        (dead_worker,),
        "Look at what the worker printed, and start the script again: it resumes from the last checkpoint.",
    ),
    perdure.LockedError: Entry(
        "The run is open already, and two writers would mix their histories.",
        (locked_elsewhere, locked_here),
        "Stop the other process or wait for it, or close the other `Run`. A killed process leaves no lock behind.",
    ),
}
"""Error type -> its entry, in the order of the gallery."""
