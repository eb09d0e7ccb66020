"""Open: a committed entry to a verified snapshot. Nothing is believed before its digest matched."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from perdure.checkpoint.filling import Buffers, Rings
from perdure.checkpoint.save import Saved
from perdure.checkpoint.segments import WrittenRows
from perdure.errors import DamagedError, UsageError
from perdure.format.known import Known
from perdure.format.manifest import FILE_NAME, MAX_BYTES, FileEntry, Manifest, decode_manifest, manifest_digest
from perdure.format.nodes import decode_made, decode_node
from perdure.format.state_digest import component_digests, state_digest
from perdure.store.store import Store
from perdure.tree.leaves import Alias, children, leaves
from perdure.tree.paths import Path, format_path
from perdure.tree.snapshot import Component, Snapshot


@dataclass(frozen=True)
class Opened:
    """A checkpoint that was read and verified, every byte of it."""

    name: str
    """Its name in the store."""
    digest: str
    """Digest of its manifest."""
    manifest: Manifest
    """What it says of itself."""
    snapshot: Snapshot
    """Its state; each array has memory of its own, which belongs to nobody else; but see `Rings`."""
    rows: Mapping[Path, WrittenRows] = field(default_factory=dict)
    """The segments that hold its append-only rows, by path, for the next checkpoint to share."""

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the components that were read."""
        return {name: self.manifest.components[name].digest for name in self.snapshot.components}

    def as_saved(self) -> Saved:
        """What the next checkpoint in the same store may share: segments, which may be gigabytes; no other file."""
        sizes = self.manifest.size_bytes, 0
        return Saved(self.name, self.digest, self.manifest.state_digest, *sizes, {}, self.rows, Known())


def read_manifest(store: Store, name: str) -> tuple[Manifest, str]:
    """The manifest alone, proven by its own digest, and that digest; tensor files are not looked at.

    Raises:
        DamagedError: missing, unreadable, or not what was written.
    """
    data = read_document(store, name, FILE_NAME)
    try:
        return decode_manifest(data), manifest_digest(data)
    except DamagedError as error:
        raise type(error)(f"{name}: {error}") from error


def read_document(store: Store, name: str, file: str) -> bytes:
    """The bytes of an entry's manifest, whatever it is called, if they are not too many.

    Raises:
        DamagedError: missing, unreadable or too large.
    """
    size = _files(store, name).get(file)
    if size is None:
        raise DamagedError(f"{name}: {file} is missing")
    if size > MAX_BYTES:
        raise DamagedError(f"{name}: {file} has {size} bytes, more than any that perdure writes")
    return _read(store, name, file).tobytes()


def open_checkpoint(
    store: Store, name: str, *, only: Collection[str] | None = None, rings: Rings | None = None
) -> Opened:
    """Reads and verifies a checkpoint into private memory: each array into memory of its own.

    Args:
        store: where it stands.
        name: its name.
        only: components to read; None: all. The state digest is verified only if all are read.
        rings: tells the empty rings whose memory takes the rows; asked only if there are rows.

    Raises:
        DamagedError: a file or a part of one is not what was written; the message names it.
        UsageError: `only` names no component, or a component that shares objects with one left out.
    """
    manifest, digest = read_manifest(store, name)
    return Opened(name, digest, manifest, *_read_snapshot(store, name, manifest, only, rings))


def _files(store: Store, name: str) -> dict[str, int]:
    try:
        return store.files(name)
    except OSError as error:
        raise DamagedError(f"{name}: cannot be listed ({error})") from error


def _read(store: Store, name: str, file: str) -> np.ndarray:
    try:
        return store.read(name, file)
    except OSError as error:
        raise DamagedError(f"{name}/{file}: cannot be read ({error})") from error


def read_snapshot(store: Store, name: str, manifest: Manifest, only: Collection[str] | None) -> Snapshot:
    """The state that a manifest describes, verified; as `open_checkpoint`."""
    return _read_snapshot(store, name, manifest, only, None)[0]


def _read_snapshot(
    store: Store, name: str, manifest: Manifest, only: Collection[str] | None, rings: Rings | None
) -> tuple[Snapshot, dict[Path, WrittenRows]]:
    wanted = _wanted(name, manifest, only)
    buffers = Buffers(_checked_files(store, name, manifest, wanted), rings)
    components = {}
    for component in wanted:
        entry = manifest.components[component]
        try:
            tree = decode_node(entry.tree, (component,), buffers.allocate, buffers.allocate_rows)
            made = decode_made(entry.made, (component,))
        except (DamagedError, RecursionError, MemoryError, ValueError) as error:
            raise DamagedError(f"{name}/{component}: {error or 'more memory than there is'}") from error
        components[component] = Component(entry.adapter, tree, entry.facts, entry.fidelity, entry.reason, made)
    buffers.fill(store, name)
    snapshot = Snapshot(components, manifest.env_steps, manifest.updates, manifest.boundary)
    try:
        _check_aliases(name, manifest, snapshot)
        _check_digests(name, manifest, snapshot, buffers.digests)
    except RecursionError as error:
        raise DamagedError(f"{name}: nested too deeply") from error
    return snapshot, buffers.rows


def _wanted(name: str, manifest: Manifest, only: Collection[str] | None) -> list[str]:
    unknown = sorted(set(only or ()) - manifest.components.keys())
    if unknown:
        raise UsageError(f"{name}: only={unknown} are no components; it has {sorted(manifest.components)}.")
    return sorted(manifest.components if only is None else only)


def _checked_files(store: Store, name: str, manifest: Manifest, wanted: list[str]) -> dict[str, FileEntry]:
    """The files of the wanted components, proven to have the sizes that were saved: nothing larger is allocated."""
    found = _files(store, name)
    files = {file: entry for file, entry in manifest.files.items() if file.partition(".")[0] in wanted}
    for file, entry in sorted(files.items()):
        if found.get(file) != entry.size:
            size = "missing" if file not in found else f"{found[file]} bytes"
            raise DamagedError(f"{name}/{file}: {entry.size} bytes were written, found {size}")
    return files


def _check_aliases(name: str, manifest: Manifest, snapshot: Snapshot) -> None:
    for component, part in snapshot.components.items():
        for path, leaf in leaves(part.tree, (component,)):
            if not isinstance(leaf, Alias):
                continue
            claim = f"{format_path(path)} is the same object as {format_path(leaf.path)}"
            if leaf.path[0] in manifest.components.keys() - snapshot.components.keys():
                raise UsageError(f"{claim}: read both components.")
            if not _is_original(snapshot, leaf.path):
                raise DamagedError(f"{name}: {claim}, where no object of its own stands")


def _is_original(snapshot: Snapshot, path: Path) -> bool:
    """Whether something stands at `path` that no alias leads to: what is shared is stored at its first place."""
    part = snapshot.components.get(str(path[0]))
    node = None if part is None or path[0] != str(path[0]) else part.tree
    for step in path[1:]:
        below = dict(children(node))
        if step not in below:
            return False
        node = below[step]
    return part is not None and not isinstance(node, Alias)


def _check_digests(name: str, manifest: Manifest, snapshot: Snapshot, known: Mapping[Path, str]) -> None:
    digests = component_digests(snapshot, lambda path, _: known[path])
    for component, digest in digests.items():
        if digest != manifest.components[component].digest:
            raise DamagedError(f"{name}/{component}: its state does not have the digest that was saved")
    if digests.keys() != manifest.components.keys():
        return
    if state_digest(digests, manifest.env_steps, manifest.updates, manifest.boundary) != manifest.state_digest:
        raise DamagedError(f"{name}: the state does not have the digest that was saved")
