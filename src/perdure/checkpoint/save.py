"""Save: a snapshot to a committed entry of a store."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from perdure.checkpoint.segments import WrittenRows, plan_segments, share, write_rows
from perdure.errors import CommitError, UnsupportedLeafError
from perdure.format.canonical import Json
from perdure.format.digests import Digest
from perdure.format.dtypes import name_of
from perdure.format.known import Known
from perdure.format.manifest import FILE_NAME, ComponentEntry, FileEntry, Manifest, encode_manifest, manifest_digest
from perdure.format.nodes import Place, arrays_among, encode_made, encode_node, large_leaves, tensor_name
from perdure.format.state_digest import component_digests, state_digest
from perdure.format.tensors import Layout, lay_out, pieces
from perdure.store.store import Staging, Store
from perdure.tree.leaves import Array
from perdure.tree.paths import Path, format_path
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Snapshot

PIECE_BYTES = 1 << 20
"""Arrays are hashed and written in pieces of this size, so that each is still in the cache for the second."""

SPARE_BYTES = 16 << 20
"""What must stay free beside a checkpoint, for its manifest and the disk's own bookkeeping."""


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
    scores: Mapping[str, float] = field(default_factory=dict)
    """The numbers among the boundary's metrics, by which retention may judge."""
    amended: Sequence[str] = ()
    """Differences that were accepted, in order."""
    trained_s: float = 0.0
    """Seconds of training so far, over all resumes."""
    created: str | None = None
    """Wall-clock time, ISO 8601 in UTC; None: now."""


@dataclass(frozen=True)
class Written:
    """One component's tensor file: what it holds and where, so that the next save can tell whether it changed."""

    file: str
    """Its name."""
    entry: FileEntry
    """Its size and digest."""
    places: Mapping[Path, Place]
    """Where each array stands."""


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
    written_bytes: int
    """Bytes that were written; the rest is shared with the checkpoint before."""
    components: Mapping[str, Written]
    """By component: the files that hold arrays."""
    rows: Mapping[Path, WrittenRows]
    """By path: the segments that hold append-only rows."""
    known: Known
    """What its plain subtrees came to."""


def save(store: Store, name: str, snapshot: Snapshot, about: About, previous: Saved | None = None) -> Saved:
    """Commits `snapshot` under `name`: durable and whole, or not there at all.

    Arrays are read while this runs and not kept.

    Args:
        store: where to.
        name: the entry's name.
        snapshot: the state.
        about: what else the manifest says.
        previous: a checkpoint in the same store whose files are shared where they would be the same.

    Raises:
        CaptureError: a leaf has no exact representation.
        CommitError: the name is taken, the disk is full, or the store failed. Earlier checkpoints are untouched.
    """
    try:
        with store.stage(name) as staging:
            components, rows, written_bytes = write_components(store, staging, snapshot, previous)
            known = Known(previous.known if previous else None)
            manifest = _manifest(snapshot, about, components, rows, known)
            data = encode_manifest(manifest)
            staging.write(FILE_NAME, [data])
            staging.commit()
    except OSError as error:
        message = f"checkpoint {name} was not committed: {error}. Earlier checkpoints are untouched."
        raise CommitError(message) from error
    size, digest = len(data), manifest_digest(data)
    sizes = manifest.size_bytes + size, written_bytes + size
    return Saved(name, digest, manifest.state_digest, *sizes, components, rows, known)


def write_components(
    store: Store, staging: Staging, snapshot: Snapshot, previous: Saved | None
) -> tuple[dict[str, Written], dict[Path, WrittenRows], int]:
    """Writes or shares every component's files; returns them and the bytes that were written.

    Raises:
        UnsupportedLeafError: a leaf has no exact representation.
        OSError: the store failed, or the disk would be full.
    """
    large = {name: large_leaves(part.tree, (name,)) for name, part in snapshot.components.items()}
    arrays = {name: arrays_among(leaves) for name, leaves in large.items()}
    layouts = {name: _lay_out(held) for name, held in arrays.items() if held}
    old = previous.components if previous else {}
    shared = {name for name, layout in layouts.items() if name in old and _is_same(layout, arrays[name], old[name])}
    rings = {path: leaf for leaves in large.values() for path, leaf in leaves if isinstance(leaf, Rows)}
    old_rows = previous.rows if previous else {}
    plans = {path: plan_segments(rows, old_rows.get(path)) for path, rows in rings.items()}
    new_bytes = sum(layout.size for name, layout in layouts.items() if name not in shared)
    new_bytes += sum(plan.fresh_bytes(rings[path]) for path, plan in plans.items())
    _check_space(store, new_bytes)
    entry = previous.name if previous else None
    components = {}
    for name, layout in layouts.items():
        if entry and name in shared and share(staging, old[name].file, entry):
            components[name] = old[name]
        else:
            components[name] = _write(staging, name, layout, arrays[name])
    written_rows = {
        path: write_rows(staging, _prefix(path, rings), rows, plans[path], old_rows.get(path), entry)
        for path, rows in rings.items()
    }
    return components, written_rows, new_bytes


def _prefix(path: Path, rings: Mapping[Path, Rows]) -> str:
    """What the names of the segment files begin with: the component, and a number from its second rows on."""
    same_component = [other for other in rings if other[0] == path[0]]
    number = same_component.index(path)
    return f"{path[0]}.{number}" if number else str(path[0])


def _lay_out(arrays: Mapping[Path, Array]) -> Layout:
    for path, array in arrays.items():
        try:
            name_of(array.value.dtype)
        except UnsupportedLeafError as error:
            raise UnsupportedLeafError(f"{format_path(path)}: {error}") from error
    return lay_out({tensor_name(path): array for path, array in arrays.items()})


def _is_same(layout: Layout, arrays: Mapping[Path, Array], old: Written) -> bool:
    """Whether the file would come out the same; the first array that changed ends the search."""
    if layout.size != old.entry.size or arrays.keys() != old.places.keys():
        return False
    whole = Digest()
    whole.update(layout.header)
    paths = {tensor_name(path): path for path in arrays}
    for tensor, array in layout.arrays.items():
        each = Digest()
        for piece in pieces(array.value, PIECE_BYTES):
            each.update(piece)
            whole.update(piece)
        if each.text() != old.places[paths[tensor]].digest:
            return False
    return whole.text() == old.entry.digest


def _check_space(store: Store, new_bytes: int) -> None:
    free = store.free_bytes()
    if free is not None and new_bytes + SPARE_BYTES > free:
        raise OSError(f"it needs {new_bytes:,} bytes and {SPARE_BYTES:,} to spare, the disk has {free:,} left")


def _write(staging: Staging, name: str, layout: Layout, arrays: Mapping[Path, Array]) -> Written:
    file = f"{name}.safetensors"
    whole, each = Digest(), {tensor: Digest() for tensor in layout.arrays}
    staging.write(file, _hashed(layout, whole, each))
    places = {}
    for path in arrays:
        tensor = tensor_name(path)
        places[path] = Place(file, layout.offsets[tensor], each[tensor].length, each[tensor].text())
    return Written(file, FileEntry(whole.length, whole.text()), places)


def _hashed(layout: Layout, whole: Digest, each: Mapping[str, Digest]) -> Iterator[bytes | memoryview]:
    whole.update(layout.header)
    yield layout.header
    for tensor, array in layout.arrays.items():
        for piece in pieces(array.value, PIECE_BYTES):
            whole.update(piece)
            each[tensor].update(piece)
            yield piece


def _manifest(
    snapshot: Snapshot, about: About, written: Mapping[str, Written], rows: Mapping[Path, WrittenRows], known: Known
) -> Manifest:
    components, digests = component_entries(snapshot, written, rows, known)
    return Manifest(
        env_steps=snapshot.env_steps,
        updates=snapshot.updates,
        boundary=snapshot.boundary,
        components=components,
        files=file_entries(written, rows),
        state_digest=state_digest(digests, snapshot.env_steps, snapshot.updates, snapshot.boundary),
        created=about.created or now(),
        run_id=about.run_id,
        parent=about.parent,
        contract=about.contract,
        arithmetic=about.arithmetic,
        amended=about.amended,
        trained_s=about.trained_s,
        metrics=about.metrics,
        scores=about.scores,
    )


def now() -> str:
    """Wall-clock time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def file_entries(written: Mapping[str, Written], rows: Mapping[Path, WrittenRows]) -> dict[str, FileEntry]:
    """Every file that was written or shared, by name."""
    files = {entry.file: entry.entry for entry in written.values()}
    for ring in rows.values():
        files |= ring.files
    return files


def component_entries(
    snapshot: Snapshot, written: Mapping[str, Written], rows: Mapping[Path, WrittenRows], known: Known
) -> tuple[dict[str, ComponentEntry], dict[str, str]]:
    """What a manifest says of each component, and the components' digests."""
    segments = {path: ring.segments for path, ring in rows.items()}
    places = {path: place for entry in written.values() for path, place in entry.places.items()}
    digests = component_digests(snapshot, lambda path, _array: places[path].digest, known.forms)
    components = {
        name: ComponentEntry(
            component.adapter,
            component.fidelity,
            component.reason,
            dict(component.facts),
            encode_node(component.tree, (name,), places, segments, known.nodes),
            digests[name],
            known.nodes.of(component.made, 0, lambda made=component.made: encode_made(made)),
        )
        for name, component in snapshot.components.items()
    }
    return components, digests
