"""Which kind of file something is: told by its content, never by its name."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from perdure.errors import NoCheckpointError, UsageError
from perdure.interop.carried import Kind, WritableKind

_NAMES = ("perdure", "nnx-ppo", "orbax", "torch-distributed", "storage-ckpt", "sb3", "torch", "safetensors")
"""Of all kinds, in the order in which content is looked at; each has its file in `interop/kinds/`."""

SUFFIXES = {".ckpt": "storage-ckpt", ".pt": "torch", ".pth": "torch", ".safetensors": "safetensors"}
"""What `--to` means if it is not said, by the end of the target's name; most others are a checkpoint of perdure."""

_NOT_WRITTEN = frozenset(
    {
        *(".bin", ".cleanrl_model", ".h5", ".hdf5", ".joblib", ".json", ".msgpack", ".npy", ".npz", ".onnx"),
        *(".orbax", ".pickle", ".pkl", ".tar", ".zip"),
    }
)
"""Ends of names that stand for files of others, so that nobody who writes one expects a directory of perdure's."""


def kinds() -> Iterator[Kind]:
    """All of them. None imports its framework before it is used."""
    yield from map(_kind, _NAMES)


def known_kind(path: Path) -> Kind | None:
    """The kind of what stands at a path; None if nothing stands there, or nothing that is known."""
    if not path.exists():
        return None
    return next((kind for kind in kinds() if kind.recognises(path)), None)


def kind_of(path: Path) -> Kind:
    """The kind of what stands at a path.

    Raises:
        NoCheckpointError: nothing stands there, or nothing that is known.
    """
    if not path.exists():
        raise NoCheckpointError(f"{path}: there is nothing. Check the spelling.")
    found = known_kind(path)
    if found is not None:
        return found
    known = ", ".join(kind.title for kind in kinds())
    raise NoCheckpointError(f"{path}: of no kind that is known here: {known}.")


def target_kind(name: str | None, target: Path) -> WritableKind:
    """The kind that is written.

    Args:
        name: what `--to` says; None: the end of the target's name decides.
        target: where it will stand.

    Raises:
        UsageError: there is no such kind, it is only read, or the target's name promises another.
    """
    writable = {kind.name: kind for kind in kinds() if isinstance(kind, WritableKind)}
    if name is None and target.suffix in _NOT_WRITTEN:
        raise UsageError(
            f"{target}: {target.suffix} is no kind that is written. Say which is meant with --to: "
            f"{', '.join(writable)}."
        )
    name = name or SUFFIXES.get(target.suffix, "perdure")
    if name not in writable:
        why = "is read, but not written" if name in _NAMES else "is no kind"
        raise UsageError(f"--to {name}: {why}; choose from {', '.join(writable)}.")
    return writable[name]


def _kind(name: str) -> Kind:
    return import_module(f"perdure.interop.kinds.{name.replace('-', '_')}").KIND
