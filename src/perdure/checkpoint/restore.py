"""Restore: a verified snapshot into live objects; everything is checked before anything changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.adapters.omitted import ADAPTER as OMITTED
from perdure.adapters.resolve import WITHOUT_TARGET, Resolver
from perdure.adapters.walk import Walk
from perdure.checkpoint.amend import Amended, Number, amend
from perdure.checkpoint.capture import Captured, Counters, capture, in_order
from perdure.contract.facts import compare_facts, is_trace
from perdure.contract.overrides import Accepted, Overrides, settle
from perdure.errors import ContractError, Finding, RestoreError
from perdure.format.state_digest import component_digests
from perdure.tree.diff import diff_snapshots
from perdure.tree.leaves import Alias, Tree, leaves, owned
from perdure.tree.paths import Path, format_path
from perdure.tree.snapshot import Snapshot


@dataclass(frozen=True)
class Restored:
    """What a restore gives back."""

    objects: dict[str, Any]
    """By component: the live object itself, or the new value."""
    values: frozenset[str]
    """Names of the components that are values."""
    accepted: tuple[Accepted, ...] = ()
    """Differences that the overrides covered."""
    amended: Amended | None = None
    """Where accepted values went."""


@dataclass(frozen=True)
class Conditions:
    """What a resume must meet beside fitting targets."""

    findings: Sequence[Finding] = ()
    """What spoke against the restore before the targets were looked at."""
    overrides: Overrides = Overrides()  # noqa: RUF009 - a frozen value
    """What is accepted all the same."""
    start: Mapping[str, Number] = field(default_factory=dict)
    """The numbers that the run started with, by path."""
    fresh: Captured | None = None
    """The targets' state, if it was captured already."""


_MISSED = (
    "nothing there",
    "an accepted value",
    "It has no place in the checkpoint: leave this acceptance out and build the part as the run did.",
)
"""What is said where an accepted value cannot be put into the state."""


def restore(
    snapshot: Snapshot,
    targets: Mapping[str, Any],
    resolver: Resolver,
    place: str,
    *,
    digests: Mapping[str, str] | None = None,
    conditions: Conditions = Conditions(),
) -> Restored:
    """Restores all targets, or none.

    Order: check all; apply; random number generators last; capture again and compare digests. If applying fails
    half-way, the state from before is put back. Values adopt the snapshot's arrays: restore it once.

    Args:
        snapshot: a verified snapshot.
        targets: by component name, exactly the snapshot's components.
        resolver: finds their adapters.
        place: the checkpoint's name, for messages.
        digests: the components' digests, where they are known already.
        conditions: what else a resume must meet.

    Returns:
        The restored objects.

    Raises:
        ContractError: a target does not fit; all findings at once, nothing changed.
        RestoreError: applying failed; the state from before was put back.
    """
    fresh = conditions.fresh or capture(targets, resolver, Counters())
    before = _kept(fresh, snapshot)
    findings = [*conditions.findings, *_check(snapshot, targets, before, resolver)]
    settled = settle(findings, conditions.overrides)
    if settled.remaining:
        raise ContractError(place, settled.remaining)
    amended = amend(snapshot, before, settled.accepted, conditions.start) if settled.accepted else None
    if amended and amended.missed:
        raise ContractError(place, [Finding(path, *_MISSED) for path in amended.missed])
    wanted = amended.snapshot if amended else snapshot
    expected = component_digests(wanted) if digests is None or amended else digests
    try:
        objects = _apply(wanted, targets, resolver)
        values = _compare(wanted, expected, objects, resolver, place)
    except Exception as error:
        problem = str(error).removeprefix(f"{place}: ").rstrip(".")
        raise RestoreError(f"{place}: restoring failed: {problem}. {_put_back(before, targets, resolver)}") from error
    except BaseException:  # an interrupt
        _put_back(before, targets, resolver)
        raise
    return Restored(objects, values, tuple(settled.accepted), amended)


def _kept(captured: Captured, snapshot: Snapshot) -> Snapshot:
    """The state from before, to be put back if applying fails; values are replaced, not changed, and not copied."""
    components = {
        name: replace(part, tree=owned(part.tree)) if name in captured.lives else part
        for name, part in captured.snapshot.components.items()
    }
    return Snapshot(components, snapshot.env_steps, snapshot.updates, snapshot.boundary)


def _check(snapshot: Snapshot, targets: Mapping[str, Any], before: Snapshot, resolver: Resolver) -> list[Finding]:
    walk = Walk(resolver, _made(snapshot))
    findings: dict[str, list[Finding]] = {}
    for name in snapshot.components.keys() - targets.keys():
        findings[name] = [Finding(name, "a component", "nothing", f"Hand {name}=… to restore.")]
    for name in in_order(targets, resolver):
        if name not in snapshot.components:
            advice = f"Leave {name} out, or start a new run that has it from the beginning."
            findings[name] = [Finding(name, "no such component", "a target", advice)]
        elif (snapshot.components[name].adapter == OMITTED) > (before.components[name].adapter == OMITTED):
            advice = f"Its checkpoints do not have it: Run(omit=({name!r},)) goes on with what is handed in."
            findings[name] = [Finding(name, "left out of the run's checkpoints", "a target", advice)]
        else:
            parts = walk.check(targets[name], snapshot.components[name].tree, name)
            facts = compare_facts(name, snapshot.components[name].facts, before.components[name].facts)
            findings[name] = parts + [fact for fact in facts if not _is_told(fact, parts)]
    return [finding for name in sorted(findings) for finding in findings[name]]


def _is_told(fact: Finding, parts: Sequence[Finding]) -> bool:
    """Whether leaves that do not fit say the same more clearly."""
    above = any(fact.key == part.key or fact.key.startswith(f"{part.key}/") for part in parts)
    return above or (bool(parts) and is_trace(fact.key))


def _apply(snapshot: Snapshot, targets: Mapping[str, Any], resolver: Resolver) -> dict[str, Any]:
    walk = Walk(resolver, _made(snapshot))
    trees = {name: part.tree for name, part in snapshot.components.items()}
    objects = {name: walk.restore(targets[name], trees[name], name) for name in in_order(targets, resolver)}
    for restore_rng in walk.postponed:
        restore_rng()
    return objects


def _made(snapshot: Snapshot) -> dict[Path, str]:
    return {path: adapter for part in snapshot.components.values() for path, adapter in part.made.items()}


def _put_back(before: Snapshot, targets: Mapping[str, Any], resolver: Resolver) -> str:
    try:
        _apply(before, targets, resolver)
    except Exception as error:  # noqa: BLE001 - a user's load_state_dict may raise anything; it is reported
        return f"Putting the state from before back failed too ({error}): do not go on with these objects."
    return "The state from before has been put back."


def _compare(
    snapshot: Snapshot, digests: Mapping[str, str], objects: Mapping[str, Any], resolver: Resolver, place: str
) -> frozenset[str]:
    """Captures again and compares; returns the names of the components that are values."""
    captured = capture(objects, resolver, Counters(snapshot.env_steps, snapshot.updates, snapshot.boundary))
    if component_digests(captured.snapshot) != digests:
        differences = diff_snapshots(snapshot, captured.snapshot)
        shown = "; ".join(map(str, differences[:3]))
        message = f"captured again, {len(differences)} leaves differ from the checkpoint (saved | now): {shown}"
        raise RestoreError(f"{place}: {message}")
    _compare_objects(snapshot, captured.snapshot, place)
    return captured.values


def _compare_objects(snapshot: Snapshot, now: Snapshot, place: str) -> None:
    """What digests do not see: which objects are shared, and what kinds of objects hold the state."""
    for name, part in snapshot.components.items():
        shared, shared_now = _aliases(part.tree, name), _aliases(now.components[name].tree, name)
        for path in sorted(shared.keys() | shared_now.keys(), key=format_path):
            if shared.get(path) != shared_now.get(path):
                message = f"{format_path(path)} was one object with another in the run, and is not now, or the reverse"
                raise RestoreError(f"{place}: {message}. Let load_state_dict keep the objects it is handed.")
        for path, adapter in part.made.items():
            adapter_now = now.components[name].made.get(path, "plain data")
            if adapter_now != adapter and adapter not in WITHOUT_TARGET:  # those may become what the target is
                message = f"{format_path(path)} was a {adapter} in the run and came back as {adapter_now}"
                raise RestoreError(f"{place}: {message}")


def _aliases(tree: Tree, name: str) -> dict[Path, Path]:
    return {path: leaf.path for path, leaf in leaves(tree, (name,)) if isinstance(leaf, Alias)}
