"""The cases of the contract's matrix: one change each, and what a resume must say to it."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tests.resume.contract_setup import VARIABLE, OtherNet, Setup, Statistics

import perdure

Change = Callable[[Setup], Setup | None]


class Refused(NamedTuple):
    """A difference that refuses the resume."""

    key: str
    saved: str
    found: str
    section: str = "algorithm"
    is_acceptable: bool = True


def ppo(**keys: Any) -> Change:
    return lambda setup: setup.config["ppo"].update(keys)


def config(**keys: Any) -> Change:
    return lambda setup: setup.config.update(keys)


def section(name: str, **keys: Any) -> Change:
    return lambda setup: setup.contract[name].update(keys)


def fields(**changed: Any) -> Change:
    return lambda setup: replace(setup, **changed)


def write(name: str, text: str) -> Change:
    def change(setup: Setup) -> None:
        (setup.folder / name).write_text(text)

    return change


def moved(setup: Setup) -> None:
    """The same files elsewhere, with other times and another name of the folder."""
    (setup.folder / "levels.json").rename(setup.folder / "elsewhere.json")
    (setup.folder / "pool").rename(setup.folder / "other")
    os.utime(setup.folder / "elsewhere.json", (0, 0))
    levels, pool = perdure.File(setup.folder / "elsewhere.json"), perdure.File(setup.folder / "other")
    setup.contract["env"].update(levels=levels, pool=pool)


def environment(value: str | None) -> Change:
    def change(setup: Setup) -> None:
        os.environ.pop(VARIABLE)
        if value is not None:
            os.environ[VARIABLE] = value

    return change


def switch(name: str, value: Any) -> Change:
    return lambda setup: jax.config.update(name, value)


def without(owner: str, key: str) -> Change:
    return lambda setup: setup.contract[owner].pop(key)


def sgd() -> Any:
    return optax.sgd(3e-4)


def clipped() -> Any:
    return optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))


FILE = "'xxh3_128:"
ADAM = "optimizer/tx/update/update_fns/1/tx/1"
LR = "algorithm.ppo.learning_rate"
PAIR = ("0.0003", "0.0001")
WIDER = [
    Refused("net/layers/0/bias", "float32 3", "float32 4", "structure", is_acceptable=False),
    Refused("net/layers/0/out_features", "3", "4"),
]

REFUSED: dict[str, tuple[Change, list[Refused]]] = {
    # hyper-parameters, and their types
    "learning rate": (ppo(learning_rate=1e-4), [Refused(LR, *PAIR)]),
    "an int for a float": (ppo(clip=1.0), [Refused("algorithm.ppo.clip", "1", "1.0")]),
    "text for a number": (ppo(clip="1"), [Refused("algorithm.ppo.clip", "1", "'1'")]),
    "True for 1": (ppo(clip=True), [Refused("algorithm.ppo.clip", "1", "True")]),
    "a flag": (ppo(gae=False), [Refused("algorithm.ppo.gae", "True", "False")]),
    "text with a space": (ppo(name="a  b"), [Refused("algorithm.ppo.name", "'a b'", "'a  b'")]),
    "None": (ppo(entropy=0.0), [Refused("algorithm.ppo.entropy", "None", "0.0")]),
    "NaN": (ppo(clip=float("nan")), [Refused("algorithm.ppo.clip", "1", "nan")]),
    "a new key": (ppo(target_kl=0.1), [Refused("algorithm.ppo.target_kl", "nothing", "0.1")]),
    "a key is gone": (
        lambda setup: setup.config["ppo"].pop("gae"),
        [Refused("algorithm.ppo.gae", "True", "nothing")],
    ),
    "a key becomes free": (
        fields(options={"free": ["track", "ppo.gae"]}),
        [Refused("algorithm.ppo.gae", "True", "nothing")],
    ),
    "a free key counts from now on": (
        fields(options={"free": []}),
        [Refused("algorithm.track", "nothing", "False")],
    ),
    # seed
    "seed": (config(seed=2), [Refused("seed.seed", "1", "2", "seed", is_acceptable=False)]),
    "seed as text": (config(seed="1"), [Refused("seed.seed", "1", "'1'", "seed", is_acceptable=False)]),
    # interface, env, reward, own
    "observation": (
        section("interface", obs_shape=[5]),
        [Refused("interface.obs_shape.0", "4", "5", "interface", is_acceptable=False)],
    ),
    "an action more": (
        section("interface", actions=["up"]),
        [Refused("interface.actions.0", "nothing", "'up'", "interface", is_acceptable=False)],
    ),
    "environment": (section("env", id="Maze-v2"), [Refused("env.id", "'Maze-v1'", "'Maze-v2'", "env")]),
    "version of dynamics": (
        section("env", gymnasium="1.2.1"),
        [Refused("env.gymnasium", "'1.2.0'", "'1.2.1'", "env")],
    ),
    "order of wrappers": (
        section("env", wrappers=["RecordEpisodeStatistics", "TimeLimit"]),
        [
            Refused("env.wrappers.0", "'TimeLimit'", "'RecordEpisodeStatistics'", "env"),
            Refused("env.wrappers.1", "'RecordEpisodeStatistics'", "'TimeLimit'", "env"),
        ],
    ),
    "one byte of a declared file": (
        write("levels.json", '{"levels": [1, 3]}'),
        [Refused("env.levels", FILE, FILE, "env")],
    ),
    "one byte in a declared folder": (
        write("pool/deep/b.txt", "c"),
        [Refused("env.pool", FILE, FILE, "env")],
    ),
    "a file more in a declared folder": (
        write("pool/c.txt", ""),
        [Refused("env.pool", FILE, FILE, "env")],
    ),
    "a renamed file in a declared folder": (
        lambda setup: (setup.folder / "pool" / "a.txt").rename(setup.folder / "pool" / "z.txt") and None,
        [Refused("env.pool", FILE, FILE, "env")],
    ),
    "an environment variable": (
        environment("-Xmx2g"),
        [Refused("env.java_options", "'-Xmx1g'", "'-Xmx2g'", "env")],
    ),
    "an environment variable is not set": (
        environment(None),
        [Refused("env.java_options", "'-Xmx1g'", "None", "env")],
    ),
    "reward": (section("reward", weight=0.25), [Refused("reward.weight", "0.5", "0.25", "reward")]),
    "a reward term more": (section("reward", bonus=1), [Refused("reward.bonus", "nothing", "1", "reward")]),
    "own section": (
        section("my_rules", opponents="learning"),
        [Refused("my_rules.opponents", "'frozen'", "'learning'", "my_rules")],
    ),
    "own section is gone": (
        lambda setup: setup.contract.pop("my_rules"),
        [Refused("my_rules.opponents", "'frozen'", "nothing", "my_rules")],
    ),
    "an unclassified section": (
        lambda setup: setup.contract.update(more={"x": 1}),
        [Refused("more.x", "nothing", "1", "more")],
    ),
    # horizon
    "another total, and nobody says what schedules do": (
        config(total=200),
        [Refused("horizon.total", "100", "200", "horizon")],
    ),
    "a total below the present step": (
        config(total=10),
        [Refused("horizon.total", "100", "10", "horizon", is_acceptable=False)],
    ),
    "a total below the present step, and schedules are kept": (
        lambda setup: replace(setup, config={**setup.config, "total": 10}, options={"schedules": "keep"}),
        [Refused("horizon.total", "100", "10", "horizon", is_acceptable=False)],
    ),
    # optimizer
    "optimizer's rate": (
        fields(tx=lambda: optax.adam(1e-4)),
        [Refused(f"{ADAM}/step_size", "-0.0003", "-0.0001")],
    ),
    "optimizer's decay": (
        fields(tx=lambda: optax.adam(3e-4, b1=0.8)),
        [Refused("optimizer/tx/update/update_fns/0/tx/1/b1", "0.9", "0.8")],
    ),
    "optimizer kind": (
        fields(tx=sgd),
        [Refused("optimizer/opt_state/0/count", "int32 scalar 0", "missing", "structure", is_acceptable=False)],
    ),
    "clipping": (
        fields(tx=clipped),
        [
            Refused("optimizer/tx/update/update_fns/0/tx/1", "function optax:scale_by_adam", "function"),
            Refused("optimizer/opt_state", "", "", "structure", is_acceptable=False),
        ],
    ),
    "weight decay": (
        fields(tx=lambda: optax.adamw(3e-4, weight_decay=0.1)),
        [Refused("optimizer/opt_state", "tuple of 2", "tuple of 3", "structure", is_acceptable=False)],
    ),
    "dtype of moments": (
        fields(tx=lambda: optax.adam(3e-4, mu_dtype=jnp.bfloat16)),
        [Refused("optimizer/opt_state/0/mu/", "float32", "bfloat16", "structure", is_acceptable=False)],
    ),
    # network
    "width": (fields(width=4), WIDER),
    "depth": (
        fields(depth=2),
        [Refused("net/layers/1", "missing", "Linear", "structure", is_acceptable=False)],
    ),
    "dtype of parameters": (
        fields(dtype=jnp.float16),
        [Refused("net/layers/0/kernel", "float32 2×3", "float16 2×3", "structure", is_acceptable=False)],
    ),
    "dropout rate": (fields(rate=0.2), [Refused("net/dropout/rate", "0.1", "0.2")]),
    "activation": (
        fields(activation=jnp.tanh),
        [Refused("net/activation", "function jax:relu", "function jax:tanh")],
    ),
    "class of a module": (fields(kind=OtherNet), [Refused("net", "class tests:Net", "class tests:OtherNet")]),
    "class of a variable": (
        fields(scale=Statistics),
        [Refused("net/scale", "class flax:Param", "class tests:Statistics")],
    ),
    # structure
    "number of environments": (
        ppo(n_envs=8),
        [
            Refused("algorithm.ppo.n_envs", "4", "8"),
            Refused("env_states", "float64 4×3", "float64 8×3", "structure", is_acceptable=False),
        ],
    ),
    "a component more": (
        fields(components={"extra": 1}),
        [Refused("extra", "no such component", "a target", "structure", is_acceptable=False)],
    ),
    "a component less": (
        fields(components={"table": None}),
        [Refused("table", "a component", "nothing", "structure", is_acceptable=False)],
    ),
    "a renamed component": (
        fields(rename={"table": "tables"}),
        [
            Refused("table", "a component", "nothing", "structure", is_acceptable=False),
            Refused("tables", "no such component", "a target", "structure", is_acceptable=False),
        ],
    ),
    "another kind of leaf": (
        fields(components={"env_states": np.zeros((4, 3), np.float32)}),
        [Refused("env_states", "float64 4×3", "float32 4×3", "structure", is_acceptable=False)],
    ),
    # the process
    "which numbers a key stands for": (
        switch("jax_threefry_partitionable", False),
        [Refused("numerics.jax_threefry_partitionable", "True", "False", "numerics")],
    ),
    "dtype promotion": (
        switch("jax_numpy_dtype_promotion", "strict"),
        [Refused("numerics.jax_numpy_dtype_promotion", "'standard'", "'strict'", "numerics")],
    ),
}

GOES_ON: dict[str, Change] = {
    "nothing": lambda setup: None,
    "moved and touched files": moved,
    "a free key": config(track=True),
    "a free key by a pattern": config(wandb_name="x"),
    "the order of keys": lambda setup: replace(
        setup, config=dict(reversed(setup.config.items())), components={"table": {"b": [1, 2], "a": 1}}
    ),
    "1e2 for 100": config(total=1e2),
    "another cadence": fields(options={"every": perdure.Every(updates=3)}),
    "a larger total, schedules do not depend on it": lambda setup: replace(
        setup, config={**setup.config, "total": 200}, options={"schedules": "none"}
    ),
    "a smaller total, schedules are kept": lambda setup: replace(
        setup, config={**setup.config, "total": 50}, options={"schedules": "keep"}
    ),
    "a table that grew": fields(components={"table": {"a": 1, "b": [1, 2], "c": 3}}),
}
