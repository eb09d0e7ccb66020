"""A tiny training whose checkpoints are golden, and what they must load as: importable, and a process of its own.

    python nnx_golden.py make DIRECTORY            # how nnx_v0 was made; refuses a directory that exists
    python nnx_golden.py load DIRECTORY            # its checkpoints' leaves, as JSON
    python nnx_golden.py load-v0 DIRECTORY         # what JAX has a value for in the checkpoint of test_golden.py
    python nnx_golden.py go-on DIRECTORY           # trains on from its checkpoint
    python nnx_golden.py run DIRECTORY UPDATES     # trains in a run, or resumes it

It needs JAX, Flax, optax and perdure, of whatever version, and nothing else.
"""

import argparse
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import perdure
from perdure.nnx import (
    LSTM,
    Dense,
    EvalConfig,
    Flattener,
    Map,
    Normalizer,
    NormalTanhSampler,
    Parallel,
    PPOAdapter,
    PPOConfig,
    StatefulModule,
    TrainConfig,
    TrainingState,
    load_checkpoint,
    make_checkpoint_fn,
    new_training_state,
    train_ppo,
)
from perdure.nnx import Sequential as Chain
from perdure.nnx.envs import TwoGoals

ENV = TwoGoals(speed=0.1, goal_radius=0.6, episode_length=7)
PPO = PPOConfig(
    n_envs=2,
    rollout_length=5,
    n_epochs=2,
    n_minibatches=2,
    learning_rate=1e-2,
    gradient_clipping=0.5,
    weight_decay=1e-3,
    combine_advantages=True,
)
STEPS = PPO.steps_per_iteration
UPDATES = 3
GOLDEN_STEP = 2 * STEPS
"""Within episodes, and before the last update of the training."""
TRAINING = f"step_{GOLDEN_STEP:010d}"
VALUES = "values"
EXPECTED = "expected.json"

Described = dict[str, dict[str, Any]]
"""Path -> what a leaf is."""


def config(updates: int = UPDATES) -> TrainConfig:
    """The configuration; the policy is evaluated in every iteration."""
    ppo = PPOConfig(**{**vars(PPO), "total_steps": updates * STEPS})
    return TrainConfig(ppo, EvalConfig(every_steps=STEPS, n_envs=2, max_episode_length=7), seed=5)


def networks(seed: int) -> StatefulModule:
    """Normalisers of a dict, an LSTM with a trained start, a value head for each reward."""
    rngs = nnx.Rngs(seed)
    lstm = LSTM(6, 4, rngs, trainable_initial_state=True)
    return Chain(
        [
            Map(position=Normalizer(2), goals=Normalizer(4)),
            Flattener(),
            PPOAdapter(
                action=Chain([lstm, Dense(4, 4, rngs), NormalTanhSampler(rngs)]),
                value=Parallel({name: Dense(6, 1, rngs) for name in ("reach", "effort")}),
            ),
        ]
    )


def values(seed: int) -> dict[str, Any]:
    """Leaves that no training has: weak types, small floats, each implementation of keys."""
    numbers = jnp.arange(6) + seed
    return {
        "weak": {"float": jnp.asarray(seed + 0.5), "int": jnp.asarray(seed)},
        "floats": [numbers.astype(dtype).reshape(2, 3) for dtype in ("bfloat16", "float8_e4m3fn", "float16")],
        "plain": (numbers > seed, numbers.astype(jnp.complex64), numbers.astype(jnp.uint8)),
        "empty": jnp.zeros((0, 4)),
        "raw_key": jax.random.PRNGKey(seed),
        "keys": {name: jax.random.key(seed, impl=name) for name in ("threefry2x32", "rbg", "unsafe_rbg")},
        "key_batch": jax.random.split(jax.random.key(seed), 3),
    }


def write_checkpoints(directory: Path) -> None:
    """Both checkpoints, by the public ways to write one."""
    save = make_checkpoint_fn(directory, config=config())

    def save_once(*, training_state: TrainingState, step: int) -> None:
        if step == GOLDEN_STEP:
            save(training_state=training_state, step=step)

    settings = TrainConfig(**{**vars(config()), "checkpoint_every_steps": STEPS})
    train_ppo(ENV, networks(0), settings, checkpoint_fn=save_once)
    perdure.save(directory / VALUES, values=values(3))


def loaded_state(directory: Path, seed: int = 9) -> TrainingState:
    """The training's checkpoint in objects that start otherwise."""
    nets = networks(seed)
    fresh = new_training_state(ENV, nets, PPO.n_envs, seed)
    return load_checkpoint(directory / TRAINING, nets, fresh.optimizer, env=ENV)["training_state"]


def loaded(directory: Path) -> dict[str, Described]:
    """The leaves of each checkpoint as JAX has them after loading."""
    return {
        TRAINING: dict(described_jax(parts_of(loaded_state(directory)))),
        VALUES: dict(described_jax(perdure.load(directory / VALUES, values=values(0))["values"])),
    }


def parts_of(state: TrainingState) -> dict[str, Any]:
    """Everything in a training state that JAX holds."""
    return {
        "networks": nnx.state(state.networks),
        "optimizer": nnx.state(state.optimizer),
        "network_states": state.network_states,
        "env_states": state.env_states,
        "rng_key": state.rng_key,
    }


def described_jax(tree: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Dtype, shape, weak type, key implementation and bytes of each leaf."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        data = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        implementation = str(jax.random.key_impl(leaf)) if is_key else None
        kind = {"weak_type": getattr(leaf, "weak_type", False), "key_implementation": implementation}
        yield jax.tree_util.keystr(path, simple=True, separator="/"), {**described_array(data), **kind}


def read(directory: Path) -> dict[str, Described]:
    """The arrays of each checkpoint as `perdure.read` has them."""
    return {name: dict(described_plain(perdure.read(directory / name))) for name in (TRAINING, VALUES)}


def described_plain(tree: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Dtype, shape and bytes of each array in dicts, lists and tuples."""
    if isinstance(tree, np.ndarray | np.generic):
        yield path, described_array(np.asarray(tree))
    elif isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from described_plain(child, f"{path}/{key}".lstrip("/"))
    elif isinstance(tree, list | tuple):
        yield from described_plain(dict(enumerate(tree)), path)


def described_array(data: np.ndarray) -> dict[str, Any]:
    """What NumPy knows of an array."""
    digest = hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()
    return {"dtype": str(data.dtype), "shape": list(data.shape), "sha256": digest}


def versions() -> dict[str, str]:
    """Of what wrote a checkpoint."""
    return {module.__name__: module.__version__ for module in (flax, jax, np, optax)}


def make(directory: Path) -> dict[str, Any]:
    """Checkpoints and `expected.json`, where there is nothing yet."""
    directory.mkdir()
    write_checkpoints(directory)
    expected = {"made_with": versions(), "read": read(directory), "loaded": loaded(directory)}
    (directory / EXPECTED).write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
    return {"made_with": versions()}


def load(directory: Path) -> dict[str, Any]:
    """Leaves, and what the policy does three times over with one observation."""
    state = loaded_state(directory)
    nets = state.networks
    nets.eval()
    carries = nets.initialize_state(3)
    seen = jax.vmap(ENV.reset)(jax.random.split(jax.random.key(1), 3)).obs
    actions = [np.asarray(nets(carries, seen).output.actions).tolist() for _ in range(3)]
    return {"versions": versions(), "read": read(directory), "loaded": loaded(directory), "actions": actions}


def load_v0(directory: Path) -> dict[str, Any]:
    """The key in the checkpoint that holds every kind of node; JAX needs nothing else of it."""
    key = perdure.load(directory / "checkpoint", only=["key"], key=jax.random.key(0))["key"]
    return {"key": dict(described_jax(key))[""], "data": jax.random.key_data(key).tolist()}


def go_on(directory: Path) -> dict[str, Any]:
    """The training of the checkpoint, to its end."""
    state = loaded_state(directory)
    result = train_ppo(ENV, state.networks, config(), initial_state=state)
    steps = [entry["step"] for entry in result.eval_history]
    return {"total_steps": result.total_steps, "evaluated_at": steps}


def run(directory: Path, updates: int) -> dict[str, Any]:
    """A training in a run, and what the run says of its start."""
    notices: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: notices.append(record.getMessage())
    logging.getLogger("perdure").addHandler(handler)
    result = train_ppo(ENV, networks(0), config(updates), run=directory)
    logging.getLogger("perdure").removeHandler(handler)
    return {"total_steps": result.total_steps, "versions": versions(), "notices": notices}


VERBS = {"make": make, "load": load, "load-v0": load_v0, "go-on": go_on}


def main(argv: Sequence[str] | None = None) -> None:
    """Does one of these and prints JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=(*VERBS, "run"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("updates", type=int, nargs="?", default=UPDATES)
    options = parser.parse_args(argv)
    is_run = options.verb == "run"
    found = run(options.directory, options.updates) if is_run else VERBS[options.verb](options.directory)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
