"""Import of nnx-ppo's checkpoints: `step_NNNNNNNNNN/` with `networks/`, `optimizer/` and `metadata.pkl`.

nnx-ppo 0.2.1 saves arrays of networks and optimizer through Orbax and everything else as a pickle. The pickle is read
without being run, and a policy comes over without the environment's package and under any version of JAX.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perdure.checkpoint.oneshot import save
from perdure.errors import DamagedError, NoCheckpointError, UsageError
from perdure.interop.orbax_arrays import read_orbax
from perdure.interop.plain_trees import Losses, PlainTrees
from perdure.interop.restricted_pickle import read_pickle
from perdure.tree.leaves import leaves
from perdure.tree.paths import Path as TreePath
from perdure.tree.paths import format_path

METADATA = "metadata.pkl"
KEYS = "networks_rng_key_state"
ENTRIES = (KEYS, "network_states", "env_states", "rng_key", "steps_taken", "step", "config")
"""What nnx-ppo 0.2.1 puts into its pickle."""

EXACT_COUNTS = 1 << 24
"""float32 counts exactly to here: one more is no other number."""

NEVER_SAVED = (
    "nnx-ppo does not save the iteration count, the evaluation history, the cadence marks or the settings that optax "
    "hides in closures; `config` holds the options of the training if it was given to make_checkpoint_fn."
)
CLASSES = (
    "Orbax keeps values and names only: classes of variables and of optimizer states are not known. Names made of "
    "digits, which it writes for positions, became integers."
)
COUNTER = f"a float32 counter, kept as it is: it stops counting at {EXACT_COUNTS:,}."


@dataclass(frozen=True)
class Conversion:
    """What a conversion carried."""

    step: int
    """The env-steps that nnx-ppo names the checkpoint by."""
    leaves: int
    """How many leaves were carried: arrays, keys, plain values, empty containers."""
    losses: tuple[str, ...]
    """What was carried in another form or not at all, `PLACE: SENTENCE` each."""


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Conversion:
    """Writes a checkpoint of nnx-ppo anew as one of perdure's.

    The components are `networks`, `optimizer`, `network_states`, `env_states`, `rng_key`, `steps_taken` and `config`,
    of plain dicts, lists, tuples, values and NumPy arrays with the dtypes and shapes that they had; typed PRNG keys
    stay keys. `perdure.read(target)` needs neither JAX nor nnx-ppo.

    Args:
        source: the directory `step_NNNNNNNNNN`.
        target: the directory to make; it must not exist. After a failure it does not.

    Returns:
        What was carried and what was not.

    Raises:
        UsageError: there is something at `target`, or the `jax` extra is not installed.
        NoCheckpointError: there is no checkpoint of nnx-ppo at `source`.
        DamagedError: a part is missing, cut, or holds what nnx-ppo does not write.
        UnsupportedLeafError: an array of the environment has no exact form (objects).
        CommitError: the disk failed.
    """
    losses = Losses()
    directory = _checked_source(Path(source).expanduser())
    _check_target(Path(target).expanduser(), directory)
    metadata, keys = _metadata(directory / METADATA, losses)
    state: dict[str, Any] = {
        "networks": _with_keys(_variables(read_orbax(directory / "networks")), keys, directory / METADATA),
        "optimizer": _variables(read_orbax(directory / "optimizer")),
        **{name: metadata[name] for name in ENTRIES if name not in (KEYS, "step")},
    }
    _note_what_orbax_lost(state["networks"], losses)
    count = sum(1 for _ in leaves(state))
    save(target, **state)
    return Conversion(metadata["step"], count, losses.lines())


def _checked_source(directory: Path) -> Path:
    if not directory.is_dir():
        raise NoCheckpointError(f"{directory}: no such directory. Name a step_NNNNNNNNNN that nnx-ppo wrote.")
    if (directory / METADATA).is_file():
        return directory
    steps = sorted(path.name for path in directory.glob("step_*") if path.is_dir())
    if steps:
        raise NoCheckpointError(
            f"{directory}: holds checkpoints and is none; name one of them, for instance {steps[-1]}."
        )
    if any((directory / name).is_dir() for name in ("networks", "optimizer")):
        raise DamagedError(
            f"{directory}: {METADATA} is missing. nnx-ppo writes it last, so it was stopped in the middle of this "
            "save; convert the checkpoint before it."
        )
    raise NoCheckpointError(f"{directory}: no checkpoint of nnx-ppo, which holds networks/, optimizer/ and {METADATA}.")


def _check_target(target: Path, source: Path) -> None:
    if os.path.lexists(target):
        raise UsageError(f"{target}: there is something already; give the converted checkpoint a directory of its own.")
    if target.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"{target}: inside of the checkpoint that is converted; choose a place beside it.")


def _metadata(file: Path, losses: Losses) -> tuple[dict[str, Any], Any]:
    """The entries of the pickle as plain trees, and the networks' keys."""
    data = file.read_bytes()
    read = read_pickle(data, str(file))
    if not isinstance(read, dict) or not read.keys() >= set(ENTRIES):
        missing = [name for name in ENTRIES if not isinstance(read, dict) or name not in read]
        raise DamagedError(f"{file}: without {', '.join(missing)}. nnx-ppo 0.2.1 writes all of {', '.join(ENTRIES)}.")
    for name in (name for name in read if name not in ENTRIES):
        losses.add(f"{METADATA}/{name}", "an entry that nnx-ppo 0.2.1 does not have; it is not carried over.")
    trees = PlainTrees(len(data), str(file), losses)
    keys = trees.plain(read[KEYS], ("networks",))
    named = {name: trees.plain(read[name], (name,)) for name in ENTRIES if name not in (KEYS, "steps_taken")}
    named["step"] = _checked_step(named["step"], file)
    steps_taken = PlainTrees(len(data), str(file), Losses()).plain(read["steps_taken"], ("steps_taken",))
    named["steps_taken"] = _steps_taken(steps_taken, named["step"], file, losses)
    return named, keys


def _checked_step(step: Any, file: Path) -> int:
    if type(step) is not int or step < 0:
        raise DamagedError(f"{file}: step: {type(step).__name__}, not a number of env-steps. Take an undamaged copy.")
    return step


def _steps_taken(value: Any, step: int, file: Path, losses: Losses) -> int:
    """The exact integer that a float32 (or an integer, in other versions) stands for."""
    number = np.asarray(value if isinstance(value, int | float | np.ndarray | np.generic) else None)
    if number.shape != () or number.dtype.kind not in "iuf" or not np.isfinite(number) or number != np.floor(number):
        message = f"{file}: steps_taken: {number.dtype} of the shape {number.shape}, not one whole number."
        raise DamagedError(f"{message} Take an undamaged copy.")
    exact = int(number)
    if number.dtype.kind == "f":
        losses.add("steps_taken", f"{number.dtype} {exact:,} became an exact integer.")
    if number.dtype.kind == "f" and exact >= EXACT_COUNTS:
        losses.add("steps_taken", f"float32 cannot count beyond {EXACT_COUNTS:,}: the true number may be another.")
    if exact != step:
        losses.add("steps_taken", f"{exact:,} here, but the checkpoint is named by the step {step:,}.")
    return exact


def _variables(tree: Any) -> Any:
    """Orbax's tree as `flax.nnx` names it: Orbax writes `"0"/kernel/value` for the `kernel` at position 0."""
    if isinstance(tree, dict):
        value = tree.get("value")
        if tree.keys() == {"value"} and not isinstance(value, dict | list | tuple):
            return value
        return {_step_of(key): _variables(child) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map(_variables, tree))
    return tree


def _step_of(key: str) -> str | int:
    return int(key) if re.fullmatch(r"0|[1-9]\d{0,8}", key, re.ASCII) else key


def _with_keys(networks: Any, keys: Any, file: Path, path: TreePath = ("networks",)) -> Any:
    """The networks with their PRNG keys, which come from the pickle."""
    if not isinstance(networks, dict) or not isinstance(keys, dict):
        raise DamagedError(
            f"{file}: {KEYS}: a key and something else at {format_path(path)}. The pickle and networks/ are not of one "
            "save; take an undamaged copy."
        )
    merged = dict(networks)
    for step, child in keys.items():
        is_key = not isinstance(child, dict) and step not in networks
        merged[step] = child if is_key else _with_keys(networks.get(step, {}), child, file, (*path, step))
    return merged


def _note_what_orbax_lost(networks: Any, losses: Losses) -> None:
    losses.add("networks and optimizer", CLASSES)
    for path, leaf in leaves(networks, ("networks",)):
        if path[-1] == "counter" and isinstance(leaf, np.ndarray) and leaf.dtype == np.float32:
            losses.add(path, COUNTER)
    losses.add("not in the source", NEVER_SAVED)
