"""`Run`: what a training script talks to."""

import logging
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from perdure.adapters.adapter import Adapter
from perdure.adapters.process_rng import NAME as PROCESS_RNG
from perdure.adapters.process_rng import ProcessRng
from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, check_names
from perdure.contract.config import contract_of
from perdure.contract.horizon import Schedules
from perdure.contract.overrides import Accept
from perdure.contract.sections import AUDIT
from perdure.errors import CommitError, ForgottenValueError, UsageError
from perdure.runs.arguments import (
    check_choice,
    check_keep,
    check_values,
    count,
    horizon_steps,
    next_counters,
    unsaved_end,
)
from perdure.runs.auditing import examiner, ignored, new_watch
from perdure.runs.begin import decide
from perdure.runs.boundaries import Boundaries
from perdure.runs.boundary_reset import BoundaryReset, Resets
from perdure.runs.cadence import Every
from perdure.runs.committer import AfterCommit, Terms, scores_of
from perdure.runs.contract_terms import ContractTerms, Numerics
from perdure.runs.crash_loop import facts_of_end
from perdure.runs.directory import open_directory, step_name
from perdure.runs.durations import process_age_s
from perdure.runs.lock import WriterLock, acquire
from perdure.runs.omission import Omissions
from perdure.runs.opening import Opening, OpenRun, check_beginning, open_run
from perdure.runs.orders import Mode, insisted_mode, orders_for, other_run_asked_for, overrides_of, redirected
from perdure.runs.policies import Policies, PolicyTerms, Source
from perdure.runs.requirement import required_class
from perdure.runs.retention import Keep, KeepAny
from perdure.runs.sinks import Sinks
from perdure.runs.standing import Standing
from perdure.runs.stopping import Stopper
from perdure.runs.variables import checked_names
from perdure.sinks import Sink
from perdure.store.filesystem import FileSystem

if TYPE_CHECKING:
    from perdure.memory.suspects import Watch

RESERVED_NAMES = frozenset({"env_steps", "updates", "metrics", PROCESS_RNG})

_log = logging.getLogger("perdure")


class Run(Standing):
    """One training run: a directory, and the objects whose state it keeps.

    ```python
    run = perdure.Run("runs/x", config=args, horizon="total_timesteps")
    s = run.restore(agent=agent, rng=rng, next_obs=next_obs, global_step=0)
    next_obs, global_step = s.next_obs, s.global_step
    while global_step < args.total_timesteps:
        ...
        run.boundary(env_steps=global_step, next_obs=next_obs, global_step=global_step)
    run.finish()
    ```

    Live objects (modules, optimizers, generators, anything with `state_dict`) are remembered and restored in
    place. Values (numbers, arrays, JAX trees) are handed in again at each boundary. The global random number
    generators of Python and NumPy are always part of the state.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        config: Any = None,
        horizon: str | int | None = None,
        free: Sequence[str] = (),
        every: Every | None = None,
        mode: Mode = "auto",
        keep: Keep | KeepAny | None = Keep(last=2),  # noqa: B008 - a frozen value
        background: bool = True,
        strict: bool = False,
        after_commit: AfterCommit | None = None,
        adapters: Sequence[tuple[type, Adapter]] = (),
        launch: Mapping[str, Any] | None = None,
        contract: Mapping[str, Any] | None = None,
        schedules: Schedules | None = None,
        numerics: Numerics = "report",
        requires: str | None = None,
        boundary_reset: BoundaryReset | None = None,
        omit: Sequence[str] = (),
        accept: Accept = (),
        reason: str | None = None,
        policy: Sequence[str] = (),
        policy_every: Every | None = None,
        keep_policies: Keep | KeepAny | None = None,
        variables: Sequence[str] = (),
        chain: int | None = None,
        stop_after: str | float | None = None,
        sinks: Sequence[Sink] = (),
        audit_ignore: Mapping[str, str] | None = None,
    ) -> None:
        """Prepares a run; the disk is not touched before `restore`.

        Args:
            directory: the run's directory, made absolute now.
            config: all hyper-parameters; a resume compares every one that is not free.
            horizon: the dotted key of `config` that names the total of environment steps, or that number. The
                boundary at or past it is always saved.
            free: patterns of keys that may change at a resume (`track`, `wandb_*`).
            every: when boundaries are saved; default: Every(minutes=10).
            mode: `auto` resumes where there is something to resume; `new` and `resume` insist.
            keep: which checkpoints stay after a newer one was committed; None: all.
            background: whether checkpoints are written by a thread while training goes on. Errors then surface at
                the next boundary or at `finish`.
            strict: refuse a damaged newest checkpoint instead of stepping back to the one before.
            after_commit: called with each committed directory (upload, copy); its failure is reported, never fatal.
            adapters: the user's own: (class, adapter).
            launch: how `perdure resume` starts this run again; default: this script's command line.
            contract: what else must not change, by section: `{"reward": {"weight": 0.5}, "env": {"levels":
                perdure.File("levels/")}}`. Sections `interface`, `env` and `reward` have a meaning (docs/contract.md),
                others are the user's own.
            schedules: what another total of steps does to schedules at a resume: `none` depends on the total; `keep`
                the old schedule; `restretch` what is left of it (see `progress`). None: another total is refused.
            numerics: whether a change of machine or library versions is reported, or refused (`strict`).
            requires: the weakest continuation class that will do; a component that allows less is refused when the
                run opens. `exact-snapshot` also refuses environments that are replayed. None: `exact-replay`, or
                `boundary-reset` or `statistical` if that is what the run does.
            boundary_reset: for environments whose state cannot be captured: the run resets them at each checkpoint, and
                decides the cadence in the place of `every` (docs/gymnasium.md).
            omit: components that are left out of checkpoints, such as `("replay",)`: a resume goes on with what it is
                handed in their place, and the run's class is `statistical` (docs/replay.md).
            accept: differences that are accepted, by key: `{"algorithm.learning_rate": (3e-4, 1e-4)}`.
            reason: why, for the lineage.
            policy: the components that `export_policy` exports: networks, and normalisers of what they see.
            policy_every: when boundaries export a policy to `policies/`; the one at the horizon then does, too.
            keep_policies: which of those stay; None: all.
            variables: environment variables that `run.json` keeps beside those that are known to change arithmetic
                (docs/provenance.md); a resume tells what changed. None whose name speaks of a secret.
            chain: the state's digests are written to `chain.jsonl` at each boundary whose number is a multiple of this
                (docs/proving.md); None: at none. PERDURE_CHAIN takes its place.
            stop_after: how long this process may run, `"3h55m"` or seconds, before the run is told to stop as by a
                signal (docs/preemption.md); PERDURE_STOP_AFTER takes its place. None: as long as it takes.
            sinks: where metric rows go besides `metrics.jsonl`: `perdure.sinks.Csv()`, … (docs/logging.md).
            audit_ignore: what `perdure audit` leaves alone, by place, with the reason (docs/auditing.md); the contract
                keeps it.

        Raises:
            UsageError: an argument cannot be right.
        """
        self._directory = open_directory(redirected(directory))
        total_key = horizon if isinstance(horizon, str) else None
        declared = contract_of(config, horizon=total_key, free=free, own=contract)
        self._horizon = horizon_steps(horizon, declared)
        if self._horizon is not None and total_key is None:
            declared["horizon"]["env_steps"] = self._horizon
        check_choice("schedules", schedules, (None, "none", "keep", "restretch"))
        check_choice("numerics", numerics, ("report", "strict"))
        self._omissions = Omissions(omit)
        self._requires = required_class(requires, resets=boundary_reset is not None, omits=bool(self._omissions))
        overrides = overrides_of(accept, reason, self._directory)
        self._resets = Resets(boundary_reset)
        self._every = self._resets.cadence(every)
        self._resets.into(declared)
        self._contract_terms = ContractTerms(declared, tuple(free), schedules, numerics, overrides)
        if audit_ignore is not None:
            declared[AUDIT] = dict(ignored(audit_ignore))
        self._mode = insisted_mode(mode, self._directory)
        check_keep(keep)
        self._resolver = Resolver(adapters)
        self._launch = launch
        self._strict = strict
        self._terms = Terms(keep, background, after_commit)
        resets = boundary_reset is not None
        self._orders = orders_for(self._directory, chain=chain, stop_after=stop_after, resets=resets)
        self._variables = checked_names(variables)
        self._policies = Policies(PolicyTerms(policy, policy_every, keep_policies))
        self._sinks = Sinks(sinks)
        self._examiner = examiner()
        self._watch: Watch | None = None
        self._pid: int | None = None
        self._release: weakref.finalize[..., Any] | None = None
        self._open: OpenRun | None = None
        self._live: dict[str, Any] = {}
        self._values: frozenset[str] = frozenset()
        self._boundaries: Boundaries | None = None
        self._stopper: Stopper | None = None
        self._was_restored = False
        self._told: tuple[float, tuple[str, ...]] | None = None
        self.resumed = False
        """Whether `restore` found a checkpoint to go on from."""
        self.notices: list[str] = []
        """What `restore` had to say: damage it stepped back from, rows it cut, changed libraries."""

    def restore(self, *, env_steps: int = 0, **components: Any) -> SimpleNamespace:
        """Begins the run or resumes it: the newest intact checkpoint goes into `components`, or nothing does.

        Order of a resume: lock, verify, contract, check all, apply, random number generators, capture again.

        Args:
            env_steps: where a fresh run starts counting.
            **components: everything that must survive, by name.

        Returns:
            The components by name: live objects themselves, values new; and `env_steps`, `updates`.

        Raises:
            LockedError: the run is open elsewhere.
            NothingToLoadError: `mode="resume"` and nothing there, or every checkpoint is damaged.
            ContractError: configuration, seed or structure differ; nothing was changed.
            RestoreError: applying failed; the state from before was put back.
            UsageError: reserved or impossible names, or `restore` called twice.
        """
        if self._was_restored:
            raise UsageError("restore: this Run was restored already; make a new Run to go back.")
        check_names(components)
        reserved = RESERVED_NAMES & components.keys()
        if reserved:
            raise UsageError(f"restore: the names {sorted(reserved)} are reserved; choose others.")
        targets = {**self._marked(components), PROCESS_RNG: ProcessRng()}
        self._resets.check(components)
        self._omissions.check(components)
        start = Counters(env_steps=count("restore", "env_steps", env_steps))
        if asked := other_run_asked_for(self._directory):
            _log.warning("%s: this script opens this run; `perdure resume` was asked for %s.", self.directory, asked)
        # Before anything is created at a mistyped path.
        check_beginning(self._directory, decide(self._directory, self._mode), self._contract_terms)
        limit_s = self._orders.stop_after_s
        left_s = None if limit_s is None else limit_s - process_age_s()
        stopper = self._stopper = Stopper(self, left_s)
        try:
            with stopper:
                restored = self._restore(components, targets, start, stopper)
                self._ask_at(self.boundary_number, stopper)
                if self._examiner is not None:
                    objects = {name: vars(restored)[name] for name in components}
                    self._examiner.restored(objects, self.boundary_number, self._resolver, restored)
                return restored
        except BaseException:
            stopper.close()
            raise

    def _restore(
        self, components: Mapping[str, Any], targets: Mapping[str, Any], start: Counters, stopper: Stopper
    ) -> SimpleNamespace:
        FileSystem().make_directory(self._directory.path)
        lock = acquire(self._directory.lock)
        try:
            beginning = decide(self._directory, self._mode)
            opening = Opening(
                directory=self._directory,
                beginning=beginning,
                targets=targets,
                resolver=self._resolver,
                terms=self._terms,
                contract_terms=self._contract_terms,
                launch=self._launch,
                start=start,
                strict=self._strict,
                lock=lock,
                orders=self._orders,
                requires=self._requires,
                sinks=self._sinks,
                policy=self._policies.terms.components,
                variables=self._variables,
            )
            self._take_over(open_run(opening), lock, stopper)
        except BaseException:
            lock.release()
            raise
        restored = self._opened("restore").restored
        objects = self._omissions.unmarked({name: restored.objects[name] for name in components})
        objects = self._resets.begin(objects, self._counters)
        if self.resumed:
            self.notices += self._resets.notices(self.directory) + self._omissions.notices(self.directory)
        return SimpleNamespace(**objects, env_steps=self.env_steps, updates=self.updates)

    def _take_over(self, opened: OpenRun, lock: WriterLock, stopper: Stopper) -> None:
        self._was_restored, self._pid = True, os.getpid()
        # A Run that is dropped without `close` (a notebook's cell that runs again) must not keep its run locked.
        self._release = weakref.finalize(self, _release, opened, lock, stopper)
        self._release.atexit = False  # at the end of the process `finish` may still come; the system frees the lock
        self._open = opened
        self._boundaries = Boundaries(opened, self._resolver, self._every, self._horizon, self._resets)
        stopper.begin(self._boundaries, opened.journal)
        self.resumed, self.notices = opened.resumed, opened.notices
        restored = opened.restored
        self._values = restored.values
        self._live = {name: obj for name, obj in restored.objects.items() if name not in restored.values}

    def boundary(
        self,
        *,
        env_steps: int,
        updates: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> Any:
        """The one safe point of an iteration: after the update, before the next collection.

        Args:
            env_steps: environment steps taken in all; greater than at the boundary before.
            updates: policy updates made in all; default: the boundary's number.
            metrics: a row for the metric stream: numbers, text, booleans; deterministic ones only.
            **values: every component that is a value, as it is now.

        Returns:
            With `boundary_reset`, at each checkpoint: what the reset of the environments gave, to go on from. Or None.

        Raises:
            ForgottenValueError: a value is missing, or one appears that `restore` was not given.
            UsageError: a counter that does not grow, or a malformed metric.
            CaptureError: an object cannot be captured, or a function, class or dtype in it has become another.
            LockedError: the writer lock was lost to another process.
            CommitError: an earlier checkpoint could not be committed in the background: nothing of this boundary has
                been noted, call it again. Or (`background=False`) this one could not: the boundary stands without it.
                Committed checkpoints are untouched.
        """
        with self._stopping("boundary") as stopping:
            boundaries = self._standing("boundary")
            boundaries.raise_error()
            before, now = boundaries.counters, next_counters(boundaries.counters, env_steps, updates)
            values = self._marked(values)
            if values.keys() != self._values:
                self._take_live(values)
            self._ask_at(now.boundary, stopping)
            is_due = (
                boundaries.is_due(now)
                or self._orders.wants_checkpoint(now.boundary)
                or (stopping.wants_checkpoint and not self._resets.decide)
            )
            if is_due:
                boundaries.commit({**self._live, **values}, now, metrics, at_once=stopping.wants_checkpoint)
                stopping.has_checkpoint()
            else:
                boundaries.pass_by(self._live, values, now, metrics)
            if self._policies.is_due(before, now, at_horizon=self.is_finished):
                self._policies.export_due(self._source("boundary", values), scores_of(metrics or {}))
            if self._examiner is not None:
                self._examiner.passed({**self._live, **values}, self.boundary_number, self._resolver)
            return self._resets.reset(now) if is_due else None

    def export_policy(
        self, path: str | os.PathLike[str] | None = None, *, components: Sequence[str] | None = None, **values: Any
    ) -> Path:
        """Exports components for inference, as they are now: a policy, which cannot be resumed (docs/policies.md).

        Args:
            path: the directory to make; default: `policies/step_…` in the run's directory.
            components: which; default: those that `Run(policy=…)` names.
            **values: those of them that are values.

        Returns:
            Where the policy stands.

        Raises:
            UsageError: nobody says which components, or there are no such.
            ForgottenValueError: one is a value and was not handed in.
            CaptureError: one cannot be captured.
            CommitError: something stands at `path`, or the disk failed.
        """
        with self._stopping("export_policy"):
            return self._policies.export(self._source("export_policy", values), path, components)

    def summary_writer(self) -> Any:
        """A TensorBoard writer (`add_scalar(tag, value, env_steps)`, …) without double curves; see docs/logging.md."""
        with self._stopping("summary_writer"):  # it opens a file, and holds the sinks' lock meanwhile
            return self._opened("summary_writer").journal.sinks.summary_writer()

    def audit(self) -> tuple[Any, ...]:
        """Looks at the script's memory, and tells which variables have changed since earlier calls in this process.

        Call it once an iteration, after `boundary`; it draws nothing and changes nothing. What it finds is not in any
        checkpoint, and may matter or not: `perdure audit -- python train.py` tells which does (docs/auditing.md).

        Returns:
            The suspects so far (`place`, `before`, `now`), those of `audit_ignore` left out; none at the first call.
        """
        self._opened("audit")
        self._watch = self._watch or new_watch(self._resolver)
        counters = self.env_steps, self.updates, self.boundary_number
        self._watch.look(self._live, self._values, counters, sys._getframe(1))
        left_alone = self._contract_terms.declared.get(AUDIT, {})
        return tuple(each for each in self._watch.suspects if each.place not in left_alone)

    def _marked(self, components: dict[str, Any]) -> dict[str, Any]:
        """What stands for the components among those that are captured."""
        return self._omissions.marked(self._resets.marked(components))

    def _source(self, verb: str, values: Mapping[str, Any]) -> Source:
        opened, objects = self._opened(verb), {**self._live, **values}
        names = self._values | self._live.keys()
        journal = opened.journal
        return Source(self._directory, opened.committer, journal, self._resolver, objects, names, self._counters)

    def _ask_at(self, boundary: int, stopper: Stopper) -> None:
        """Tells the run to stop where `perdure prove` wants it to."""
        if self._orders.wants_stop(boundary):
            stopper.ask(f"PERDURE_STOP_AT_BOUNDARY={self._orders.stop_at}")

    def _take_live(self, values: dict[str, Any]) -> None:
        """Live objects may be handed in again, and replace the remembered ones."""
        check_values(values.keys(), self._values, self._live.keys())
        self._live.update({name: value for name, value in values.items() if name in self._live})

    def finish(self, *, env_steps: int | None = None, updates: int | None = None, **values: Any) -> None:
        """Ends the run: saves the last state if that has not been done, notes the end, frees the lock.

        Args:
            env_steps: needed only if the last boundary was not saved (no horizon is known, or it is not reached): as
                for `boundary`.
            updates: as for `boundary`.
            **values: as for `boundary`; not looked at if the boundary at `env_steps` is saved already.

        Raises:
            ForgottenValueError: the last state is not saved and the values were not handed in.
        """
        if self._stopper is not None and self._stopper.preempted is not None:
            return  # in a `finally`: the run has ended
        with self._stopping("finish"):
            boundaries = self._standing("finish")
            now = boundaries.counters
            if env_steps is not None and count("finish", "env_steps", env_steps) != now.env_steps:
                now = next_counters(now, env_steps, updates)
            values = self._marked(values)
            if values:
                self._take_live(values)
            if not boundaries.is_saved or now != boundaries.counters:
                self._take_final(values)
                boundaries.commit({**self._live, **values}, now, None)
            boundaries.raise_error(wait=True)
            self._end("finished", checkpoint=step_name(self.env_steps))

    def _take_final(self, values: dict[str, Any]) -> None:
        if not values and self._values:
            raise ForgottenValueError(unsaved_end(self.boundary_number, self.env_steps, self._horizon, self._values))
        self._take_live(values)

    def close(self) -> None:
        """Waits for a commit in flight and frees the lock, without saving. A second call does nothing.

        Raises:
            CommitError: the commit in flight failed; the lock is free all the same.
        """
        if self._pid not in (None, os.getpid()):  # a forked child holds nothing: not the lock, not the writer's thread
            self._open = None
            return
        self._end("stopped", why="closed")

    def _end(self, event: str, **facts: Any) -> None:
        """Waits for the commit in flight, writes the last line of the lineage, frees the lock."""
        opened, stopper = self._open, self._stopper
        if opened is None or stopper is None:
            return
        with stopper.undisturbed(), opened.committer.exclusively():  # a signal's thread may be committing
            try:
                opened.committer.wait()
                opened.journal.close_sinks()
                opened.journal.lineage.append(event, trained_s=round(opened.committer.trained_s, 3), **facts)
            except CommitError:
                raise
            except OSError as error:  # a line of history is no reason to fail at the very end
                _log.warning("%s: the lineage could not be written: %s", self.directory, error)
            finally:
                self._told = round(opened.committer.trained_s, 3), opened.committer.amended
                self._free()

    def _free(self) -> None:
        self._open = None
        if self._release is not None:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Closes the run; `finish` before it ends the run.

        Raises:
            Preempted: the run was told to stop, and the loop was left instead of going on to the next boundary.
        """
        if self._pid not in (None, os.getpid()):
            return
        if error is not None:
            self.end(error)
            return
        try:
            if self._stopper is not None:
                self._stopper.leave()
        finally:
            self._end("stopped", why="closed")

    def end(self, error: BaseException) -> None:
        """Ends the run because of an exception: what is held in memory becomes durable first. Raises nothing.

        `with` does this, and so does an exception that nobody catches. A second call does nothing.
        """
        if self._open is None or self._boundaries is None or self._stopper is None:
            return
        with self._stopper.undisturbed():
            try:
                self._boundaries.commit_held()
            except Exception as problem:  # noqa: BLE001 - the exception at hand is what its user must see
                _log.error("%s: the last boundary could not be saved: %s", self.directory, problem)
            with suppress(CommitError):
                self._end("stopped", **facts_of_end(error))

    @property
    def should_stop(self) -> bool:
        """Whether a signal or `stop_after` has told the run to stop: a long evaluation had better end early.

        The next boundary then saves and leaves by `Preempted`.
        """
        return self._stopper is not None and self._stopper.should_stop

    def _stopping(self, verb: str) -> Stopper:
        self._opened(verb)
        assert self._stopper is not None  # noqa: S101 - made before the run is opened
        return self._stopper

    def _standing(self, verb: str) -> Boundaries:
        self._opened(verb)
        assert self._boundaries is not None  # noqa: S101 - set when the run is opened
        return self._boundaries

    def _opened(self, verb: str) -> OpenRun:
        if self._pid not in (None, os.getpid()):
            raise UsageError(f"{verb}: a forked child may not write; only the process that opened the run may.")
        if self._open is None and self._stopper is not None and self._stopper.preempted is not None:
            raise self._stopper.preempted  # again: somebody caught it
        if self._open is None:
            raise UsageError(f"{verb}: the run is not open; call restore first, and nothing after finish or close.")
        return self._open


def _release(opened: OpenRun, lock: WriterLock, stopper: Stopper) -> None:
    stopper.close()
    opened.committer.close()
    opened.journal.close()
    lock.release()
