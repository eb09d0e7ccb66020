"""The checkpointing page's recipes: save, an own callback, resume with another learning rate, inference."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import optax
import pytest
from flax import nnx

import perdure
from perdure import CommitError, ContractError, DamagedError, NoCheckpointError, UsageError
from perdure.nnx import (
    EvalConfig,
    PPOConfig,
    TrainConfig,
    load_checkpoint,
    make_checkpoint_fn,
    make_mlp_actor_critic,
    new_training_state,
    ppo_step,
    train_ppo,
)
from perdure.nnx.envs.gymnax import GymnaxEnvironment
from perdure.nnx.state import make_optimizer

ENV = GymnaxEnvironment("CartPole-v1", max_steps_in_episode=14)
STEPS = 40
PPO = PPOConfig(
    n_envs=4,
    rollout_length=10,
    n_epochs=2,
    n_minibatches=2,
    learning_rate=1e-2,
    gradient_clipping=0.5,
    weight_decay=1e-3,
    total_steps=5 * STEPS,
)
CONFIG = TrainConfig(
    PPO, EvalConfig(every_steps=2 * STEPS, n_envs=3, max_episode_length=20), seed=5, checkpoint_every_steps=STEPS
)


def networks(seed: int = 0, width: int = 8, **options: Any):
    return make_mlp_actor_critic(4, 2, (width,), (8,), nnx.Rngs(seed), action_kind="discrete", **options)


def template(seed: int = 0, **options: Any):
    """The page's template: a new state, with the default learning rate."""
    nets = networks(seed, **options)
    return nets, new_training_state(ENV, nets, PPO.n_envs, seed)


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> tuple[Path, Any]:
    directory = tmp_path_factory.mktemp("straight")
    result = train_ppo(ENV, networks(), CONFIG, checkpoint_fn=make_checkpoint_fn(directory, config=CONFIG))
    return directory, result


def at(directory: Path, steps: int) -> Path:
    return directory / f"step_{steps:010d}"


def test_the_page_saves_at_the_start_at_each_multiple_and_at_the_end(straight):
    directory, result = straight

    assert sorted(path.name for path in directory.iterdir()) == [f"step_{steps:010d}" for steps in range(0, 201, STEPS)]
    assert [entry["step"] for entry in result.eval_history] == [80, 160]
    assert sorted(perdure.read(at(directory, 80))) == [
        "config",
        "contract",
        "env_states",
        "eval_history",
        "network_states",
        "networks",
        "optimizer",
        "rng_key",
        "step",
        "steps_taken",
    ]


@pytest.mark.parametrize("k", range(6))
def test_the_page_resumes_bit_for_bit_into_the_same_directory(straight, tmp_path, toys, k):
    directory, whole = straight
    for steps in range(0, k * STEPS + 1, STEPS):
        shutil.copytree(at(directory, steps), at(tmp_path, steps))
    nets, fresh = template(seed=100 + k)

    checkpoint = load_checkpoint(at(tmp_path, k * STEPS), fresh.networks, fresh.optimizer)
    result = train_ppo(
        ENV,
        nets,
        checkpoint["config"],
        initial_state=checkpoint["training_state"],
        checkpoint_fn=make_checkpoint_fn(tmp_path, config=checkpoint["config"]),
    )

    assert (checkpoint["step"], checkpoint["config"]) == (k * STEPS, CONFIG)
    assert toys.leaves_of_state(result.training_state) == toys.leaves_of_state(whole.training_state)
    assert result.eval_history == whole.eval_history
    assert (result.total_steps, result.total_iterations) == (200, 5)
    for steps in range(0, 201, STEPS):
        assert _files(at(tmp_path, steps)) == _files(at(directory, steps))


def _files(path: Path) -> dict[str, bytes]:
    """Everything in a checkpoint but its time."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.suffix == ".safetensors"}


def test_twin_an_optimizer_whose_moments_are_forgotten_is_found(straight, toys):
    directory, whole = straight
    nets, fresh = template(seed=1)
    state = load_checkpoint(at(directory, 80), nets, fresh.optimizer)["training_state"]
    untouched = nnx.Optimizer(nets, state.optimizer.tx, wrt=nnx.Param)
    result = train_ppo(ENV, nets, CONFIG, initial_state=dataclasses.replace(state, optimizer=untouched))

    assert toys.leaves_of_state(result.training_state) != toys.leaves_of_state(whole.training_state)


def test_the_optimizer_takes_over_the_stored_hyper_parameters_in_place(straight):
    directory, _ = straight
    nets, fresh = template()
    state = load_checkpoint(at(directory, 80), nets, fresh.optimizer)["training_state"]

    assert state.optimizer is fresh.optimizer
    assert state.networks is nets
    assert int(fresh.optimizer.step[...]) == 8
    assert fresh.optimizer.tx is make_optimizer(1e-2, 0.5, 1e-3)


def test_an_own_callback_is_called_with_its_keywords(toys):
    calls = []

    def callback(*, training_state, step):
        calls.append((step, training_state.steps_taken, toys.leaves_of_state(training_state)))

    config = dataclasses.replace(CONFIG, checkpoint_every_steps=2 * STEPS)
    result = train_ppo(ENV, networks(), config, checkpoint_fn=callback)

    assert [call[:2] for call in calls] == [(0, 0), (80, 80), (160, 160), (200, 200)]
    assert calls[-1][2] == toys.leaves_of_state(result.training_state)


def test_saving_changes_nothing(straight, toys):
    assert toys.leaves_of_state(train_ppo(ENV, networks(), CONFIG).training_state) == toys.leaves_of_state(
        straight[1].training_state
    )


def test_a_resumed_run_that_also_calls_back_keeps_its_history(straight, tmp_path):
    """The callback's checkpoints after the resume are those of the training that was never stopped."""

    def stop(metrics, steps):
        if steps == 120:
            raise KeyboardInterrupt

    callback = make_checkpoint_fn(tmp_path / "page", config=CONFIG)
    with pytest.raises(KeyboardInterrupt):
        train_ppo(ENV, networks(), CONFIG, checkpoint_fn=callback, run=tmp_path / "run", log_fn=stop)
    train_ppo(ENV, networks(4), CONFIG, checkpoint_fn=callback, run=tmp_path / "run")

    saved = [perdure.read(at(tmp_path / "page", steps))["eval_history"] for steps in (120, 160)]
    assert saved == [perdure.read(at(straight[0], steps))["eval_history"] for steps in (120, 160)]
    assert [entry["step"] for entry in saved[0]] == [80]


def test_inference_takes_any_number_of_environments_and_any_seed(straight):
    directory, whole = straight
    nets = networks(7)
    other = new_training_state(ENV, nets, 16, 99)
    load_checkpoint(at(directory, 200), other.networks, other.optimizer)
    nets.eval()
    obs = jax.random.normal(jax.random.key(0), (5, 4))
    actions = [nets(nets.initialize_state(5), obs).output.actions.tolist() for _ in range(3)]

    trained = whole.training_state.networks
    trained.eval()
    assert actions == [trained(trained.initialize_state(5), obs).output.actions.tolist()] * 3
    trained.train()


def test_a_loaded_state_steps_and_says_what_it_lacks(straight, toys):
    directory, _ = straight
    nets, fresh = template()
    state = load_checkpoint(at(directory, 80), nets, fresh.optimizer)["training_state"]
    with pytest.raises(AttributeError, match=r"env_states.obs: a checkpoint holds no classes.*load_checkpoint"):
        _ = state.env_states.obs
    assert "UnboundEnvStates(" in repr(state.env_states)

    stepped, _ = ppo_step(ENV, state, PPO)

    assert stepped.steps_taken == 120
    bound = load_checkpoint(at(directory, 80), nets, fresh.optimizer, env=ENV)["training_state"]
    assert bound.env_states.obs.shape == (4, 4)
    again, _ = ppo_step(ENV, bound, PPO)
    assert toys.leaves_of_state(again) == toys.leaves_of_state(stepped)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ppo": {"learning_rate": 1e-3}}, r"algorithm\.ppo\.learning_rate: 0\.01 in the run, 0\.001 here"),
        ({"ppo": {"n_envs": 8}}, r"algorithm\.ppo\.n_envs: 4 in the run, 8 here"),
        ({"ppo": {"total_steps": 40}}, r"horizon\.ppo\.total_steps: 200 in the run, 40 here"),
        ({"seed": 6}, r"seed\.seed: 5 in the run, 6 here"),
        ({"eval": {"enabled": False}}, r"algorithm\.eval\.enabled: True in the run, False here"),
    ],
)
def test_another_training_is_refused_before_it_starts(straight, toys, change, message):
    directory, _ = straight
    nets, fresh = template()
    state = load_checkpoint(at(directory, 80), nets, fresh.optimizer)["training_state"]
    before = toys.leaves_of(nnx.state(nets))

    with pytest.raises(ContractError, match=message) as refusal:
        train_ppo(ENV, nets, _changed(change), initial_state=state)

    assert "--accept" not in str(refusal.value), "nothing is recorded, so nothing can be accepted"
    assert toys.leaves_of(nnx.state(nets)) == before


def _changed(change: dict[str, Any]) -> TrainConfig:
    parts = {
        name: dataclasses.replace(getattr(CONFIG, name), **value) if isinstance(value, dict) else value
        for name, value in change.items()
    }
    return dataclasses.replace(CONFIG, **parts)


def test_another_environment_is_refused(straight):
    directory, _ = straight
    nets, fresh = template()
    state = load_checkpoint(at(directory, 80), nets, fresh.optimizer)["training_state"]

    with pytest.raises(ContractError, match=r"env\.params\.max_steps_in_episode: 14 in the run, 500 here"):
        train_ppo(GymnaxEnvironment("CartPole-v1"), nets, CONFIG, initial_state=state)


def test_a_longer_training_and_a_new_one_may_start_from_a_checkpoint(straight):
    directory, _ = straight
    nets, fresh = template()
    state = load_checkpoint(at(directory, 200), nets, fresh.optimizer)["training_state"]
    longer = train_ppo(ENV, nets, CONFIG, total_steps=240, initial_state=state)
    other = dataclasses.replace(longer.training_state, contract=None)
    changed = _changed({"ppo": {"total_steps": 280, "clip_range": 0.1}})

    assert longer.total_steps == 240
    assert train_ppo(ENV, nets, changed, initial_state=other).total_steps == 280


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 16}, r"networks/layers/1/action/layers/0/kernel: float32 4×8 in the run, float32 4×16 here"),
        ({"normalize_obs": False}, r"network_states: tuple of 2 in the run, 2 named parts here"),
        ({"activation": "tanh"}, r"networks/layers/1/action/layers/0/activation: .*relu.* in the run, .*tanh here"),
    ],
)
def test_another_structure_is_refused_by_leaf_and_nothing_changes(straight, toys, options, message):
    directory, _ = straight
    nets, fresh = template(**options)
    before = toys.leaves_of((nnx.state(nets), nnx.state(fresh.optimizer)))

    with pytest.raises(ContractError, match=message):
        load_checkpoint(at(directory, 80), nets, fresh.optimizer)

    assert toys.leaves_of((nnx.state(nets), nnx.state(fresh.optimizer))) == before


def test_without_a_stored_configuration_the_optimizer_must_be_the_runs(tmp_path):
    _, state = template()
    make_checkpoint_fn(tmp_path)(training_state=state, step=0)
    same, other = template(seed=1)[1], template(seed=1)[1]
    tuned = nnx.Optimizer(other.networks, optax.adam(3e-4), wrt=nnx.Param)

    assert load_checkpoint(at(tmp_path, 0), same.networks, same.optimizer)["config"] is None
    with pytest.raises(ContractError, match=r"optimizer/tx/.*step_size: -0\.0001 in the run, -0\.0003 here"):
        load_checkpoint(at(tmp_path, 0), other.networks, tuned)


def test_an_own_optimizer_is_kept_although_a_configuration_is_stored(tmp_path, toys):
    nets = networks()
    state = dataclasses.replace(
        new_training_state(ENV, nets, 4, 0), optimizer=nnx.Optimizer(nets, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)
    )
    make_checkpoint_fn(tmp_path, config=CONFIG)(training_state=state, step=0)
    target = networks(1)
    own = nnx.Optimizer(target, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)

    load_checkpoint(at(tmp_path, 0), target, own)

    assert toys.leaves_of(nnx.state(own)) == toys.leaves_of(nnx.state(state.optimizer))


def test_a_mapping_is_stored_and_anything_else_refused_at_once(tmp_path):
    nets, state = template()
    make_checkpoint_fn(tmp_path, {"note": "first", "rate": 0.5})(training_state=state, step=3)

    assert load_checkpoint(at(tmp_path, 3), nets, state.optimizer)["config"] == {"note": "first", "rate": 0.5}
    with pytest.raises(UsageError, match=r"make_checkpoint_fn\(config=int\(\.\.\.\)\): a TrainConfig or a mapping"):
        make_checkpoint_fn(tmp_path, 3)  # pyright: ignore[reportArgumentType]


def test_the_directory_is_where_it_was_when_the_callback_was_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    callback = make_checkpoint_fn("here")
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    callback(training_state=template()[1], step=0)

    assert at(tmp_path / "here", 0).is_dir()


def test_the_same_state_again_is_no_error_another_one_is(tmp_path):
    callback = make_checkpoint_fn(tmp_path)
    _, state = template()
    callback(training_state=state, step=0)
    callback(training_state=state, step=0)
    trained, _ = ppo_step(ENV, state, PPO)

    with pytest.raises(CommitError, match=r"step_0000000000: a checkpoint of another state stands there"):
        callback(training_state=trained, step=0)


def test_damage_is_named_and_a_second_save_heals_it(straight, tmp_path):
    directory, _ = straight
    shutil.copytree(at(directory, 80), at(tmp_path, 80))
    file = at(tmp_path, 80) / "networks.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    nets, fresh = template()

    with pytest.raises(DamagedError, match=r"networks\.safetensors: networks/"):
        load_checkpoint(at(tmp_path, 80), nets, fresh.optimizer)

    state = load_checkpoint(at(directory, 80), nets, fresh.optimizer, env=ENV)["training_state"]
    make_checkpoint_fn(tmp_path, config=CONFIG)(training_state=state, step=80)
    assert _files(at(tmp_path, 80)) == _files(at(directory, 80))
    assert (tmp_path / "damaged" / "step_0000000080").is_dir()


def test_what_is_no_checkpoint_of_this_kind_is_refused(tmp_path):
    nets, state = template()
    perdure.save(tmp_path / "other", networks=nets)

    with pytest.raises(NoCheckpointError, match="no such directory"):
        load_checkpoint(tmp_path / "none", nets, state.optimizer)
    with pytest.raises(UsageError, match=r"no component config, env_states, optimizer, steps_taken"):
        load_checkpoint(tmp_path / "other", nets, state.optimizer)
