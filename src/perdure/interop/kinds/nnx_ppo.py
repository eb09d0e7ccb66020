"""Import of nnx-ppo's checkpoints: `step_NNNNNNNNNN/` with `networks/`, `optimizer/` and `metadata.pkl`.

nnx-ppo 0.2.1 saves arrays of networks and optimizer through Orbax and everything else as a pickle. The pickle is read
without being run, and a policy comes over without the environment's package and under any version of JAX.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import DamagedError, NoCheckpointError
from perdure.interop.carried import Carried, Contents, Leaf, described
from perdure.interop.losses import Losses
from perdure.interop.orbax_arrays import read_orbax
from perdure.interop.plain_trees import PlainTrees
from perdure.interop.restricted_pickle import read_pickle
from perdure.tree.leaves import leaves
from perdure.tree.paths import Path as TreePath
from perdure.tree.paths import format_path

METADATA = "metadata.pkl"
PARTS = ("networks", "optimizer")
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


class NnxPpoDirectory:
    """A checkpoint of nnx-ppo."""

    name = "nnx-ppo"
    title = "a checkpoint of nnx-ppo"

    def recognises(self, path: Path) -> bool:
        """A directory with nnx-ppo's pickle, with what it writes before that, or with such directories in it."""
        if not path.is_dir():
            return False
        if (path / METADATA).is_file():
            return True
        if (path / "_CHECKPOINT_METADATA").exists():  # a checkpoint of Orbax may have items of these names
            return False
        if all((path / name).is_dir() for name in PARTS):
            return True
        return any((step / METADATA).is_file() for step in path.glob("step_*"))

    def contents(self, path: Path) -> Contents:
        """Everything is read for it: the pickle has no headers."""
        carried = self.read(path)
        found = [
            Leaf(format_path(at), described(leaf), getattr(leaf, "nbytes", 0)) for at, leaf in leaves(carried.tree)
        ]
        return Contents(self.name, found, carried.metadata, carried.losses)

    def read(self, path: Path) -> Carried:
        """The components `networks`, `optimizer`, `network_states`, `env_states`, `rng_key`, `steps_taken`, `config`.

        They are plain dicts, lists, tuples, values and NumPy arrays with the dtypes and shapes that they had.

        Raises:
            UsageError: the `jax` extra is not installed.
            NoCheckpointError: there is no checkpoint of nnx-ppo at `path`.
            DamagedError: a part is missing, cut, or holds what nnx-ppo does not write.
            UnsupportedLeafError: an array of the environment has no exact form (objects).
        """
        losses = Losses()
        directory = _checked_source(path)
        metadata, keys = _metadata(directory / METADATA, losses)
        state: dict[Any, Any] = {
            "networks": _with_keys(_part(directory / "networks", losses), keys, directory / METADATA),
            "optimizer": _part(directory / "optimizer", losses),
            **{name: metadata[name] for name in ENTRIES if name not in (KEYS, "step")},
        }
        _note_what_orbax_lost(state["networks"], losses)
        return Carried(state, {"env_steps": metadata["step"]}, losses)


def _part(directory: Path, losses: Losses) -> Any:
    """What Orbax holds of the networks or of the optimizer."""
    if not directory.is_dir():
        raise DamagedError(
            f"{directory}: missing. nnx-ppo was stopped in the middle of this save; convert the checkpoint before it."
        )
    return _variables(read_orbax(directory, losses))


def _checked_source(directory: Path) -> Path:
    if (directory / METADATA).is_file():
        return directory
    steps = sorted(path.name for path in directory.glob("step_*") if path.is_dir())
    if steps:
        raise NoCheckpointError(
            f"{directory}: holds checkpoints and is none; name one of them, for instance {steps[-1]}."
        )
    raise DamagedError(
        f"{directory}: {METADATA} is missing. nnx-ppo writes it last, so it was stopped in the middle of this "
        "save; convert the checkpoint before it."
    )


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


KIND = NnxPpoDirectory()
