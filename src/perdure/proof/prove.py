"""The proof: a script run straight, twice, and interrupted; and where these runs part, if they do."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

from perdure.errors import NoRunError, UsageError
from perdure.proof.causes import Symptoms, likely_causes
from perdure.proof.evidence import (
    ENDS,
    METRIC_ROWS,
    OTHER_RUN,
    Compared,
    Ignored,
    Parting,
    compare_folders,
    first_parting,
    never_drawn,
    reach,
    runs_in,
)
from perdure.proof.killing import Killer, Watch
from perdure.proof.locating import Located, locate, resemblances
from perdure.proof.plan import Plan
from perdure.proof.processes import Ended, Orders, Runner, ScriptError
from perdure.proof.resumes import nothing_proven, telling_resumes, went_on_from
from perdure.proof.verdict import Verdict

TRIES = 3
"""How often a script is to be killed that was at its end before."""


class Proof:
    """Conducts the runs of one proof."""

    def __init__(self, runner: Runner, folder: Path, plan: Plan) -> None:
        """Prepares; nothing is started.

        Args:
            runner: runs the script.
            folder: where their runs live, one folder below it a history.
            plan: how far, and where to interrupt.
        """
        self.runner = runner
        self.folder = folder
        self.plan = plan
        self._rng = random.Random(plan.seed)
        self._pace_s = 0.0
        self._interrupted: tuple[int, ...] = ()

    def run(self) -> Verdict:
        """Runs everything that the verdict needs.

        Raises:
            UsageError: the command cannot be executed, or the plan does not fit the script.
            NoRunError: the script opens no run.
            ScriptError: the script fails by itself, or takes too long.
        """
        straight, again = self.folder / "straight", self.folder / "again"
        ended = self.straight(straight, self.plan.until, f"straight to boundary {self.plan.until}")
        self.straight(again, self.plan.until, "straight once more")
        end, finished = reach(straight), ended.code == 0
        ignored = never_drawn([straight, again])
        outcome = compare_folders(straight, again, ignored)
        if isinstance(outcome, Parting):
            return self._blame_script(outcome, (straight, again), end, finished=finished, ignored=ignored)
        stops = self.plan.stops(end)
        interrupted = self.folder / "interrupted"
        failed = self._interrupt_until_resumed(interrupted, stops)
        stops = self._interrupted
        if failed is not None:
            parting = Parting(next(iter(runs_in(interrupted)), ""), f"{failed.label}: ended with code {failed.code}")
            return Verdict(end, finished, stops, self.plan.kill, parting, ignored, failed=failed)
        ignored &= never_drawn([straight, interrupted])  # not what a resumed process alone draws from
        outcome = compare_folders(straight, interrupted, ignored)
        if isinstance(outcome, Parting):
            return self._blame_resume(outcome, end, stops, finished=finished, ignored=ignored)
        resumes = telling_resumes(interrupted)
        if not resumes:
            raise UsageError(nothing_proven(straight, interrupted, kill=self.plan.kill))
        return Verdict(end, finished, stops, self.plan.kill, outcome, ignored, resumes=resumes)

    def straight(self, folder: Path, until: int, label: str, hash_seed: str | None = None) -> Ended:
        """Runs the script without an interruption.

        Raises:
            NoRunError: it opens no run.
            ScriptError: it fails.
        """
        watch = Watch(folder)
        try:
            ended = self.runner.run(folder, Orders(until, hash_seed=hash_seed), label, watch)
        except ScriptError as error:
            raise ScriptError(f"{error} and came to {_where(folder)}. {_WAY_OUT_OF_TIME}") from error
        if not ended.is_well:
            raise ScriptError(f"{label}: the script failed by itself, with code {ended.code}:\n{ended.tail()}")
        if not runs_in(folder):
            raise NoRunError(
                f"{self.runner.name}: opened no perdure.Run, so there is nothing to prove (docs/proving.md)."
            )
        self._pace_s = watch.pace_s(reach(folder))
        return ended

    def _interrupt_until_resumed(self, folder: Path, stops: tuple[int, ...]) -> Ended | None:
        """Interrupts; a fast script may be at its end before it is killed, so that nothing is left to resume."""
        failed = self.interrupt(folder, stops, self.plan.until, kill=self.plan.kill)
        for _ in range(TRIES - 1 if self.plan.kill else 0):
            if failed is not None or telling_resumes(folder):
                break
            shutil.rmtree(folder)
            self._pace_s /= TRIES
            failed = self.interrupt(folder, stops, self.plan.until, kill=True)
        return failed

    def interrupt(
        self, folder: Path, stops: tuple[int, ...], until: int, *, kill: bool = False, leaves_fresh: str | None = None
    ) -> Ended | None:
        """Runs the script with interruptions, each in a process of its own.

        Returns:
            The process that failed; None if none did.

        Raises:
            ScriptError: one took too long.
        """
        saves_each = 1 if kill else None
        self._interrupted = ()
        for stop in stops:
            if stop <= reach(folder):
                continue  # one that was killed had come further than it was asked to
            goal = until if kill else stop
            killer = Killer(folder, stop, self._pace_s, self._rng) if kill else None
            self._interrupted += (stop,)
            label = f"{'killed' if kill else 'stopped'} after boundary {stop}"
            ended = self.runner.run(folder, Orders(goal, saves_each, leaves_fresh), label, killer)
            if not ended.is_well:
                return ended
        ended = self.runner.run(folder, Orders(until, saves_each, leaves_fresh), f"resumed, to boundary {until}")
        return None if ended.is_well else ended

    def _blame_script(
        self, parting: Parting, parted: tuple[Path, Path], end: int, *, finished: bool, ignored: Ignored
    ) -> Verdict:
        """Two runs differ for no reason of a resume: two more go up to there, for the leaf."""
        boundary = end if parting.difference is None else parting.difference.boundary
        until = max(boundary, 1)
        pair = self.folder / "straight_leaf", self.folder / "again_leaf"
        for folder in pair:
            self.straight(folder, until, f"straight to boundary {until}, for the leaf")
        located = locate(*pair, parting.run, boundary, ignored)
        if located is None or not located.leaves:  # these two are equal by luck, those that parted are there still
            located = locate(*parted, parting.run, end, ignored) or located
        helps = self.runner.sets_hash_seed and self._is_equal_with_hash_seed(until, ignored)
        causes = likely_causes(_symptoms(parting, boundary, located, is_resume=False, hash_seed_helps=helps))
        return Verdict(end, finished, (), False, parting, ignored, located, tuple(causes))

    def _is_equal_with_hash_seed(self, until: int, ignored: Ignored) -> bool:
        """Whether two straight runs are the same once sets have one order."""
        pair = self.folder / "straight_hash", self.folder / "again_hash"
        for folder in pair:
            self.straight(folder, until, f"straight to boundary {until}, with PYTHONHASHSEED=0", hash_seed="0")
        return isinstance(compare_folders(*pair, ignored), Compared)

    def _blame_resume(
        self, parting: Parting, end: int, stops: tuple[int, ...], *, finished: bool, ignored: Ignored
    ) -> Verdict:
        """The interrupted run differs: runs both again up to there, for the leaf."""
        boundary = end if parting.difference is None else parting.difference.boundary
        if self._is_before_resumes(parting):
            parted = self.folder / "straight", self.folder / "interrupted"
            return self._blame_script(parting, parted, end, finished=finished, ignored=ignored)
        located = None
        before = tuple(stop for stop in self._resumed_at(parting.run, stops) if stop < boundary)
        if parting.difference is not None and before:
            pair = self.folder / "straight_there", self.folder / "interrupted_there"
            self.straight(pair[0], boundary, f"straight to boundary {boundary}, for the leaf")
            self.interrupt(pair[1], before, boundary)
            if flaw := self._chance_in(pair, ignored):
                return self._blame_script(*flaw, end, finished=finished, ignored=ignored)
            located = locate(*pair, parting.run, boundary, ignored)
        causes = likely_causes(
            _symptoms(parting, boundary, self._resembling(parting, located, ignored), is_resume=True)
        )
        return Verdict(end, finished, stops, self.plan.kill, parting, ignored, located, tuple(causes))

    def _is_before_resumes(self, parting: Parting) -> bool:
        """Whether runs part where the interrupted one had not been resumed yet."""
        run = runs_in(self.folder / "interrupted").get(parting.run)
        if run is None or parting.difference is None:
            return False
        return parting.difference.boundary < min(went_on_from(run), default=0)

    def _chance_in(self, there: tuple[Path, Path], ignored: Ignored) -> tuple[Parting, tuple[Path, Path]] | None:
        """Where a run differs from the same one made before: two straight runs may be equal by luck."""
        made_alike = ("straight",) if self.plan.kill else ("straight", "interrupted")  # no kill is made again alike
        for name, again in zip(made_alike, there, strict=False):
            before = self.folder / name
            if parting := first_parting(before, again, ignored):
                return parting, (before, again)
        return None

    def _resumed_at(self, run: str, stops: tuple[int, ...]) -> tuple[int, ...]:
        """Boundaries that the interrupted run went on from: a killed one went back to its last checkpoint."""
        folder = self.folder / "interrupted"
        if not self.plan.kill or run not in runs_in(folder):
            return stops
        return tuple(sorted({at for at in went_on_from(runs_in(folder)[run]) if at > 0}))

    def _resembling(self, parting: Parting, located: Located | None, ignored: Ignored) -> Located | None:
        if located is None or parting.difference is None:
            return located
        folders = self.folder / "straight", self.folder / "interrupted"
        difference = parting.difference
        found = resemblances(*folders, parting.run, difference.boundary, difference.components, ignored)
        return replace(located, resembles=found)


_WAY_OUT_OF_TIME = "Give it more with --timeout, or go for fewer boundaries with --until."


def _where(folder: Path) -> str:
    if not runs_in(folder):
        return "no perdure.Run"
    at = reach(folder)
    return "no boundary" if at < 1 else f"boundary {at}"


def _symptoms(
    parting: Parting, boundary: int, located: Located | None, *, is_resume: bool, hash_seed_helps: bool = False
) -> Symptoms:
    difference = parting.difference
    return Symptoms(
        is_resume=is_resume,
        boundary=boundary,
        components=() if difference is None else difference.components,
        metrics=parting.what == METRIC_ROWS if difference is None else difference.metrics,
        is_other_run=parting.what == OTHER_RUN,
        is_other_end=difference is None and parting.what.startswith(ENDS.partition("{")[0]),
        counters=difference is not None and difference.counters,
        leaves=() if located is None else tuple(leaf.path for leaf in located.leaves),
        adapters={} if located is None else located.adapters,
        fidelity={} if located is None else located.fidelity,
        resembles={} if located is None else located.resembles,
        hash_seed_helps=hash_seed_helps,
    )
