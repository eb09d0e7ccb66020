"""What to say of an object that no adapter knows."""

from types import MappingProxyType
from typing import Any

from perdure.tree.paths import Path, format_path

_IN_GENERAL = "Give its class state_dict() and load_state_dict(), or get_state() and set_state()"

_OTHERWISE = (
    "or hand an adapter for it to Run(adapters=[(Class, adapter)]); or leave the object out and rebuild it at start."
)

_LOADER = (
    "Hand in its generator (DataLoader(generator=…)) in its place, and let boundaries stand between its passes: an "
    "iterator cannot be put back in the middle of one"
)

_POSITION = "Keep what it goes through, and the position as a number"

_FILE = "Keep its path as a text and open it where it is used"

_IN_PARTICULAR = MappingProxyType(
    {
        "_io.BufferedReader": _FILE,
        "_io.BufferedWriter": _FILE,
        "_io.TextIOWrapper": _FILE,
        "builtins.function": "What a function binds or counts cannot be put back. Hand in the numbers that it depends "
        "on, or have an object with state_dict() and load_state_dict() in its place; leave it out if there are none",
        "builtins.generator": _POSITION,
        "builtins.memoryview": "Keep the bytes or the array that it looks into",
        "builtins.range": "Keep its start, stop and step as numbers, or a list",
        "collections.ChainMap": "Keep its dicts as attributes of their own",
        "numpy.ma.MaskedArray": "Keep its data and its mask as two arrays",
        "pathlib.PosixPath": "Keep it as a text: str(path)",
        "torch.utils.data.dataloader.DataLoader": _LOADER,
        "torch.utils.data.dataloader._SingleProcessDataLoaderIter": _LOADER,
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter": _LOADER,
        "weakref.ReferenceType": "Keep the object itself, or find it when it is used",
    }
)
"""Ways out for classes that nobody can give methods to, by their names; other iterators are known by their method."""


def problem_of(obj: Any, name: str, path: Path) -> str:
    """The message for an object of the class `name` at `path`."""
    name = name.removeprefix("None.").replace("numpy.ma.core.", "numpy.ma.")  # some of SWIG's have no module
    way_out = _IN_PARTICULAR.get(name) or (_POSITION if hasattr(type(obj), "__next__") else _IN_GENERAL)
    return f"{format_path(path)}: no adapter knows a {name}, and perdure never pickles. {way_out}; {_OTHERWISE}"
