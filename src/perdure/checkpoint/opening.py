"""Open: a committed entry to a verified snapshot. Nothing is believed before its digest matched."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from perdure.errors import DamagedError, UsageError
from perdure.format.digests import Digest
from perdure.format.manifest import FILE_NAME, MAX_BYTES, FileEntry, Manifest, decode_manifest, manifest_digest
from perdure.format.nodes import Place, StoredArray, decode_made, decode_node
from perdure.format.row_nodes import StoredRows
from perdure.format.state_digest import component_digests, state_digest
from perdure.format.tensors import contiguous_bytes, empty_array
from perdure.store.store import Store
from perdure.tree.leaves import Alias, children, leaves
from perdure.tree.paths import Path, format_path
from perdure.tree.rows import Rows
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
    """Its state; each array has memory of its own, which belongs to nobody else."""

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the components that were read."""
        return {name: self.manifest.components[name].digest for name in self.snapshot.components}


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


def open_checkpoint(store: Store, name: str, *, only: Collection[str] | None = None) -> Opened:
    """Reads and verifies a checkpoint into private memory: each array into memory of its own.

    Args:
        store: where it stands.
        name: its name.
        only: components to read; None: all. The state digest is verified only if all are read.

    Raises:
        DamagedError: a file or a part of one is not what was written; the message names it.
        UsageError: `only` names no component, or a component that shares objects with one left out.
    """
    manifest, digest = read_manifest(store, name)
    return Opened(name, digest, manifest, read_snapshot(store, name, manifest, only))


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
    wanted = _wanted(name, manifest, only)
    buffers = _Buffers(_checked_files(store, name, manifest, wanted))
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
    return snapshot


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


_Tile = tuple[Place, Path, list[memoryview]]
"""A stretch of a file, what it is, and the memory that it goes to."""


def _row_buffers(rows: Rows, name: str, start: int, stop: int) -> list[memoryview]:
    return [contiguous_bytes(view) for view in rows.views(name, start, stop)]


class _Buffers:
    """Memory for every array, filled file by file and compared with the digests that were saved."""

    def __init__(self, files: Mapping[str, FileEntry]) -> None:
        self._files = files
        self._left = {file: entry.size for file, entry in files.items()}
        self._arrays: dict[str, list[_Tile]] = {}
        self.digests: dict[Path, str] = {}

    def allocate(self, path: Path, stored: StoredArray) -> np.ndarray:
        """Memory for one array; never more than the file holds."""
        self._take(stored.place, path)
        array = empty_array(stored.dtype, stored.shape, stored.axes)
        self._arrays.setdefault(stored.place.file, []).append((stored.place, path, [contiguous_bytes(array)]))
        self.digests[path] = stored.place.digest
        return array

    def allocate_rows(self, path: Path, stored: StoredRows) -> Rows:
        """Memory for a ring, and places in it for every block of its segments; rows that have left it go nowhere."""
        row_bytes = {name: prod(shape) * dtype.itemsize for name, (dtype, shape) in stored.columns.items()}
        held = sum(self._files[segment.file].size for segment in stored.segments if segment.file in self._files)
        if (stored.stop - stored.start) * sum(row_bytes.values()) > held:
            raise DamagedError(f"{format_path(path)}: more rows than its files can hold")
        columns = {name: np.zeros((stored.capacity, *shape), dtype) for name, (dtype, shape) in stored.columns.items()}
        rows = Rows(stored.start, stored.stop, columns)
        for segment in stored.segments:
            for name, column in segment.columns.items():
                offset = column.offset
                for (start, stop), digest in zip(segment.parts, column.digests, strict=True):
                    place = Place(segment.file, offset, (stop - start) * row_bytes[name], digest)
                    self._take(place, path)
                    buffers = _row_buffers(rows, name, start, stop) if start >= segment.used_from else []
                    tile = (place, path, buffers or [memoryview(bytearray(place.length))])
                    self._arrays.setdefault(place.file, []).append(tile)
                    offset += place.length
        return rows

    def _take(self, place: Place, path: Path) -> None:
        """Arrays do not overlap: together they take no more memory than the file has bytes."""
        file = self._files.get(place.file)
        if file is None or place.offset + place.length > file.size or place.length > self._left[place.file]:
            raise DamagedError(f"{format_path(path)}: lies outside of {place.file[:80]!r}")
        self._left[place.file] -= place.length

    def fill(self, store: Store, name: str) -> None:
        """Reads every file that holds an array and proves every byte of it."""
        for file, arrays in self._arrays.items():
            self._fill_file(store, name, file, sorted(arrays, key=lambda array: (array[0].offset, array[0].length)))

    def _fill_file(self, store: Store, name: str, file: str, arrays: list[_Tile]) -> None:
        header = memoryview(bytearray(arrays[0][0].offset))
        end = header.nbytes
        for place, path, _ in arrays:
            if place.offset != end:
                raise DamagedError(f"{name}/{file}: {format_path(path)} does not follow the array before it")
            end += place.length
        if end != self._files[file].size:
            raise DamagedError(f"{name}/{file}: bytes after the last array")
        try:
            store.read_into(name, file, [header, *(buffer for _, _, buffers in arrays for buffer in buffers)])
        except OSError as error:
            raise DamagedError(f"{name}/{file}: cannot be read ({error})") from error
        self._check_file(name, file, header, arrays)

    def _check_file(self, name: str, file: str, header: memoryview, arrays: list[_Tile]) -> None:
        whole = Digest()
        whole.update(header)
        for place, path, buffers in arrays:
            each = Digest()
            for buffer in buffers:
                whole.update(buffer)
                each.update(buffer)
            if each.text() != place.digest:
                where = f"bytes {place.offset} to {place.offset + place.length}"
                raise DamagedError(f"{name}/{file}: {format_path(path)}: {where} are not what was written")
        if whole.text() != self._files[file].digest:
            raise DamagedError(f"{name}/{file}: its header is not what was written")


def _check_digests(name: str, manifest: Manifest, snapshot: Snapshot, known: Mapping[Path, str]) -> None:
    digests = component_digests(snapshot, lambda path, _: known[path])
    for component, digest in digests.items():
        if digest != manifest.components[component].digest:
            raise DamagedError(f"{name}/{component}: its state does not have the digest that was saved")
    if digests.keys() != manifest.components.keys():
        return
    if state_digest(digests, manifest.env_steps, manifest.updates, manifest.boundary) != manifest.state_digest:
        raise DamagedError(f"{name}: the state does not have the digest that was saved")
