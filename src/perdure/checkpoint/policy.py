"""Policies on disk: written and read like checkpoints, byte for byte verified, and never taken for one."""

from dataclasses import dataclass
from pathlib import Path

from perdure.checkpoint.opening import read_document, read_snapshot
from perdure.checkpoint.save import component_entries, file_entries, now, write_components
from perdure.errors import CommitError, DamagedError, UsageError
from perdure.format.known import Known
from perdure.format.manifest import Manifest
from perdure.format.policy import FILE_NAME, PolicyManifest, decode_policy, encode_policy, policy_digest
from perdure.format.state_digest import state_digest
from perdure.store.local import LocalStore
from perdure.store.store import Store
from perdure.tree.snapshot import Snapshot


@dataclass(frozen=True)
class PolicyAbout:
    """What a policy's manifest says beside the state itself: fields of `PolicyManifest`."""

    run_id: str | None
    checkpoint: str | None
    checkpoint_digest: str | None
    environment: dict[str, str]
    wrappers: tuple[str, ...]
    contract: dict[str, dict[str, object]]
    left_out: dict[str, str]
    launch: dict[str, object] | None
    arithmetic: dict[str, str]
    amended: tuple[str, ...]


@dataclass(frozen=True)
class OpenedPolicy:
    """A policy that was read and verified, every byte of it."""

    name: str
    """Its name in the store."""
    digest: str
    """Digest of its manifest."""
    manifest: PolicyManifest
    """What it says of itself."""
    snapshot: Snapshot
    """Its components."""


def save_policy(store: Store, name: str, snapshot: Snapshot, about: PolicyAbout) -> str:
    """Commits a policy under `name`: durable and whole, or not there at all. Returns its digest.

    Raises:
        CaptureError: a leaf has no exact representation.
        CommitError: the name is taken, the disk is full, or the store failed.
    """
    try:
        with store.stage(name) as staging:
            written, rows, _ = write_components(store, staging, snapshot, None)
            components, digests = component_entries(snapshot, written, rows, Known())
            counters = snapshot.env_steps, snapshot.updates, snapshot.boundary
            digest, files = state_digest(digests, *counters), file_entries(written, rows)
            data = encode_policy(PolicyManifest(*counters, components, files, digest, now(), **vars(about)))
            staging.write(FILE_NAME, [data])
            staging.commit()
    except OSError as error:
        raise CommitError(f"policy {name} was not written: {error}. Nothing else was touched.") from error
    return policy_digest(data)


def read_policy_manifest(store: Store, name: str) -> tuple[PolicyManifest, str]:
    """The manifest alone, proven by its own digest, and that digest.

    Raises:
        DamagedError: missing, unreadable, or not what was written.
    """
    data = read_document(store, name, FILE_NAME)
    try:
        return decode_policy(data), policy_digest(data)
    except DamagedError as error:
        raise type(error)(f"{name}: {error}") from error


def open_policy(store: Store, name: str) -> OpenedPolicy:
    """Reads and verifies a policy into private memory.

    Raises:
        DamagedError: a file or a part of one is not what was written; the message names it.
    """
    manifest, digest = read_policy_manifest(store, name)
    counters = manifest.env_steps, manifest.updates, manifest.boundary
    state = Manifest(*counters, manifest.components, manifest.files, manifest.state_digest, manifest.created)
    return OpenedPolicy(name, digest, manifest, read_snapshot(store, name, state, None))


def is_policy(path: Path) -> bool:
    """Whether a policy stands at `path`, intact or not."""
    return (path / FILE_NAME).is_file()


def refuse_policy(path: Path, wanted: str) -> None:
    """Refuses a policy where something else is wanted, and says what a resume would miss.

    Args:
        path: where; may be anything.
        wanted: what must stand there (`a checkpoint`).

    Raises:
        UsageError: a policy stands there.
    """
    if not is_policy(path):
        return
    try:
        left_out = read_policy_manifest(LocalStore(path.parent, path.parent), path.name)[0].left_out
        missing = ", ".join(f"{name} ({adapter})" for name, adapter in sorted(left_out.items()))
        lacks = f" What a resume needs is missing in it: {missing}." if missing else ""
    except DamagedError as error:
        lacks = f" It is damaged, too: {error}."
    way_out = "Evaluate it with `perdure eval`, load it with perdure.load_policy, or resume the run that it comes from."
    raise UsageError(f"{path}: a policy (evaluation only), not {wanted}.{lacks} {way_out}")
