"""`assert_exact_resume`: a proof of a training function in this process, for a project's own tests."""

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from perdure.adapters.process_rng import NAME as PROCESS_RNG
from perdure.adapters.process_rng import ProcessRng
from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.restore import restore
from perdure.errors import Preempted
from perdure.proof.evidence import Parting
from perdure.proof.plan import Plan
from perdure.proof.processes import Ended, Orders
from perdure.proof.prove import Proof
from perdure.proof.verdict import Verdict
from perdure.tree.leaves import owned
from perdure.tree.snapshot import Component, Snapshot

Train = Callable[[Path], Any]
"""Opens a `Run` in the directory that it is handed, restores and trains; a generator is run to its end."""


def assert_exact_resume(train: Train, *, at: int | None = None, until: int, directory: Path | None = None) -> None:
    """Asserts that a training that is stopped and resumed is the training that was never stopped, bit for bit.

    It calls `train` four times, each time with the process-wide generators as they were: straight to boundary `until`
    twice, then stopped after boundary `at` and resumed. `perdure prove` does the same in fresh processes, and so sees
    what outlives a call: module globals, caches, the order of sets.

    Args:
        train: trains in the directory that it is handed, from the start or on.
        at: the boundary after which it is stopped; None: in the middle.
        until: the boundary up to which runs are compared, unless the training ends before.
        directory: where the runs live (pytest's `tmp_path`); None: a temporary one, removed if all is well.

    Raises:
        AssertionError: it is not; the message names the boundary, the component, the first leaf with both values, and
            likely causes. Or two straight calls differ, which is said.
        UsageError: `at` is not before `until` or the training's end.
        NoRunError: `train` opened no run there.
    """
    plan = Plan(until, at)
    if directory is not None:
        _prove(train, Path(directory), plan)
        return
    with tempfile.TemporaryDirectory(prefix="perdure-exact-resume-") as folder:
        _prove(train, Path(folder), plan)


def _prove(train: Train, folder: Path, plan: Plan) -> None:
    verdict = Proof(InProcess(train), folder, plan).run()
    if not verdict.is_exact:
        raise AssertionError(_told(verdict))


class InProcess:
    """Runs a training function in this process (`perdure.proof.processes.Runner`)."""

    def __init__(self, train: Train) -> None:
        """Remembers the process-wide generators as they are now."""
        self._train = train
        self.name = getattr(train, "__name__", repr(train))
        self.sets_hash_seed = False
        captured = capture({PROCESS_RNG: ProcessRng()}, Resolver(), Counters()).snapshot.components[PROCESS_RNG]
        self._generators = Component(captured.adapter, owned(captured.tree))

    def run(self, scratch: Path, orders: Orders, label: str, kill_when: object = None) -> Ended:
        """Calls the function once, as a fresh process would find it as far as that can be had."""
        scratch.mkdir(parents=True, exist_ok=True)
        told = {"PERDURE_CHAIN": "1", "PERDURE_STOP_AT_BOUNDARY": str(orders.stop_at)}
        restore(Snapshot({PROCESS_RNG: self._generators}, 0, 0, 0), {PROCESS_RNG: ProcessRng()}, Resolver(), label)
        started, code = time.monotonic(), 0
        with patch.dict(os.environ, told):
            try:
                result = self._train(scratch / "run")
                if isinstance(result, Iterable) and hasattr(result, "send"):
                    for _ in result:
                        pass
            except Preempted:
                code = Preempted.CODE
        nothing = Path(os.devnull)
        return Ended(label, code, time.monotonic() - started, nothing, nothing)


def _told(verdict: Verdict) -> str:
    assert isinstance(verdict.outcome, Parting)  # noqa: S101 - a verdict that is not exact
    difference, located = verdict.outcome.difference, verdict.located
    if verdict.is_deterministic:
        head = f"not exact: stopped after boundary {verdict.stops[0]} and resumed, the training is another one"
    else:
        head = "two straight trainings differ: train is not deterministic, or something outlives its first call"
    lines = [head]
    if difference is None:
        lines.append(f"  {verdict.outcome.what}")
    else:
        what = [*difference.components, *(["the metric rows"] if difference.metrics else [])]
        lines.append(f"  first at boundary {difference.boundary}: {', '.join(what)}")
    leaves = [] if located is None else list(located.leaves)
    if leaves:
        more = f"; {len(leaves) - 1} more" if len(leaves) > 1 else ""
        lines.append(f"  first leaf {leaves[0]}{more}")
    return "\n".join([*lines, *(f"  likely: {cause}" for cause in verdict.causes)])
