"""The few calls of wandb that the sink makes, and how far a run there has come."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

_HEADER = b":W&B"
_HEADER_BYTES = 7
_BLOCK_BYTES = 32_768
_CHUNK_HEAD_BYTES = 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def open_run(run_id: str, directory: Path, options: Mapping[str, Any]) -> Any:
    """Begins the run at W&B or goes on with it."""
    wandb = import_module("wandb")
    return wandb.init(**{"dir": str(directory), **options, "id": run_id, "resume": "allow"})


def last_step(run: Any, cursor: int) -> int:
    """The last step that W&B holds of a run; -1: none.

    Online the server says so. Offline the files of all attempts are read; those that were synced and removed have left
    the cursor.

    Args:
        run: wandb's run, just opened.
        cursor: the step that it surely holds.
    """
    if not getattr(run, "offline", False):
        return int(run.starting_step) - 1 if run.resumed else -1
    folder = Path(run.settings.sync_dir).parent
    files = folder.glob(f"offline-run-*-{run.id}/run-{run.id}.wandb")
    return max([cursor, *(step for file in files for step in steps_in(file))])


def steps_in(file: Path) -> Iterator[int]:
    """The step of every row in an offline file, as far as the file is whole."""
    record_type = import_module("wandb.proto.wandb_internal_pb2").Record
    for data in records_in(file.read_bytes()):
        record = record_type.FromString(data)
        if record.HasField("history"):
            yield record.history.step.num


def records_in(data: bytes) -> Iterator[bytes]:
    """The records of W&B's transaction log: LevelDB's log format behind a header of seven bytes.

    Source: https://github.com/google/leveldb/blob/main/doc/log_format.md. A record that was cut off ends the log;
    checksums are not looked at: the file is on a local disk, and a step too few is handed in again.
    """
    if data[: len(_HEADER)] != _HEADER:
        return
    at, parts = _HEADER_BYTES, []
    while at + _CHUNK_HEAD_BYTES <= len(data):
        left = _BLOCK_BYTES - at % _BLOCK_BYTES
        if left < _CHUNK_HEAD_BYTES:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        chunk = data[at + _CHUNK_HEAD_BYTES : at + _CHUNK_HEAD_BYTES + length]
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or len(chunk) < length:
            return
        at += _CHUNK_HEAD_BYTES + length
        parts = [chunk] if kind in (_WHOLE, _FIRST) else [*parts, chunk]
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts)
