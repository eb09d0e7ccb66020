"""Open: a committed entry to a verified snapshot. Nothing is believed before its digest matched."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perdure.errors import DamagedError
from perdure.format.digests import digest_of
from perdure.format.manifest import FILE_NAME, MAX_BYTES, Manifest, decode_manifest, manifest_digest
from perdure.format.nodes import StoredArray, decode_node
from perdure.format.state_digest import component_digests, state_digest
from perdure.format.tensors import array_in
from perdure.store.store import Store
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
    """Its state; the arrays are views of memory that belongs to nobody else."""


def read_manifest(store: Store, name: str) -> tuple[Manifest, str]:
    """The manifest alone, proven by its own digest, and that digest; tensor files are not looked at.

    Raises:
        DamagedError: missing, unreadable, or not what was written.
    """
    size = _files(store, name).get(FILE_NAME)
    if size is None:
        raise DamagedError(f"{name}: {FILE_NAME} is missing")
    if size > MAX_BYTES:
        raise DamagedError(f"{name}: {FILE_NAME} has {size} bytes, more than any that perdure writes")
    data = _read(store, name, FILE_NAME).tobytes()
    try:
        return decode_manifest(data), manifest_digest(data)
    except DamagedError as error:
        raise type(error)(f"{name}: {error}") from error


def open_checkpoint(store: Store, name: str) -> Opened:
    """Reads and verifies a whole checkpoint into private memory.

    Raises:
        DamagedError: a file or a part of one is not what was written; the message names it.
    """
    manifest, digest = read_manifest(store, name)
    buffers = _read_files(store, name, manifest)
    return Opened(name, digest, manifest, _snapshot(name, manifest, buffers))


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


def _read_files(store: Store, name: str, manifest: Manifest) -> dict[str, np.ndarray]:
    sizes = _files(store, name)
    buffers = {}
    for file, entry in manifest.files.items():
        if sizes.get(file) != entry.size:
            found = "missing" if file not in sizes else f"{sizes[file]} bytes"
            raise DamagedError(f"{name}/{file}: {entry.size} bytes were written, found {found}")
        buffers[file] = _read(store, name, file)
    return buffers


def _snapshot(name: str, manifest: Manifest, buffers: Mapping[str, np.ndarray]) -> Snapshot:
    reader = _Reader(buffers)
    components = {}
    for component, entry in sorted(manifest.components.items()):
        try:
            tree = decode_node(entry.tree, (component,), reader.read)
        except (DamagedError, RecursionError) as error:
            raise DamagedError(f"{name}/{component}: {error}") from error
        components[component] = Component(entry.adapter, tree, entry.facts, entry.fidelity, entry.reason)
    for file, entry in manifest.files.items():
        if digest_of(buffers[file].data) != entry.digest:
            raise DamagedError(f"{name}/{file}: its header is not what was written")
    snapshot = Snapshot(components, manifest.env_steps, manifest.updates, manifest.boundary)
    _check_digests(name, manifest, snapshot, reader.digests)
    return snapshot


class _Reader:
    """Hands out arrays whose bytes have the digest that was saved, and remembers these digests."""

    def __init__(self, buffers: Mapping[str, np.ndarray]) -> None:
        self._buffers = buffers
        self.digests: dict[Path, str] = {}

    def read(self, path: Path, stored: StoredArray) -> np.ndarray:
        place = stored.place
        end = place.offset + place.length
        buffer = self._buffers.get(place.file)
        if buffer is None or end > buffer.size:
            raise DamagedError(f"{format_path(path)}: lies outside of {place.file[:80]!r}")
        data = buffer[place.offset : end]
        if digest_of(data.data) != place.digest:
            message = f"{format_path(path)}: bytes {place.offset} to {end} of {place.file} are not what was written"
            raise DamagedError(message)
        self.digests[path] = place.digest
        return array_in(data, stored.dtype, stored.shape, stored.axes)


def _check_digests(name: str, manifest: Manifest, snapshot: Snapshot, known: Mapping[Path, str]) -> None:
    digests = component_digests(snapshot, lambda path, _: known[path])
    for component, digest in digests.items():
        if digest != manifest.components[component].digest:
            raise DamagedError(f"{name}/{component}: its state does not have the digest that was saved")
    if state_digest(digests, manifest.env_steps, manifest.updates, manifest.boundary) != manifest.state_digest:
        raise DamagedError(f"{name}: the state does not have the digest that was saved")
