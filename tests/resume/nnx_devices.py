"""A process whose processor JAX takes for two devices: trains on both and compares; exits 1 if a bit differs.

python nnx_devices.py DIRECTORY
"""

import functools
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 2)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from flax import nnx  # noqa: E402
from jax.sharding import PartitionSpec  # noqa: E402

import perdure  # noqa: E402
from perdure.nnx import (  # noqa: E402
    LSTM,
    CategoricalSampler,
    EvalConfig,
    LoggingLevel,
    Normalizer,
    PPOAdapter,
    PPOConfig,
    Sequential,
    TrainConfig,
    Transition,
    make_mlp_layers,
    ppo_loss,
    train_ppo,
)
from perdure.nnx.devices import AXIS, Devices, mesh_of  # noqa: E402
from perdure.nnx.envs.gymnax import GymnaxEnvironment  # noqa: E402
from perdure.nnx.state import training_key  # noqa: E402

ENV = GymnaxEnvironment("CartPole-v1", max_steps_in_episode=14)
UPDATES = 4
PPO = PPOConfig(
    n_envs=8,
    rollout_length=5,
    n_epochs=2,
    n_minibatches=2,
    learning_rate=1e-2,
    total_steps=UPDATES * 40,
    n_devices=2,
    logging_level=LoggingLevel.ALL,
)


def networks(seed: int) -> Sequential:
    """With statistics, a carry and a random stream: all that must be kept apart or together."""
    rngs = nnx.Rngs(seed)
    heads = PPOAdapter(
        action=Sequential([*make_mlp_layers([8, 2], rngs), CategoricalSampler(rngs)]),
        value=Sequential(make_mlp_layers([8, 1], rngs)),
    )
    return Sequential([Normalizer(4), LSTM(4, 8, rngs), heads])


def config(**changes: Any) -> TrainConfig:
    return TrainConfig(
        replace(PPO, **changes),
        EvalConfig(every_steps=80, n_envs=3, max_episode_length=20),
        seed=3,
        checkpoint_every_steps=40,
    )


def states(run: Path) -> dict[str, Any]:
    """Checkpoint -> its leaves."""
    return {path.name: _bits(perdure.read(path)) for path in sorted((run / "checkpoints").iterdir())}


def _bits(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _bits(child) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return [_bits(child) for child in node]
    return type(node).__name__, str(getattr(node, "dtype", "")), repr(getattr(node, "tolist", lambda: node)())


def check_resumes(directory: Path) -> None:
    """Every boundary, from other networks; and the metrics rows."""
    train = functools.partial(train_ppo, ENV)
    keep = {"every": perdure.Every(env_steps=40), "keep": None}
    straight = directory / "straight"
    _train(straight, 0, keep)
    whole = states(straight)
    assert len(whole) == UPDATES + 1
    for k in range(1, UPDATES):
        run = directory / f"stopped at {k}"
        shutil.copytree(straight, run)
        for name in sorted(whole)[k + 1 :]:
            shutil.rmtree(run / "checkpoints" / name)
        _train(run, 100 + k, keep)
        assert states(run) == whole, f"resumed from {k}"
        rows = [(path / "metrics.jsonl").read_bytes() for path in (straight, run)]
        assert rows[0] == rows[1]
    plain = train(networks(0), config(logging_level=LoggingLevel.NONE)).training_state
    final = perdure.read(straight / "checkpoints" / sorted(whole)[-1])
    trained: Any = plain.networks
    kernel = final["networks"]["layers"][2]["action"]["layers"][0]["kernel"]
    assert np.array_equal(kernel, np.asarray(trained.layers[2].action.layers[0].kernel[...]))
    assert trained.layers[0].count() == UPDATES * 40


def _train(run: Path, seed: int, keep: dict[str, Any]) -> None:
    settings = config()
    if not (run / "run.json").exists():
        from perdure.nnx.training import seed_process

        seed_process(3, run)
    with perdure.Run(run, config=settings, horizon="ppo.total_steps", schedules="none", **keep) as opened:
        train_ppo(ENV, networks(seed), settings, run=opened)


def check_devices_differ() -> None:
    """No two environments, on whatever device, live the same life."""
    state = train_ppo(ENV, networks(0), config()).training_state
    assert len({row.tobytes() for row in np.asarray(state.env_states.obs)}) == PPO.n_envs
    streams = [node for _, node in nnx.iter_graph(state.networks) if isinstance(node, nnx.RngStream)]
    fresh = [node for _, node in nnx.iter_graph(networks(0)) if isinstance(node, nnx.RngStream)]
    for stream, before in zip(streams, fresh, strict=True):
        assert (jax.random.key_data(stream.key[...]) == jax.random.key_data(before.key[...])).all(), "keys are common"


def check_gradient() -> None:
    """The averaged gradient of two halves is the gradient of the whole, advantages normalised over both."""
    nets = networks(1)
    key = training_key(0)
    shape = (PPO.rollout_length, PPO.n_envs)
    draw = [jax.random.normal(jax.random.fold_in(key, n), (*shape, *size)) for n, size in enumerate([(4,), (), ()])]
    actions = jax.random.randint(key, shape, 0, 2)
    extras = ({"input": draw[0]}, (), {"action": ((), {"raw_action": actions}), "value": ((),)})
    done = jax.random.bernoulli(key, 0.2, shape)
    rollout = Transition(draw[0], jnp.full(shape, -0.7), draw[1], done, draw[2], extras)
    graphdef, params, rest = nnx.split(nets, nnx.Param, ...)
    carries = nets.initialize_state(PPO.n_envs)

    def gradient(params: Any, carries: Any, rollout: Transition, devices: Devices) -> Any:
        def loss(params: Any) -> Any:
            return ppo_loss(nnx.merge(graphdef, params, rest, copy=True), carries, rollout, PPO, devices)[0]

        return devices.mean(jax.grad(loss)(params))

    whole = gradient(params, carries, rollout, Devices(1))
    by_env = PartitionSpec(None, AXIS)
    split = jax.shard_map(
        functools.partial(gradient, devices=Devices(2)),
        mesh=mesh_of(2),
        in_specs=(PartitionSpec(), PartitionSpec(AXIS), by_env),
        out_specs=PartitionSpec(),
        check_vma=False,
    )(params, carries, rollout)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(split), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6)


def check_compilations() -> None:
    """An iteration is compiled once, although the second one gets arrays that the first one placed."""
    compiled = []

    def note(event: str, duration_secs: float, **facts: Any) -> None:
        if "backend_compile" in event:
            compiled.append(facts.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(note)
    train_ppo(ENV, networks(0), config())
    assert compiled.count("jit(_iterate)") == 1, compiled


def check_messages() -> None:
    """Too many devices are refused before anything is trained."""
    message = r"PPOConfig.n_devices=4, but JAX has 2 cpu device\(s\).*config.update\(.jax_num_cpu_devices., 4\)"
    with pytest.raises(ValueError, match=message):
        train_ppo(ENV, networks(0), config(n_devices=4))


if __name__ == "__main__":
    check_compilations()
    check_gradient()
    check_devices_differ()
    check_messages()
    check_resumes(Path(sys.argv[1]))
    print("equal")
