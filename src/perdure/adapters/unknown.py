"""What to say of an object that no adapter knows."""

from types import MappingProxyType

from perdure.tree.paths import Path, format_path

_IN_GENERAL = (
    "Give its class state_dict() and load_state_dict(), or get_state() and set_state(); or hand an adapter for it to "
    "Run(adapters=[(Class, adapter)]); or leave the object out and rebuild it at start."
)

_LOADER = (
    "Hand in its generator (DataLoader(generator=…)) in its place, and let boundaries stand between its passes: an "
    "iterator cannot be put back in the middle of one."
)

_IN_PARTICULAR = MappingProxyType(
    {
        "builtins.function": "What a function binds or counts cannot be put back. Hand in the numbers that it depends "
        "on, or have an object with state_dict() and load_state_dict() in its place; leave it out if there are none.",
        "builtins.generator": "Where it stands cannot be read. Keep the position as a number.",
        "numpy.memmap": "Its file goes on changing while it is saved. Hand in a copy in memory, numpy.array(it), and "
        "let load_state_dict write the numbers into the file.",
        "torch.utils.data.dataloader.DataLoader": _LOADER,
        "torch.utils.data.dataloader._SingleProcessDataLoaderIter": _LOADER,
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter": _LOADER,
    }
)
"""Ways out for classes that nobody can give methods to, by their names."""


def problem_of(name: str, path: Path) -> str:
    """The message for an object of the class `name` at `path`."""
    way_out = _IN_PARTICULAR.get(name, _IN_GENERAL)
    return f"{format_path(path)}: no adapter knows a {name}, and perdure never pickles. {way_out}"
