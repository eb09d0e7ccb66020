"""Going on from a checkpoint of nnx-ppo, once `perdure convert` has made one of perdure's of it.

What was learned comes over exactly: weights, normaliser, optimizer, counters, keys. The training that goes on is
another one all the same, for perdure draws its random numbers in another order (docs/convert.md).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import perdure
from perdure import UsageError
from perdure.nnx.config import TrainConfig, from_mapping
from perdure.nnx.environment import Environment
from perdure.nnx.host import HostEnvironments
from perdure.nnx.networks.types import StatefulModule
from perdure.nnx.state import TrainingState, fresh_env_states
from perdure.nnx.trees import strong

PARTS = ("networks", "optimizer", "network_states", "env_states", "rng_key", "steps_taken", "config")
"""The components of a converted checkpoint."""

NOT_SAVED = (
    "iteration count: nnx-ppo does not save it; it is counted anew from the env-steps.",
    "evaluation history: nnx-ppo does not save it; it begins empty.",
    "cadence marks: nnx-ppo does not save them; what is due next follows from the env-steps.",
    "trajectories: perdure draws its random numbers in another order, so they are not those that nnx-ppo would take.",
)
"""What no conversion can bring over, `PLACE: SENTENCE` each."""

EXACT_COUNTS = 1 << 24
"""Where nnx-ppo's float32 counters stop."""

_RENAMED = ((r"\.linear\.(kernel|bias)$", r".\1"), (r"\.rng\.default\.(key|count)$", r".stream.\1"))
_M2 = r"(^|\.)M2$"


@dataclass(frozen=True)
class ImportedTraining:
    """A checkpoint of nnx-ppo as the start of a training."""

    training_state: TrainingState
    """For `train_ppo(initial_state=...)`; its networks and optimizer are the ones that were given."""
    step: int
    """Env-steps taken."""
    config: TrainConfig | Mapping[str, Any] | None
    """The options that nnx-ppo was given; as they stand in the checkpoint if perdure has others."""
    missing: tuple[str, ...]
    """What did not come over, `PLACE: SENTENCE` each."""


def load_nnx_ppo(
    path: str | Path,
    networks: StatefulModule,
    optimizer: nnx.Optimizer[Any],
    env: Environment | HostEnvironments,
    *,
    rename: Callable[[str], str] | None = None,
) -> ImportedTraining:
    """Puts a converted checkpoint of nnx-ppo into networks and an optimizer of perdure's, and makes a state of it.

    Networks, normaliser, optimizer, key and env-steps are exact. The environments go on in mid-episode if the states of
    `env` have the fields that nnx-ppo's had; otherwise they begin new episodes, and `missing` says so.

    Args:
        path: what `perdure convert` wrote.
        networks: built as nnx-ppo's were: the same layers and sizes.
        optimizer: with the same transformations: clipping, Adam or AdamW.
        env: what will be trained in.
        rename: from a variable's dotted name in nnx-ppo (`layers.1.action.layers.0.linear.kernel`) to its name here,
            for modules of your own; called with the names that perdure's own rules give.

    Raises:
        UsageError: `path` holds something else, or a variable is missing, has no place or another shape or dtype: all
            are named, and nothing was changed.
        DamagedError: a file is not what was written.
    """
    plain = _read(Path(path).expanduser())
    pairs = [
        *_matched("networks", networks, _of_perdure(plain["networks"], rename)),
        *_matched("optimizer", optimizer, _of_perdure(plain["optimizer"], rename)),
    ]
    _refuse(path, pairs)
    missing = list(NOT_SAVED)
    missing += [f"{pair.name}: {pair.doubt}" for pair in pairs if pair.doubt]
    rng_key = jax.random.wrap_key_data(jnp.asarray(plain["rng_key"]))
    n_envs = int(_flat(plain["env_states"])["done"].shape[0])
    fresh = fresh_env_states(env, jax.random.fold_in(rng_key, plain["steps_taken"] & 0xFFFF_FFFF), n_envs)
    env_states = _like(fresh, plain["env_states"], "env_states", missing)
    carries = strong(nnx.clone(networks).initialize_state(n_envs))
    network_states = _like(carries, plain["network_states"], "network_states", missing)
    config = _config(plain["config"], missing)
    for pair in pairs:
        pair.put()
    networks.train()
    state = TrainingState(
        networks=networks,
        network_states=network_states,
        env_states=env_states,
        optimizer=optimizer,
        rng_key=rng_key,
        steps_taken=plain["steps_taken"],
    )
    return ImportedTraining(state, plain["steps_taken"], config, tuple(missing))


def _read(path: Path) -> dict[str, Any]:
    if (path / "metadata.pkl").is_file():
        raise UsageError(f"{path}: a checkpoint of nnx-ppo itself; write it anew first: perdure convert {path} NEW")
    plain = perdure.read(path)
    missing = [name for name in PARTS if name not in plain]
    if missing or "eval_history" in plain:
        what = f"no component {', '.join(missing)}" if missing else "saved by perdure's own training: load_checkpoint"
        raise UsageError(f"{path}: {what}: it was not converted from a checkpoint of nnx-ppo.")
    return plain


def _flat(tree: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Arrays and plain values by dotted name; empty containers have none."""
    if isinstance(tree, Mapping):
        children: Iterator[tuple[Any, Any]] = iter(tree.items())
    elif isinstance(tree, list | tuple):
        children = enumerate(tree)
    else:
        return {".".join(path): tree}
    return {name: leaf for step, child in children for name, leaf in _flat(child, (*path, str(step))).items()}


def _of_perdure(tree: Any, rename: Callable[[str], str] | None) -> dict[str, np.ndarray]:
    """Under perdure's names, with its normaliser: an exact count in two words, and a sum with what rounding left."""
    held = _flat(tree)
    found = {}
    for name, leaf in held.items():
        if re.search(_M2, name):
            found[_renamed(re.sub(_M2, r"\1m2", name), rename)] = np.stack([leaf, np.zeros_like(leaf)])
        elif name.endswith("counter") and re.sub("counter$", "M2", name) in held:
            count = int(leaf)
            found[_renamed(name, rename)] = np.array([count >> 32, count & 0xFFFF_FFFF], np.uint32)
        else:
            found[_renamed(name, rename)] = leaf
    return found


def _renamed(name: str, rename: Callable[[str], str] | None) -> str:
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return rename(name) if rename else name


@dataclass(frozen=True)
class _Pair:
    """A variable here and what nnx-ppo saved of it."""

    name: str
    """With the part's name before it."""
    variable: nnx.Variable[Any] | None
    """None if there is none of this name."""
    saved: np.ndarray | None
    """None if nothing of this name was saved."""

    @property
    def problem(self) -> str | None:
        """Why one does not go into the other."""
        here, saved = self._here(), self.saved
        told = "nothing" if saved is None else f"{saved.dtype} of the shape {saved.shape}"
        if here is None:
            return f"{self.name}: {told} in the checkpoint, nothing here."
        if saved is None or (saved.dtype, saved.shape) != (here.dtype, here.shape):
            return f"{self.name}: {told} in the checkpoint, {here.dtype} of the shape {here.shape} here."
        return None

    @property
    def doubt(self) -> str | None:
        """What may be wrong about the number itself."""
        if not self.name.endswith(".counter") or self.saved is None:
            return None
        high, low = (int(word) for word in self.saved)
        if (high << 32) + low < EXACT_COUNTS:
            return None
        return f"a float32 counter of nnx-ppo, which stops at {EXACT_COUNTS:,}: the true number may be another."

    def put(self) -> None:
        """Writes it; both are there."""
        if self.variable is None or self.saved is None:
            raise AssertionError(self.name)
        old = self.variable.get_value()
        if jnp.issubdtype(old.dtype, jax.dtypes.prng_key):
            self.variable.set_value(jax.random.wrap_key_data(jnp.asarray(self.saved), impl=jax.random.key_impl(old)))
        else:
            self.variable.set_value(jnp.array(self.saved))

    def _here(self) -> Any:
        if self.variable is None:
            return None
        value = self.variable.get_value()
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        return jax.eval_shape(jax.random.key_data, value) if is_key else value


def _matched(part: str, obj: Any, saved: Mapping[str, np.ndarray]) -> Iterator[_Pair]:
    here = {".".join(map(str, path)): node for path, node in nnx.iter_graph(obj) if isinstance(node, nnx.Variable)}
    for name in dict.fromkeys([*here, *saved]):
        yield _Pair(f"{part}.{name}", here.get(name), saved.get(name))


def _refuse(path: str | Path, pairs: list[_Pair]) -> None:
    problems = [problem for pair in pairs if (problem := pair.problem)]
    if problems:
        way_out = (
            "Build networks and optimizer as nnx-ppo's were (the configuration is in the component `config`), or give "
            "rename=... for modules with other names"
        )
        raise UsageError(
            f"{path}: {len(problems)} variables do not fit; nothing was changed. {way_out}:\n  " + "\n  ".join(problems)
        )


def _like(fresh: Any, saved: Any, part: str, missing: list[str]) -> Any:
    """The saved values in a fresh tree's classes if its leaves are the same; else the fresh tree, and that is said."""
    with_paths, structure = jax.tree_util.tree_flatten_with_path(fresh)
    held = _flat(saved)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in with_paths]
    kinds = [(leaf.dtype, leaf.shape) for _, leaf in with_paths]
    if dict(zip(names, kinds, strict=True)) == {name: (leaf.dtype, leaf.shape) for name, leaf in held.items()}:
        return jax.tree.unflatten(structure, [jnp.array(held[name]) for name in names])
    others = ", ".join(sorted(set(names) ^ held.keys())) or "their shapes or dtypes"
    missing.append(f"{part}: not the fields that are here ({others}); they begin anew.")
    return fresh


def _config(saved: Any, missing: list[str]) -> TrainConfig | Mapping[str, Any] | None:
    """As perdure's own configuration; what is measured is numbered otherwise in nnx-ppo, and takes its default."""
    if saved is None:
        missing.append("config: none was given to nnx-ppo's make_checkpoint_fn.")
        return None
    known = {name: _without_levels(part) if isinstance(part, Mapping) else part for name, part in saved.items()}
    try:
        config = from_mapping(TrainConfig, known)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        missing.append(f"config: not as perdure has it, and left as a mapping: {error}")
        return saved
    missing.append("config: the logging levels are numbers of nnx-ppo; perdure's defaults stand in their place.")
    return config


def _without_levels(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != "logging_level"}
