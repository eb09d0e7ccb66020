"""Pruning: applies a retention policy to what is on disk."""

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.checkpoint.opening import read_manifest
from perdure.errors import DamagedError
from perdure.runs.directory import RunDirectory, newest_first, steps_of
from perdure.runs.pins import read_pins
from perdure.runs.retention import Candidate, Keep, KeepAny


@dataclass(frozen=True)
class Plan:
    """What stays and what goes."""

    kept: Mapping[str, str]
    """Name -> why it stays."""
    removed: tuple[str, ...]
    """Names of what goes, oldest first."""


def plan(directory: RunDirectory, keep: Keep | KeepAny, known: dict[str, Mapping[str, float]]) -> Plan:
    """What `keep` means for the checkpoints on disk now; changes nothing.

    Only names that perdure gives are looked at. A damaged checkpoint has no scores; the newest one always stays.

    Args:
        directory: the run.
        keep: the policy.
        known: scores by name, as far as the caller has read them; filled up here.
    """
    names = list(newest_first(directory.store().names()))
    pins = read_pins(directory)
    for name in names:
        if name not in known:
            known[name] = _scores(directory, name)
    candidates = [Candidate(name, steps_of(name) or 0, known[name], name in pins) for name in names]
    kept = keep.reasons(candidates)
    return Plan(kept, tuple(name for name in reversed(names) if name not in kept))


def prune(directory: RunDirectory, keep: Keep | KeepAny, known: dict[str, Mapping[str, float]]) -> Plan:
    """Removes what `keep` does not name; the caller holds the lock and has committed the newest."""
    result = plan(directory, keep, known)
    for name in result.removed:
        directory.store().remove(name)
    return result


def _scores(directory: RunDirectory, name: str) -> Mapping[str, float]:
    try:
        return read_manifest(directory.store(), name)[0].scores
    except DamagedError:
        return {}
