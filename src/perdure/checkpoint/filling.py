"""Filling: memory for what a manifest describes, read file by file and compared with its digests."""

import logging
from collections.abc import Callable, Iterator, Mapping
from math import prod

import numpy as np

from perdure.checkpoint.segments import WrittenRows
from perdure.errors import DamagedError
from perdure.format.digests import Digest
from perdure.format.manifest import FileEntry
from perdure.format.nodes import Place, StoredArray
from perdure.format.row_nodes import StoredRows
from perdure.format.tensors import contiguous_bytes, empty_array
from perdure.store.store import Store
from perdure.tree.paths import Path, format_path
from perdure.tree.rows import Rows

_log = logging.getLogger("perdure")

Rings = Callable[[], Mapping[Path, Rows]]
"""The rings that a restore will fill and that hold no rows yet, by path. What stands in their memory is no state, so
rows are read into it at once, and what is restored needs no memory of its own. Should the checkpoint prove damaged, or
not fit, they are as empty as before."""

GROUP_BYTES = 64 << 20
"""Read at once, then compared with the digests. Rows that have left the ring take so much memory at most."""

TOLD_BYTES = 1 << 30
"""Progress is told of a checkpoint of more bytes, each time so many were read."""


_Tile = tuple[Place, Path, list[memoryview] | None]
"""A stretch of a file, what it is, and the memory that it goes to; None: it is read for its digest alone."""


def _row_buffers(rows: Rows, name: str, start: int, stop: int) -> list[memoryview]:
    return [contiguous_bytes(view) for view in rows.views(name, start, stop)]


class Buffers:
    """Memory for every array, filled file by file and compared with the digests that were saved."""

    def __init__(self, files: Mapping[str, FileEntry], rings: Rings | None) -> None:
        self._files = files
        self._rings = rings
        self._found_rings: Mapping[Path, Rows] | None = None
        self._left = {file: entry.size for file, entry in files.items()}
        self._arrays: dict[str, list[_Tile]] = {}
        self.digests: dict[Path, str] = {}
        self.rows: dict[Path, WrittenRows] = {}

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
        rows = Rows(stored.start, stored.stop, self._memory_for(path, stored))
        files = {segment.file: self._files[segment.file] for segment in stored.segments if segment.file in self._files}
        self.rows[path] = WrittenRows(stored.segments, files)
        for segment in stored.segments:
            for name, column in segment.columns.items():
                offset = column.offset
                for (start, stop), digest in zip(segment.parts, column.digests, strict=True):
                    place = Place(segment.file, offset, (stop - start) * row_bytes[name], digest)
                    self._take(place, path)
                    is_used = start >= segment.used_from
                    if is_used:
                        rows.digests[name, start, stop] = digest  # believed by nobody before `fill` has compared it
                    tile = (place, path, _row_buffers(rows, name, start, stop) if is_used else None)
                    self._arrays.setdefault(place.file, []).append(tile)
                    offset += place.length
        return rows

    def _memory_for(self, path: Path, stored: StoredRows) -> dict[str, np.ndarray]:
        """A ring's columns: those of the ring to be restored, where it is empty and fits, else new ones."""
        if self._rings is not None and self._found_rings is None:
            self._found_rings = self._rings()
        ring = (self._found_rings or {}).get(path)
        kinds = {name: (dtype, (stored.capacity, *shape)) for name, (dtype, shape) in stored.columns.items()}
        if ring is not None and {name: (c.dtype, c.shape) for name, c in ring.columns.items()} == kinds:
            return {name: ring.columns[name] for name in kinds}
        return {name: np.zeros(shape, dtype) for name, (dtype, shape) in kinds.items()}

    def _take(self, place: Place, path: Path) -> None:
        """Arrays do not overlap: together they take no more memory than the file has bytes."""
        file = self._files.get(place.file)
        if file is None or place.offset + place.length > file.size or place.length > self._left[place.file]:
            raise DamagedError(f"{format_path(path)}: lies outside of {place.file[:80]!r}")
        self._left[place.file] -= place.length

    def fill(self, store: Store, name: str) -> None:
        """Reads every file that holds an array and proves every byte of it."""
        done, total = 0, sum(self._files[file].size for file in self._arrays)
        for file, arrays in self._arrays.items():
            told = done // TOLD_BYTES
            self._fill_file(store, name, file, sorted(arrays, key=lambda array: (array[0].offset, array[0].length)))
            done += self._files[file].size
            if total > TOLD_BYTES and (done // TOLD_BYTES > told or done == total):
                _log.warning("%s: %.1f of %.1f GB read and verified", name, done / 1e9, total / 1e9)

    def _fill_file(self, store: Store, name: str, file: str, arrays: list[_Tile]) -> None:
        end = arrays[0][0].offset
        for place, path, _ in arrays:
            if place.offset != end:
                raise DamagedError(f"{name}/{file}: {format_path(path)} does not follow the array before it")
            end += place.length
        if end != self._files[file].size:
            raise DamagedError(f"{name}/{file}: bytes after the last array")
        whole, header, offset = Digest(), memoryview(bytearray(arrays[0][0].offset)), 0
        for group in _groups(arrays):
            tiles = [(place, path, _scratch(place) if memory is None else memory) for place, path, memory in group]
            buffers = [*([] if offset else [header]), *(buffer for _, _, memory in tiles for buffer in memory)]
            try:
                store.read_into(name, file, buffers, offset)
            except OSError as error:
                raise DamagedError(f"{name}/{file}: cannot be read ({error})") from error
            if not offset:
                whole.update(header)
            _check_tiles(f"{name}/{file}", whole, tiles)
            offset = tiles[-1][0].offset + tiles[-1][0].length
        if whole.text() != self._files[file].digest:
            raise DamagedError(f"{name}/{file}: its header is not what was written")


def _scratch(place: Place) -> list[memoryview]:
    return [memoryview(bytearray(place.length))]


def _groups(tiles: list[_Tile]) -> Iterator[list[_Tile]]:
    """The tiles of a file, so many at once that they exceed `GROUP_BYTES` by less than one."""
    group: list[_Tile] = []
    size = 0
    for tile in tiles:
        group.append(tile)
        size += tile[0].length
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _check_tiles(file: str, whole: Digest, tiles: list[tuple[Place, Path, list[memoryview]]]) -> None:
    for place, path, buffers in tiles:
        each = Digest()
        for buffer in buffers:
            whole.update(buffer)
            each.update(buffer)
        if each.text() != place.digest:
            where = f"bytes {place.offset} to {place.offset + place.length}"
            raise DamagedError(f"{file}: {format_path(path)}: {where} are not what was written")
