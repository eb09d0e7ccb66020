"""The metric stream: deterministic values only, exactly one row a boundary whatever happened in between."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perdure.checkpoint.capture import Counters
from perdure.errors import UsageError
from perdure.format import canonical, numbers
from perdure.format.digests import Digest
from perdure.runs.directory import append_whole

RESERVED = frozenset({"boundary", "env_steps", "updates"})
_PIECE_BYTES = 1 << 20


class MetricStream:
    """Appends rows to `metrics.jsonl` and knows the digest of all of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = Digest()
        self._file = path.open("ab", buffering=0)

    @property
    def length(self) -> int:
        """Bytes so far."""
        return self._digest.length

    def append(self, counters: Counters, metrics: Mapping[str, Any]) -> bytes:
        """Writes one row and returns its line.

        Raises:
            UsageError: a name is reserved, or a value is no number, text, boolean, None, or list of them.
        """
        row = encode_row(counters, metrics)
        append_whole(self._file, row)
        self._digest.update(row)
        return row

    def mark(self) -> dict[str, Any]:
        """How far the stream has come, for the manifest."""
        return {"offset": self._digest.length, "digest": self._digest.text()}

    def sync(self) -> None:
        """Makes all rows so far durable; must come before the commit that counts them."""
        os.fsync(self._file.fileno())

    def cut_back(self, mark: Mapping[str, Any] | None) -> str | None:
        """Drops the rows after `mark`, which is what a resume goes back to.

        A file that does not begin with the marked rows is set aside, never overwritten.

        Returns:
            What had to be done, for the user; None if the stream was as the checkpoint left it.
        """
        offset, digest = (int(mark["offset"]), mark["digest"]) if mark else (0, Digest().text())
        size = self._path.stat().st_size
        if size < offset or self._take_prefix(offset) != digest:
            return self._set_aside(size, offset)
        if size == offset:
            return None
        os.truncate(self._path, offset)
        os.fsync(self._file.fileno())
        return f"{self._path.name}: {size - offset} bytes of rows after the checkpoint were cut off."

    def _take_prefix(self, offset: int) -> str:
        self._digest = Digest()
        with self._path.open("rb") as file:
            while self._digest.length < offset:
                self._digest.update(file.read(min(_PIECE_BYTES, offset - self._digest.length)))
        return self._digest.text()

    def _set_aside(self, size: int, offset: int) -> str:
        number = 1
        while (aside := self._path.with_name(f"{self._path.name}.altered.{number}")).exists():
            number += 1
        self._file.close()
        self._path.rename(aside)
        self._file = self._path.open("ab", buffering=0)
        self._digest = Digest()
        return (
            f"{self._path.name}: has {size} bytes that are not the {offset} which the checkpoint counted; set aside "
            f"as {aside.name}, a new stream begins."
        )

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def encode_row(counters: Counters, metrics: Mapping[str, Any]) -> bytes:
    """One row in canonical JSON: the counters and the metrics."""
    row: dict[str, Any] = dict(vars(counters))
    for name, value in metrics.items():
        if not isinstance(name, str) or name in RESERVED:
            raise UsageError(f"metric {name!r}: a metric's name is text, and none of {sorted(RESERVED)}.")
        row[name] = _plain(name, value)
    return canonical.encode(row)


def _plain(name: str, value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return numbers.encode_plain(value)
    if isinstance(value, list | tuple):
        return [_plain(name, part) for part in value]
    if getattr(value, "shape", None) == () and hasattr(value, "item") and type(value.item()) is not type(value):
        return _plain(name, value.item())
    if getattr(value, "shape", ()) != () and hasattr(value, "tolist"):
        return _plain(name, value.tolist())
    raise UsageError(f"metric {name!r}: a {type(value).__name__} is no number, text, boolean, None or list of them.")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole rows; non-finite numbers are floats again."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return [_decoded(json.loads(line)) for line in lines if line.endswith(b"\n")]


def rows_until(path: Path, end: int) -> Iterator[tuple[Counters, dict[str, Any]]]:
    """The rows in the first `end` bytes, one at a time, as `decode_row` gives them."""
    with path.open("rb") as file:
        while file.tell() < end:
            yield decode_row(file.readline())


def decode_row(line: bytes) -> tuple[Counters, dict[str, Any]]:
    """One row as every reader of the stream sees it: its counters, and its metrics in the order of their names."""
    row = _decoded(json.loads(line))
    return Counters(**{name: row.pop(name) for name in RESERVED}), row


def _decoded(node: Any) -> Any:
    if isinstance(node, list):
        return [_decoded(part) for part in node]
    if isinstance(node, dict) and node.keys() <= numbers.PLAIN_TAGS and len(node) == 1:
        return numbers.decode_plain(node)
    if isinstance(node, dict):
        return {key: _decoded(value) for key, value in node.items()}
    return node
