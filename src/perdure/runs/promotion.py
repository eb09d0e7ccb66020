"""Promotion: a policy of a checkpoint takes over a role, at once or not at all; nothing is overwritten."""

import fcntl
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from perdure.checkpoint.opening import read_manifest
from perdure.checkpoint.policy import OpenedPolicy, open_policy
from perdure.errors import CommitError, DamagedError, LockedError, UsageError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.format.manifest import FILE_NAME as CHECKPOINT_FILE
from perdure.format.manifest import encode_contract
from perdure.format.policy import FILE_NAME as POLICY_FILE
from perdure.format.role import FILE_NAME, Promotion, encode_role
from perdure.runs.directory import RunDirectory
from perdure.runs.normaliser import NAME as NORMALISER
from perdure.runs.policy_record import export_checkpoint
from perdure.runs.retention import Ranking
from perdure.runs.roles import DAMAGED, check_role_name, read_role
from perdure.store.filesystem import FileSystem
from perdure.store.local import LocalStore
from perdure.store.small_files import replace_durably

_log = logging.getLogger("perdure")

LONGEST_WAIT_S = 60.0
"""For another promotion to the same role; one takes as long as its policy takes to be written."""


@dataclass(frozen=True)
class Candidate:
    """The checkpoint that is promoted, and what of it."""

    store: LocalStore
    """Where it stands."""
    name: str
    """Its name."""
    run: RunDirectory | None
    """Its run; None: it stands alone."""
    components: Sequence[str]
    """The components that are the policy."""
    launch: Mapping[str, Any]
    """How the run was launched."""
    ranking: Ranking | None = None
    """What it was chosen by."""


def promote(candidate: Candidate, role: str, folder: Path, note: str | None = None) -> Promotion:
    """Makes a policy of a checkpoint and gives it a role.

    The policy is written first, whole and under a name that nothing has; then the role's file is replaced by one
    rename. Whoever is killed in between leaves the role as it was. Two processes that promote to one role come one
    after the other, and both stand in its history.

    Args:
        candidate: what is promoted.
        role: the role's name.
        folder: where roles stand.
        note: why, for the history.

    Raises:
        UsageError: no role can have this name, something else stands at its place, or there are no such components.
        DamagedError: the checkpoint or the role's file is damaged.
        LockedError: another promotion to this role does not come to an end.
        CommitError: the disk failed; the role names the policy that it named before.
    """
    check_role_name(role)
    place = folder.expanduser().absolute() / role
    _check_place(place)
    try:
        FileSystem().make_directory(place)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{place}: a folder above it is a file; choose another place with --to.") from error
    with _alone(place):
        history = read_role(place)
        store = LocalStore(place, place / DAMAGED)
        store.remove_leftovers()
        promotion = _promotion(candidate, _policy_of(candidate, store), note, history)
        try:
            replace_durably(place / FILE_NAME, encode_role(role, [*history, promotion]))
        except OSError as error:
            raise CommitError(f"{place}: {FILE_NAME} was not written: {error}. The role is as it was.") from error
    return promotion


_INSIDE = frozenset({"checkpoints", "policies", DAMAGED})
"""Folders of a run, in which roles would be taken for its own."""


def _check_place(place: Path) -> None:
    """Roles stand beside runs, and in none of what perdure writes."""
    for folder in (place, place.parent, place.parent.parent) if place.parent.name in _INSIDE else (place, place.parent):
        for file, what in (("run.json", "a run"), (CHECKPOINT_FILE, "a checkpoint"), (POLICY_FILE, "a policy")):
            if (folder / file).exists():
                raise UsageError(f"{folder}: {what} stands there; choose another place with --to.")


def _policy_of(candidate: Candidate, store: LocalStore) -> OpenedPolicy:
    """The policy of the candidate: the one that an earlier promotion made, if it is intact, or a new one."""
    digest, taken = read_manifest(candidate.store, candidate.name)[1], set(store.names())
    run_id = read_manifest(candidate.store, candidate.name)[0].run_id
    base = candidate.name if run_id is None else f"{candidate.name}-{run_id[:8]}"
    for number in count(1):
        name = base if number == 1 else f"{base}.{number}"
        if name not in taken:
            to = store, name
            told = export_checkpoint(candidate.store, candidate.name, candidate.components, to, launch=candidate.launch)
            if told[1] is not None:
                _log.warning("%s: %s", name, told[1])
            return open_policy(store, name)
        try:
            opened = open_policy(store, name)
        except DamagedError:  # it stays for whoever wants to look; it is not taken again
            continue
        is_same = opened.manifest.checkpoint_digest == digest
        if is_same and opened.manifest.components.keys() - {NORMALISER} == set(candidate.components):
            return opened
    raise AssertionError("there is always a next number")


def _promotion(candidate: Candidate, policy: OpenedPolicy, note: str | None, history: Sequence[Promotion]) -> Promotion:
    manifest, digest = read_manifest(candidate.store, candidate.name)
    ranking = candidate.ranking
    score = ranking and {**vars(ranking), "value": manifest.scores[ranking.metric]}
    return Promotion(
        at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        policy=policy.name,
        digest=policy.digest,
        run=str(candidate.run.path) if candidate.run else None,
        run_id=manifest.run_id,
        checkpoint=candidate.name,
        checkpoint_digest=digest,
        env_steps=manifest.env_steps,
        contract=digest_of(canonical.encode(encode_contract(policy.manifest.contract))),
        score=score,
        note=note,
        supersedes=history[-1].policy if history else None,
    )


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One promotion at a time; the lock goes with the process that holds it."""
    descriptor = os.open(place / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    deadline = time.monotonic() + LONGEST_WAIT_S
    try:
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                waited = f"another promotion to this role has gone on for more than {LONGEST_WAIT_S:.0f} s"
                raise LockedError(f"{place}: {waited}. Wait for it, or stop it.")
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
