"""Calls that stand for plain values in pickles of PyTorch: sizes, devices, sets, bytes, counters."""

from collections.abc import Callable
from typing import Any

from perdure.interop.pickled_arrays import bytes_in
from perdure.interop.pickled_values import Record


def set_items(record: Record) -> list[Any]:
    """What is in a set; protocols before 4 make it by a call on a list."""
    match record.arguments:
        case ([*items],):
            return items
        case _:
            return record.items


def _only_argument(record: Record) -> Any:
    return record.arguments[0] if len(record.arguments) == 1 else None


def _size(record: Record) -> tuple[str, Any] | None:
    value = _only_argument(record)
    return ("a torch.Size became a tuple.", value) if isinstance(value, tuple) else None


def _device(record: Record) -> tuple[str, Any] | None:
    parts = record.arguments
    return ("a torch.device became its name.", ":".join(map(str, parts))) if _are_words(parts) else None


def _are_words(parts: tuple[Any, ...]) -> bool:
    return bool(parts) and all(isinstance(part, str | int) for part in parts)


def _complex(record: Record) -> tuple[str, Any] | None:
    are_floats = [type(part) for part in record.arguments] == [float, float]
    return ("", complex(*record.arguments)) if are_floats else None


def _bytes(record: Record) -> tuple[str, Any] | None:
    value = bytes_in(record)
    return ("", value) if isinstance(value, bytes) else None


def _bytearray(record: Record) -> tuple[str, Any] | None:
    value = bytes_in(_only_argument(record)) if record.arguments else b""
    return ("a bytearray became bytes.", value) if isinstance(value, bytes) else None


def _no_bytes(record: Record) -> tuple[str, Any] | None:
    return None if record.arguments else ("", b"")


def _counter(record: Record) -> tuple[str, Any] | None:
    value = _only_argument(record)
    return ("a Counter became a dict.", value) if isinstance(value, dict) else None


def _set(record: Record) -> tuple[str, Any]:
    return "a set became a list.", list(set_items(record))


def _deque(record: Record) -> tuple[str, Any]:
    return "a deque became a list.", record.items


READERS: dict[str, Callable[[Record], tuple[str, Any] | None]] = {
    "torch.Size": _size,
    "torch.device": _device,
    "builtins.complex": _complex,
    "builtins.set": _set,
    "builtins.frozenset": _set,
    "builtins.bytes": _no_bytes,
    "builtins.bytearray": _bytearray,
    "_codecs.encode": _bytes,
    "collections.Counter": _counter,
    "collections.deque": _deque,
}
"""What a call stands for: a loss, or none, and a node; None if it is not as Python writes it."""
