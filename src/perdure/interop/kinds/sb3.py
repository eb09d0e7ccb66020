"""What Stable-Baselines3 saves: archives of `model.save` (JSON and tensors), and its pickles of buffers and statistics.

Nothing is unpickled: of the JSON part, `data`, entries that hold a pickle are named with their type and not read.
"""

import json
from pathlib import Path
from typing import Any

from perdure.errors import DamagedError
from perdure.interop.carried import Carried, Contents
from perdure.interop.kinds.torch import described_leaves
from perdure.interop.losses import Losses
from perdure.interop.pickled_values import Record
from perdure.interop.restricted_pickle import Dialect, read_next
from perdure.interop.torch_archives import TorchArchive, open_torch
from perdure.interop.torch_tensors import array_of
from perdure.interop.torch_trees import TorchTrees, with_tensors
from perdure.interop.windows import Window, loaded, mapped
from perdure.interop.zips import Zip, first_name
from perdure.tree.leaves import Tree

DATA = "data"
VERSION = "_stable_baselines3_version"
SYSTEM = "system_info.txt"
TENSORS = ".pth"
SERIALIZED = ":serialized:"
TYPE = ":type:"

PICKLES = ("VecNormalize", "ReplayBuffer", "RolloutBuffer")
"""In the names of the classes that it pickles."""

SB3 = Dialect("Stable-Baselines3", is_open=True)

_PACKAGE = b"stable_baselines3.common."
_LOOKED_AT = 4096
_PARTS = frozenset({"stable_baselines3.common.running_mean_std.RunningMeanStd"})


class Sb3File:
    """An archive of `model.save` of Stable-Baselines3, or a pickle of one of its buffers or of `VecNormalize`."""

    name = "sb3"
    title = "a file of Stable-Baselines3"

    def recognises(self, path: Path) -> bool:
        """A zip archive with the members that it writes, or a pickle that begins with one of its classes."""
        return path.is_file() and (_is_pickle(mapped(path)) or _is_archive(mapped(path)))

    def contents(self, path: Path) -> Contents:
        """The JSON part, and what the pickles of the tensors say; no storage is read."""
        losses = Losses()
        if _is_pickle(mapped(path)):
            tree = _pickled(path, losses)
            return Contents("a pickle of Stable-Baselines3", described_leaves(tree), {}, losses.lines())
        zipped = Zip(mapped(path), str(path))
        tree, metadata = _tree(zipped, path, losses, with_arrays=False), _metadata(zipped)
        kind = f"Stable-Baselines3 {metadata.get('stable_baselines3', 'of an unknown version')}"
        return Contents(kind, described_leaves(tree), metadata, losses.lines())

    def read(self, path: Path) -> Carried:
        """`data` (plain values of the JSON part), and each file of tensors under its name without `.pth`."""
        losses = Losses()
        if _is_pickle(mapped(path)):
            return Carried(_pickled(path, losses), {}, losses)
        zipped = Zip(loaded(path), str(path))
        tree = _tree(zipped, path, losses, with_arrays=True)
        return Carried(tree, _metadata(zipped), losses)


def _is_archive(data: memoryview) -> bool:
    if first_name(data) == DATA:  # even of an archive that is cut
        return True
    try:
        names = Zip(data, "").members.keys() if bytes(data[:2]) == b"PK" else ()
    except DamagedError:
        return False
    return VERSION in names or (DATA in names and any(name.endswith(TENSORS) for name in names))


def _is_pickle(data: memoryview) -> bool:
    start = bytes(data[:_LOOKED_AT])
    return start[:1] == b"\x80" and _PACKAGE in start[:64] and any(name.encode() in start for name in PICKLES)


def _tree(zipped: Zip, path: Path, losses: Losses, *, with_arrays: bool) -> dict[Any, Tree]:
    """Everything that is read: the JSON part and the files of tensors."""
    tree: dict[Any, Tree] = _data(zipped, path, losses)
    for name in zipped.members:
        key = name.removesuffix(TENSORS)
        if key in tree and key != name:
            raise DamagedError(f"{path}: {name}: {key} stands there twice. Take an undamaged copy of the file.")
        if key != name:
            archive = open_torch(zipped.read(name, checked=with_arrays), f"{path}: {name}")
            tree[key] = _of_archive(archive, key, losses, with_arrays=with_arrays)
        elif name not in (DATA, VERSION, SYSTEM):
            losses.add(name, "a member that Stable-Baselines3 does not write, not read.")
    return tree


def _of_archive(archive: TorchArchive, key: str, losses: Losses, *, with_arrays: bool) -> dict[Any, Tree]:
    tree = TorchTrees(archive, losses).tree((key,))
    return with_tensors(tree, lambda tensor: array_of(tensor, archive)) if with_arrays else tree


def _data(zipped: Zip, path: Path, losses: Losses) -> dict[Any, Tree]:
    """The JSON part without the entries that hold pickles."""
    if DATA not in zipped.members:
        return {}
    try:
        document = json.loads(bytes(zipped.read(DATA)))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: {DATA}: is not JSON: {error}. Take an undamaged copy of the file.") from error
    if not isinstance(document, dict):
        raise DamagedError(f"{path}: {DATA}: a {type(document).__name__}, not a mapping. Take an undamaged copy.")
    plain: dict[str, Tree] = {}
    for key, value in document.items():
        if isinstance(value, dict) and SERIALIZED in value:
            losses.add((DATA, key), f"a pickle of {_type_of(value)}, not read.")
        else:
            plain[key] = value
    return {DATA: plain}


def _type_of(entry: dict[str, Any]) -> str:
    text = entry.get(TYPE)
    return str(text).removeprefix("<class '").removesuffix("'>") if isinstance(text, str) else "an unknown type"


def _metadata(zipped: Zip) -> dict[str, Any]:
    """The version, and what it says of the machine: lines of `- KEY: VALUE`."""
    found: dict[str, Any] = {}
    if VERSION in zipped.members:
        found["stable_baselines3"] = _text(zipped, VERSION)
    if SYSTEM in zipped.members:
        lines = [line.removeprefix("- ").partition(": ") for line in _text(zipped, SYSTEM).splitlines()]
        found["system_info"] = {key: value for key, _, value in lines}
    return found


def _text(zipped: Zip, name: str) -> str:
    return bytes(zipped.read(name)).decode("utf-8", "replace").strip()


def _pickled(path: Path, losses: Losses) -> dict[Any, Tree]:
    """The fields of the object in a pickle, which is a file of torch without storages."""
    data = loaded(path)
    content = read_next(Window(data), str(path), SB3).value
    archive = TorchArchive(str(path), "pickle", content, {}, lambda _: data[:0], len(data))
    kinds = frozenset({str(content.made_by)}) if isinstance(content, Record) else frozenset()
    return TorchTrees(archive, losses, fields_of=kinds | _PARTS).tree()


KIND = Sb3File()
