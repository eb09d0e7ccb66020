"""Save: a snapshot to a committed entry of a store."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from perdure.errors import CommitError
from perdure.format.canonical import Json
from perdure.format.digests import Digest
from perdure.format.manifest import (
    FILE_NAME,
    ComponentEntry,
    FileEntry,
    Manifest,
    encode_manifest,
    manifest_digest,
)
from perdure.format.nodes import Place, arrays_of, encode_node, tensor_name
from perdure.format.state_digest import component_digests, state_digest
from perdure.format.tensors import Layout, lay_out, pieces
from perdure.store.store import Staging, Store
from perdure.tree.leaves import Array
from perdure.tree.paths import Path
from perdure.tree.snapshot import Snapshot

PIECE_BYTES = 4 << 20
"""Arrays are hashed and written in pieces of this size, so that each is still in the cache for the second."""


@dataclass(frozen=True)
class About:
    """What a manifest says beside the state itself."""

    run_id: str | None = None
    """The run that saves."""
    parent: str | None = None
    """Digest of its checkpoint before this one."""
    contract: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What must be the same for a resume."""
    arithmetic: Mapping[str, str] = field(default_factory=dict)
    """What the numbers' last bits depend on."""
    metrics: Mapping[str, Json] | None = None
    """How far `metrics.jsonl` had come."""


@dataclass(frozen=True)
class Saved:
    """A committed checkpoint."""

    name: str
    """Its name in the store."""
    digest: str
    """Digest of its manifest, which names the whole checkpoint."""
    state_digest: str
    """Digest of the state in it."""
    size_bytes: int
    """Bytes of all files."""


def save(store: Store, name: str, snapshot: Snapshot, about: About) -> Saved:
    """Commits `snapshot` under `name`: durable and whole, or not there at all.

    Arrays are read while this runs and not kept.

    Raises:
        CaptureError: a leaf has no exact representation.
        CommitError: the name is taken, or the store failed. Earlier checkpoints are untouched.
    """
    try:
        with store.stage(name) as staging:
            files, places = _write_components(staging, snapshot)
            manifest = _manifest(snapshot, about, files, places)
            data = encode_manifest(manifest)
            staging.write(FILE_NAME, [data])
            staging.commit()
    except OSError as error:
        message = f"checkpoint {name} was not committed: {error}. Earlier checkpoints are untouched."
        raise CommitError(message) from error
    return Saved(name, manifest_digest(data), manifest.state_digest, manifest.size_bytes + len(data))


def _write_components(staging: Staging, snapshot: Snapshot) -> tuple[dict[str, FileEntry], dict[Path, Place]]:
    files: dict[str, FileEntry] = {}
    places: dict[Path, Place] = {}
    for name, component in snapshot.components.items():
        arrays = dict(arrays_of(component.tree, (name,)))
        if not arrays:
            continue
        file = f"{name}.safetensors"
        layout = lay_out({tensor_name(path): array for path, array in arrays.items()})
        whole, each = Digest(), {tensor: Digest() for tensor in layout.arrays}
        staging.write(file, _hashed(layout, whole, each))
        files[file] = FileEntry(whole.length, whole.text())
        for path in arrays:
            tensor = tensor_name(path)
            digest = each[tensor]
            places[path] = Place(file, layout.offsets[tensor], digest.length, digest.text())
    return files, places


def _hashed(layout: Layout, whole: Digest, each: Mapping[str, Digest]) -> Iterator[bytes | memoryview]:
    whole.update(layout.header)
    yield layout.header
    for tensor, array in layout.arrays.items():
        for piece in pieces(array.value, PIECE_BYTES):
            whole.update(piece)
            each[tensor].update(piece)
            yield piece


def _manifest(
    snapshot: Snapshot, about: About, files: Mapping[str, FileEntry], places: Mapping[Path, Place]
) -> Manifest:
    def array_digest(path: Path, _array: Array) -> str:
        return places[path].digest

    digests = component_digests(snapshot, array_digest)
    components = {
        name: ComponentEntry(
            component.adapter,
            component.fidelity,
            component.reason,
            dict(component.facts),
            encode_node(component.tree, (name,), places),
            digests[name],
        )
        for name, component in snapshot.components.items()
    }
    return Manifest(
        env_steps=snapshot.env_steps,
        updates=snapshot.updates,
        boundary=snapshot.boundary,
        components=components,
        files=dict(files),
        state_digest=state_digest(digests, snapshot.env_steps, snapshot.updates, snapshot.boundary),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        run_id=about.run_id,
        parent=about.parent,
        contract=about.contract,
        arithmetic=about.arithmetic,
        metrics=about.metrics,
    )
