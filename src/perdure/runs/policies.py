"""Policies of a run: which components they are, when they are exported, which of them stay."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.opening import read_manifest
from perdure.checkpoint.policy import PolicyAbout, open_policy, save_policy
from perdure.contract.arithmetic import arithmetic
from perdure.errors import CommitError, DamagedError, ForgottenValueError, UsageError
from perdure.format.state_digest import component_digests, state_digest
from perdure.runs.cadence import Every
from perdure.runs.committer import Committer, scores_of
from perdure.runs.directory import RunDirectory, newest_first, step_name, steps_of
from perdure.runs.environments import ADAPTERS
from perdure.runs.journal import Journal
from perdure.runs.metrics import read_metrics
from perdure.runs.normaliser import with_normaliser
from perdure.runs.policy_record import about_of, not_exported
from perdure.runs.record import read_record
from perdure.runs.retention import Candidate, Keep, KeepAny
from perdure.store.local import LocalStore
from perdure.tree.snapshot import Component, Snapshot

_log = logging.getLogger("perdure")


@dataclass(frozen=True)
class PolicyTerms:
    """What a script says about its policies."""

    components: Sequence[str] = ()
    """The components that are the policy."""
    every: Every | None = None
    """When one is exported by itself; None: never."""
    keep: Keep | KeepAny | None = None
    """Which of those in the run's directory stay; None: all."""

    def __post_init__(self) -> None:
        """Refuses a cadence that nobody knows what to export at.

        Raises:
            UsageError: no components, or values that cannot be right.
        """
        if isinstance(self.components, str) or not all(isinstance(name, str) for name in self.components):
            raise UsageError(f"policy={self.components!r}: a list of component names, such as policy=['agent'].")
        if self.every is not None and not isinstance(self.every, Every):
            raise UsageError(f"policy_every={self.every!r}: an Every, such as Every(env_steps=100_000).")
        if self.every is not None and not self.components:
            raise UsageError("policy_every: say which components are the policy: policy=['agent', 'obs_normaliser'].")
        if self.keep is not None and not isinstance(self.keep, Keep | KeepAny):
            raise UsageError(f"keep_policies={self.keep!r}: a Keep, such as Keep(last=2), or None for all.")


@dataclass(frozen=True)
class Source:
    """The run that exports."""

    directory: RunDirectory
    committer: Committer
    journal: Journal
    resolver: Resolver
    objects: Mapping[str, Any]
    """The components that are at hand."""
    names: frozenset[str]
    """All components' names."""
    counters: Counters
    """The last boundary."""


@dataclass
class Policies:
    """Exports policies of one open run."""

    terms: PolicyTerms
    """What the script says."""
    scores: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Scores of the boundaries at which this process exported, by name."""
    _last_at: float = field(default_factory=time.monotonic)
    _has_told: bool = False

    def is_due(self, before: Counters, now: Counters, *, at_horizon: bool) -> bool:
        """Whether the cadence exports at the boundary `now`: at the horizon, always."""
        every = self.terms.every
        return every is not None and (at_horizon or every.is_due(before, now, time.monotonic() - self._last_at))

    def export_due(self, source: Source, scores: Mapping[str, float]) -> None:
        """Exports at a boundary. A failure is told and no reason to stop: the checkpoints hold everything."""
        self._last_at, name = time.monotonic(), step_name(source.counters.env_steps)
        self.scores[name] = scores
        try:
            self.export(source, None, None)
        except (CommitError, DamagedError, OSError) as error:
            problem = f"{type(error).__name__}: {error}"
            _log.warning("%s: the policy of %s was not exported: %s", source.directory.path, name, problem)
            with suppress(OSError):
                source.journal.lineage.append("policy_failed", checkpoint=name, problem=problem)

    def export(self, source: Source, path: str | os.PathLike[str] | None, components: Sequence[str] | None) -> Path:
        """Exports components as they are now; returns where to.

        Raises:
            UsageError: nobody says which components, or there are no such.
            ForgottenValueError: one is a value and is not at hand.
            CaptureError: one cannot be captured.
            CommitError: something stands at `path`, or the disk failed.
        """
        chosen = _chosen(self.terms.components if components is None else components, source)
        snapshot = capture({name: source.objects[name] for name in chosen}, source.resolver, source.counters).snapshot
        environments = _environments(source)
        about = _about(source, snapshot, environments.components)
        snapshot, problem = with_normaliser(snapshot, environments)
        self._tell(source, problem)
        if path is not None:
            store, name = store_of(path)
            save_policy(store, name, snapshot, about)
            return Path(path).expanduser().absolute()
        directory, name = source.directory.policies, step_name(source.counters.env_steps)
        store = source.directory.policy_store()
        if not _stands(store, name, snapshot):
            digest = save_policy(store, name, snapshot, about)
            source.journal.lineage.append("exported", durable=False, policy=name, digest=digest)
        self._retain(store, source)
        return directory / name

    def _tell(self, source: Source, problem: str | None) -> None:
        """Once: a policy without the statistics that it was trained behind acts wrongly."""
        if problem is not None and not self._has_told:
            self._has_told = True
            _log.warning("%s: %s", source.directory.path, not_exported(problem))

    def _retain(self, store: LocalStore, source: Source) -> None:
        """Removes what the terms do not keep. What earlier processes scored stands in the metric rows."""
        if self.terms.keep is None:
            return
        names = list(newest_first(store.names()))
        if names[-1] not in self.scores:
            rows = read_metrics(source.directory.metrics)
            self.scores = {step_name(row["env_steps"]): scores_of(row) for row in rows} | self.scores
        candidates = [Candidate(name, steps_of(name) or 0, self.scores.get(name, {})) for name in names]
        kept = self.terms.keep.reasons(candidates)
        for name in names:
            if name not in kept:
                store.remove(name)


def _chosen(names: Sequence[str], source: Source) -> list[str]:
    listed = f"the run's components are {sorted(source.names)}"
    if isinstance(names, str) or not names:
        raise UsageError(f"export_policy: say which components are the policy, as a list; {listed}.")
    unknown = sorted(set(names) - source.names)
    if unknown:
        raise UsageError(f"export_policy: {unknown} are no components; {listed}.")
    missing = sorted(set(names) - source.objects.keys())
    if missing:
        again = ", ".join(f"{name}={name}" for name in missing)
        raise ForgottenValueError(f"export_policy: {missing} are values: hand them in ({again}).")
    return sorted(set(names))


def _environments(source: Source) -> Snapshot:
    """The run's environments as they are."""
    environments = {name: obj for name, obj in source.objects.items() if _adapter(source, name) in ADAPTERS}
    return capture(environments, source.resolver, source.counters).snapshot


def _about(source: Source, snapshot: Snapshot, facts: Mapping[str, Component]) -> PolicyAbout:
    committer, directory = source.committer, source.directory
    checkpoint = _same_checkpoint(source, snapshot)
    record = read_record(directory.record)
    return about_of(
        snapshot,
        facts,
        {name: _adapter(source, name) for name in source.names},
        run_id=record.run_id,
        checkpoint=checkpoint,
        contract=committer.contract,
        launch=record.launch,
        amended=committer.amended,
        versions=arithmetic(),
    )


def _adapter(source: Source, name: str) -> str:
    """What captures a component; of a value that is not at hand, nobody can tell."""
    return source.resolver.resolve(source.objects[name], (name,)).id if name in source.objects else "value"


def _same_checkpoint(source: Source, snapshot: Snapshot) -> tuple[str, str] | None:
    """The checkpoint of the last boundary, if it holds just what is exported: the caller may have trained on since."""
    source.committer.settle()
    name = step_name(snapshot.env_steps)
    try:
        manifest, digest = read_manifest(source.directory.store(), name)
    except DamagedError:  # not saved at this boundary, most often
        return None
    saved = {part: entry.digest for part, entry in manifest.components.items()}
    is_same = all(saved.get(part) == own for part, own in component_digests(snapshot).items())
    return (name, digest) if is_same else None


def _stands(store: LocalStore, name: str, snapshot: Snapshot) -> bool:
    """Whether this very policy is there. Another one is from a history that a resume gave up: it makes room."""
    if name not in store.names():
        return False
    try:
        saved = open_policy(store, name).manifest.state_digest
    except DamagedError as error:
        _log.warning("%s is damaged (%s); it was moved to %s and is written anew.", name, error, store.set_aside(name))
        return False
    own = component_digests(snapshot)
    if saved == state_digest(own, snapshot.env_steps, snapshot.updates, snapshot.boundary):
        return True
    store.remove(name)
    _log.warning("%s: another policy of the same step stood there, from before a resume; it is replaced.", name)
    return False


def store_of(path: str | os.PathLike[str]) -> tuple[LocalStore, str]:
    """The store that a policy at `path` stands in, and its name there."""
    whole = Path(path).expanduser().absolute()
    return LocalStore(whole.parent, whole.parent / "damaged"), whole.name


def policies_of(directory: RunDirectory) -> list[str]:
    """The names of a run's policies, the newest first."""
    return list(newest_first(directory.policy_store().names()))
