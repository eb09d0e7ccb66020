"""The cases of the contract's matrix: one change each, and what a resume must say to it."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import optax
from tests.resume.contract_changes import (
    Change,
    GoesOn,
    Refused,
    as_dataclasses,
    as_namespace,
    as_objects,
    clipped,
    config,
    dressed,
    environment,
    fields,
    moved,
    ppo,
    section,
    sgd,
    switch,
    total,
    write,
)
from tests.resume.contract_setup import GONE, OtherNet, Statistics

import perdure

FILE = "'xxh3_128:…"
MU = "optimizer/opt_state/0/mu/layers/0"
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
    "one unit in the last place": (
        ppo(learning_rate=0.00030000000000000003),
        [Refused(LR, "0.0003", "0.00030000000000000003")],
    ),
    "a negative number": (ppo(clip=-1), [Refused("algorithm.ppo.clip", "1", "-1")]),
    "text with quotes, a colon and an equals sign": (
        ppo(name='it\'s "a:b=c"'),
        [Refused("algorithm.ppo.name", "'a b'", repr('it\'s "a:b=c"'))],
    ),
    "the word that stands for a missing key": (
        ppo(name="nothing"),
        [Refused("algorithm.ppo.name", "'a b'", "'nothing'")],
    ),
    "a text too long to be shown": (ppo(name="x" * 500), [Refused("algorithm.ppo.name", "'a b'", "'xxxxx…")]),
    "a rate in a dataclass": (
        dressed(as_dataclasses, learning_rate=1e-4),
        [Refused("algorithm.ppo", "nothing", "'Ppo'"), Refused(LR, *PAIR)],
    ),
    "a part of the configuration becomes a dataclass": (
        dressed(as_dataclasses),
        [Refused("algorithm.ppo", "nothing", "'Ppo'")],
    ),
    "a rate in a namespace": (dressed(as_namespace, learning_rate=1e-4), [Refused(LR, *PAIR)]),
    "a rate in an object": (dressed(as_objects, learning_rate=1e-4), [Refused(LR, *PAIR)]),
    "a function": (
        ppo(schedule=optax.linear_schedule),
        [Refused("algorithm.ppo.schedule", "nothing", "'optax.schedules.…")],
    ),
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
    "seed is gone": (
        lambda setup: setup.config.pop("seed") and None,
        [Refused("seed.seed", "1", "nothing", "seed", is_acceptable=False)],
    ),
    "a seed that is said to be free": (
        lambda setup: replace(setup, config={**setup.config, "seed": 2}, options={"free": ["track", "seed"]}),
        [Refused("seed.seed", "1", "2", "seed", is_acceptable=False)],
    ),
    # interface, env, reward, own
    "observation": (
        section("interface", obs_shape=[5]),
        [Refused("interface.obs_shape.0", "4", "5", "interface", is_acceptable=False)],
    ),
    "an action more": (
        section("interface", actions=["up"]),
        [Refused("interface.actions.0", "nothing", "'up'", "interface", is_acceptable=False)],
    ),
    "interface is not declared any more": (
        lambda setup: setup.contract.pop("interface") and None,
        [Refused("interface.obs_shape.0", "4", "nothing", "interface", is_acceptable=False)],
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
    "a smaller total, and nobody says what schedules do": (
        config(total=50),
        [Refused("horizon.total", "100", "50", "horizon")],
    ),
    "no total any more": (
        fields(options={"horizon": None}),
        [
            Refused("algorithm.total", "nothing", "100"),
            Refused("horizon.total", "100", "nothing", "horizon"),
        ],
    ),
    "the total under another name": (
        fields(options={"horizon": 100}),
        [
            Refused("algorithm.total", "nothing", "100"),
            Refused("horizon.env_steps", "nothing", "100", "horizon"),
            Refused("horizon.total", "100", "nothing", "horizon"),
        ],
    ),
    "a total below the present step": (
        config(total=10),
        [Refused("horizon.total", "100", "10", "horizon", is_acceptable=False)],
    ),
    "a total below the present step, and schedules are kept": (
        total(10, "keep"),
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
            Refused(
                "optimizer/tx/update/update_fns/0/tx/1",
                "function optax:scale_by_adam.…",
                "function optax:clip_by_global_norm.…",
            ),
            Refused("optimizer/opt_state/1", "dict of 0", "tuple of 2", "structure", is_acceptable=False),
        ],
    ),
    "weight decay": (
        fields(tx=lambda: optax.adamw(3e-4, weight_decay=0.1)),
        [Refused("optimizer/opt_state", "tuple of 2", "tuple of 3", "structure", is_acceptable=False)],
    ),
    "dtype of moments": (
        fields(tx=lambda: optax.adam(3e-4, mu_dtype=jnp.bfloat16)),
        [Refused(f"{MU}/bias", "float32 3…", "bfloat16 3", "structure", is_acceptable=False)],
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
    "an int for a dropout rate": (fields(rate=1), [Refused("net/dropout/rate", "0.1", "1")]),
    "a dropout rate becomes free": (
        fields(rate=0.2, options={"free": ["track", "wandb_*", "net/dropout/rate"]}),
        [Refused("net/dropout/rate", "0.1", "nothing")],
    ),
    "activation": (
        fields(activation=jnp.tanh),
        [Refused("net/activation", "function jax:relu", "function jax:tanh")],
    ),
    "class of a module": (fields(kind=OtherNet), [Refused("net", "class tests:Net", "class tests:OtherNet")]),
    "class of a variable": (
        fields(scale=Statistics),
        [
            Refused("net/scale", "class flax:Param", "class tests:Statistics"),
            Refused("optimizer/opt_state/0/mu/scale", "float32 1 0.0", "missing", "structure", is_acceptable=False),
        ],
    ),
    "a variable more": (
        fields(parts={"bonus": Statistics(jnp.zeros(2))}),
        [Refused("net/bonus", "missing", "Statistics", "structure", is_acceptable=False)],
    ),
    "a variable less": (
        fields(parts={"scale": GONE}),
        [Refused("net/scale", "float32 1 1.0", "missing", "structure", is_acceptable=False)],
    ),
    "a plain attribute more": (
        fields(parts={"gain": 2.0}),
        [
            Refused("net/gain", "nothing", "2.0", is_acceptable=False),
            Refused("net/gain", "missing", "float", "structure", is_acceptable=False),
        ],
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
    "the same size in another shape": (
        fields(components={"env_states": np.zeros((3, 4))}),
        [Refused("env_states", "float64 4×3", "float64 3×4", "structure", is_acceptable=False)],
    ),
    "a list for a dict": (
        fields(components={"table": [1, 2]}),
        [Refused("table", "dict of 2", "list of 2", "structure", is_acceptable=False)],
    ),
    # the process
    "which numbers a key stands for": (
        switch("jax_threefry_partitionable", False),
        [Refused("numerics.jax_threefry_partitionable", "True", "False", "numerics")],
    ),
    "dtype promotion": (
        switch("jax_numpy_dtype_promotion", "strict"),
        [
            Refused("numerics.jax_numpy_dtype_promotion", "'standard'", "'strict'", "numerics"),
            Refused("optimizer/tx/traced", "xxh3_128:…", "cannot be traced alone: …"),
        ],
    ),
    "another generator for new keys": (
        switch("jax_default_prng_impl", "rbg"),
        [
            Refused("numerics.jax_default_prng_impl", "'threefry2x32'", "'rbg'", "numerics"),
            Refused("net/dropout/rngs/key", "threefry2x32 key…", "rbg key", "structure", is_acceptable=False),
        ],
    ),
    "64 bits": (
        switch("jax_enable_x64", True),
        [
            Refused("numerics.jax_enable_x64", "False", "True", "numerics"),
            Refused("net/scale", "float32 1 1.0", "float64 1", "structure", is_acceptable=False),
        ],
    ),
}


def grew(old: int, new: int) -> list[str]:
    return [f"the total of steps changed from {old} to {new}."]


GOES_ON: dict[str, GoesOn] = {
    "nothing": GoesOn(lambda setup: None),
    "moved and touched files": GoesOn(moved),
    "a free key": GoesOn(config(track=True)),
    "a free key by a pattern": GoesOn(config(wandb_name="x")),
    "a seed is said to be free": GoesOn(fields(options={"free": ["track", "seed"]})),
    "the order of keys": GoesOn(
        lambda setup: replace(
            setup, config=dict(reversed(setup.config.items())), components={"table": {"b": [1, 2], "a": 1}}
        )
    ),
    "the configuration as a namespace": GoesOn(dressed(as_namespace)),
    "the configuration as objects": GoesOn(dressed(as_objects)),
    "a tuple for a list": GoesOn(section("env", wrappers=("TimeLimit", "RecordEpisodeStatistics"))),
    "NumPy's number": GoesOn(ppo(learning_rate=np.float64(3e-4))),
    "1e2 for 100": GoesOn(config(total=1e2)),
    "another cadence": GoesOn(fields(options={"every": perdure.Every(updates=3)})),
    "a strict run on the same machine": GoesOn(fields(options={"numerics": "strict"})),
    "a larger total, schedules do not depend on it": GoesOn(total(200, "none"), grew(100, 200)),
    "a larger total, schedules are restretched": GoesOn(total(200, "restretch"), grew(100, 200)),
    "a smaller total, schedules are kept": GoesOn(total(50, "keep"), grew(100, 50)),
    "a total where the run stands": GoesOn(total(20, "none"), grew(100, 20)),
    "a policy, and the same total": GoesOn(total(100, "restretch")),
    "a table that grew": GoesOn(fields(components={"table": {"a": 1, "b": [1, 2], "c": 3}})),
}
