"""`perdure eval`: the same numbers for the same seed, after everything the policy was trained for was compared."""

import importlib
import json
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

import gymnasium
import torch

import perdure
import perdure.gym

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("global_generators")]

TRAIN = ("train", "torch-ppo", "--env", "CartPole-v1", "--n-envs", 2, "--n-steps", 8, "--n-minibatches", 2)

ENTRY = '''
import gymnasium
import numpy as np
import torch
from gymnasium import spaces

import perdure.gym


class Maze(gymnasium.Env):
    """Ends after five steps; the reward is the action."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(0, 1, (3,)), spaces.Discrete(2)
        self.pool = perdure.gym.LevelPool(["levels/a.txt", "levels/b.txt"])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pool.next()
        self.steps = 0
        return self.np_random.random(3).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        return self.np_random.random(3).astype(np.float32), float(action), self.steps == 5, False, {}


gymnasium.envs.registration.registry.pop("perdure/Maze-v0", None)
gymnasium.register("perdure/Maze-v0", Maze, disable_env_checker=True)


def player(env):
    agent = torch.nn.Linear(3, 2)

    def act(observation, info):
        return int(torch.distributions.Categorical(logits=agent(torch.from_numpy(observation))).sample())

    return perdure.gym.Player({"agent": agent}, act, contract={"env": {"rules": 2}})


def forgetful(env):
    made = player(env)
    return perdure.gym.Player(made.targets, made.act)


def wrong(env):
    return None
'''


@pytest.fixture(scope="session")
def torch_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a tiny training by `perdure train torch-ppo`."""
    from perdure.cli.main import main

    place = tmp_path_factory.mktemp("torch")
    states = random.getstate(), np.random.get_state()
    words = [*TRAIN, "--total-timesteps", 48, "--hidden-sizes", 4, "--run", place / "run"]
    assert main([str(word) for word in words]) == 0
    random.setstate(states[0])
    np.random.set_state(states[1])
    assert main(["export", str(place / "run"), "--to", str(place / "policy")]) == 0
    return place / "policy"


@pytest.fixture
def maze_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a script, with an agent of its own and a pool of levels."""

    (tmp_path / "levels").mkdir()
    for name in "ab":
        (tmp_path / "levels" / f"{name}.txt").write_text(name)
    (tmp_path / "my_agent.py").write_text(ENTRY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_agent", raising=False)
    maze = importlib.import_module("my_agent").Maze
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        agent = torch.nn.Linear(3, 2)
    with perdure.Run(tmp_path / "run", policy=["agent"], contract={"env": {"rules": 2}}) as run:
        run.restore(agent=agent, env=gymnasium.make("perdure/Maze-v0"))
        assert maze.__name__ == "Maze"
        return run.export_policy(tmp_path / "policy")


def test_a_role_and_a_run_s_checkpoint_are_played_as_the_policy_is(perdure_cli, torch_policy: Path, tmp_path: Path):
    run, words = torch_policy.parent / "run", ("--episodes", 2, "--json")
    assert perdure_cli("promote", run, "--as", "production", "--to", tmp_path / "roles").code == 0
    played = [
        json.loads(perdure_cli("eval", place, *words).out)
        for place in (torch_policy, tmp_path / "roles" / "production", f"{run}@latest", f"{run}@0")
    ]
    paths = [document.pop("policy") for document in played]

    assert played[0] == played[1] == played[2] != played[3]
    assert paths[1] == str(perdure.policy_path(tmp_path / "roles", "production"))
    assert paths[2] == str(run / "checkpoints" / "step_0000000048")


def test_the_same_seed_gives_the_same_numbers_and_another_one_others(perdure_cli, torch_policy: Path):
    first, again, other = (
        json.loads(perdure_cli("eval", torch_policy, "--episodes", 4, "--seed", seed, "--json").out)
        for seed in (1, 1, 2)
    )

    assert first == again
    assert first["returns"] != other["returns"]
    assert (first["episodes"], len(first["returns"]), first["env"]) == (4, 4, "CartPole-v1")
    assert first["return_mean"] == pytest.approx(np.mean(first["returns"]))
    assert first["return_std"] == pytest.approx(np.std(first["returns"]))


def test_it_is_what_the_trainer_s_own_evaluation_gives(perdure_cli, torch_policy: Path):
    from perdure.torch.actions import actions_of
    from perdure.torch.environments import factory_of
    from perdure.torch.evaluation import evaluate
    from perdure.torch.policies import build, config_of

    policy = perdure.Policy(torch_policy)
    config = replace(config_of(policy), seed=3, eval_episodes=4)
    factory = factory_of("CartPole-v1", config)
    env = factory()
    networks = policy.load(networks=build(env, config))["networks"]
    expected = evaluate(networks, actions_of(env.action_space), factory, config, 0)
    actual = json.loads(perdure_cli("eval", torch_policy, "--episodes", 4, "--seed", 3, "--json").out)

    assert expected["eval/return_mean"] == actual["return_mean"]


def drawn_so_far() -> tuple:
    """Where the process's generators stand."""
    numpy = {name: str(value) for name, value in np.random.get_state(legacy=False).items()}
    return (
        random.getstate(),
        numpy,
        np.random.get_state(legacy=False)["state"]["key"].tobytes(),
        torch.get_rng_state().numpy().tobytes(),
    )


def test_no_generator_of_the_process_is_drawn_from(perdure_cli, torch_policy: Path):
    before = drawn_so_far()
    result = perdure_cli("eval", torch_policy, "--episodes", 2)
    after = drawn_so_far()

    assert result.code == 0
    assert before == after


def test_another_environment_is_a_mismatch(perdure_cli, torch_policy: Path):
    result = perdure_cli("eval", torch_policy, "--env", "Acrobot-v1")

    assert result.code == 3
    assert "the policy was trained for something else: 4 differences; nothing was changed." in result.err
    assert "environment.action_space: 'Discrete(2)' in the run, 'Discrete(3)' here." in result.err
    assert "env.env_id: 'CartPole-v1' in the run, 'Acrobot-v1' here." in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--episodes", 0), "--episodes 0: a whole number from 1."),
        (("--seed", -1), "--seed -1: a whole number from 0"),
        (("--env", "Nowhere-v0"), "environment 'Nowhere-v0' cannot be made"),
        (("--entry", "nothing"), "--entry nothing: MODULE:FUNCTION, such as my_agent:player."),
        (("--entry", "nowhere:player"), "--entry nowhere:player: No module named 'nowhere'."),
    ],
)
def test_bad_words(perdure_cli, torch_policy: Path, words: tuple[object, ...], message: str):
    result = perdure_cli("eval", torch_policy, *words)

    assert result.code == 2
    assert message in result.err


def test_a_checkpoint_and_a_run_are_no_policies(perdure_cli, torch_policy: Path):
    run = torch_policy.parent / "run"
    checkpoint = perdure_cli("eval", run / "checkpoints" / "step_0000000048")
    whole = perdure_cli("eval", run)

    assert (checkpoint.code, whole.code) == (2, 2)
    assert "step_0000000048: a checkpoint, not a policy. Make a policy of it: perdure export" in checkpoint.err
    assert "a run, not a policy. Make a policy of it: perdure export" in whole.err


def test_a_flipped_bit_is_found(perdure_cli, torch_policy: Path, tmp_path: Path, flip):
    copy = shutil.copytree(torch_policy, tmp_path / "copy")
    flip(copy / "networks.safetensors")
    result = perdure_cli("eval", copy)

    assert result.code == 4
    assert "copy/networks.safetensors: " in result.err


def test_a_network_of_one_s_own(perdure_cli, maze_policy: Path):
    words = ("eval", maze_policy, "--entry", "my_agent:player", "--episodes", 6, "--json")
    first, again, other = (json.loads(perdure_cli(*words, "--seed", seed).out) for seed in (1, 1, 2))

    assert first == again
    assert first["returns"] != other["returns"]
    assert (first["env"], first["length_mean"], first["cut_off"]) == ("perdure/Maze-v0", 5, 0)
    assert json.loads(perdure_cli(*words, "--max-length", 3).out)["cut_off"] == 6


def test_without_an_entry_nobody_can_build_it(perdure_cli, maze_policy: Path):
    result = perdure_cli("eval", maze_policy)

    assert result.code == 2
    assert (
        "its networks (agent) are a script's, and nobody here can build them. Give --entry MODULE:FUNCTION"
        in result.err
    )


def test_a_script_s_checkpoint_whose_policy_nobody_named(perdure_cli, tmp_path: Path):
    """`eval` has no --components; the message says what there is instead."""
    with perdure.Run(tmp_path / "run") as run:
        run.restore(agent=torch.nn.Linear(3, 2))
    result = perdure_cli("eval", f"{tmp_path / 'run'}@latest")

    assert result.code == 2
    assert "by Run(policy=…) in the script, or export them first with perdure export RUN --to PATH" in result.err


def test_a_changed_level_and_a_missing_key_are_mismatches(perdure_cli, maze_policy: Path):
    forgetful = perdure_cli("eval", maze_policy, "--entry", "my_agent:forgetful")
    (maze_policy.parent / "levels" / "b.txt").write_text("other")
    changed = perdure_cli("eval", maze_policy, "--entry", "my_agent:player")

    assert (forgetful.code, changed.code) == (3, 3)
    assert "env.rules: 2 in the run, nothing here." in forgetful.err
    assert "environment.levels/1: " in changed.err
    assert "Play the levels that it was trained on, byte for byte." in changed.err


def test_an_entry_that_gives_something_else(perdure_cli, maze_policy: Path):
    result = perdure_cli("eval", maze_policy, "--entry", "my_agent:wrong")

    assert result.code == 2
    assert "the entry gave a NoneType, not a perdure.gym.Player." in result.err


NORMALIZED = (*TRAIN, "--total-timesteps", 64, "--hidden-sizes", 4, "--wrappers", "normalize")


def test_statistics_of_each_environment_apart_are_no_part_of_a_policy(perdure_cli, tmp_path: Path):
    assert perdure_cli(*NORMALIZED, "--run", tmp_path / "run").code == 0
    exported = perdure_cli("export", tmp_path / "run", "--to", tmp_path / "policy")
    assert "not in the policy: each of 2 environments has statistics of its own" in exported.err

    result = perdure_cli("eval", tmp_path / "policy")

    assert result.code == 2
    assert "trained behind NormalizeObservation, whose running statistics are not in the policy" in result.err


def test_statistics_of_one_environment_are_and_an_evaluation_applies_them(perdure_cli, tmp_path: Path):
    """The same as by hand; by statistics that begin anew, it is not."""
    from perdure.torch.policies import build, config_of

    words = (*NORMALIZED, "--n-envs", 1, "--learning-rate", 0.05, "--no-anneal-lr", "--run", tmp_path / "run")
    assert perdure_cli(*words).code == 0
    exported = perdure_cli("export", tmp_path / "run", "--to", tmp_path / "policy")
    assert (exported.code, exported.err) == (0, "")
    assert "a policy (evaluation only) of networks, observation_normaliser, step 64" in exported.out
    assert perdure_cli("verify", tmp_path / "policy").code == 0
    assert "observation-normaliser" in perdure_cli("show", tmp_path / "policy").out
    document = json.loads(perdure_cli("eval", tmp_path / "policy", "--episodes", 1, "--seed", 3, "--json").out)
    again = json.loads(perdure_cli("eval", tmp_path / "policy", "--episodes", 1, "--seed", 3, "--json").out)

    policy = perdure.Policy(tmp_path / "policy")
    env = gymnasium.make("CartPole-v1")
    loaded = policy.load(networks=build(env, config_of(policy)))
    seed = int(np.random.SeedSequence([3, 0]).generate_state(1)[0]) >> 1

    def plays(observed) -> float:
        observation, _ = env.reset(seed=seed)
        total, is_over = 0.0, False
        while not is_over:
            with torch.no_grad():
                action = loaded["networks"].policy(torch.from_numpy(observed(observation))[None]).argmax()
            observation, reward, terminated, truncated, _ = env.step(int(action))
            total, is_over = total + float(reward), terminated or truncated
        return total

    fresh = gymnasium.wrappers.NormalizeObservation(env)
    assert document == again
    assert document["returns"] == [plays(loaded["observation_normaliser"])]
    assert document["returns"] != [plays(fresh.observation)]


NORMALIZED_ENTRY = """
import numpy as np
from gymnasium.wrappers import NormalizeObservation

import perdure.gym

SEEN = []


def act(observation, info):
    SEEN.append(observation.copy())
    return int(observation[2] > 0)


def bare(env):
    return perdure.gym.Player({"weights": np.ones(3)}, act)


def wrapped(env):
    return perdure.gym.Player({"weights": np.ones(3)}, act, env=NormalizeObservation(env))
"""


def test_a_player_sees_what_its_run_saw_whether_it_brings_the_wrapper_or_not(
    perdure_cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A vector's wrapper, in an evaluation of one environment; its statistics stay as they are."""
    (tmp_path / "normalized_entry.py").write_text(NORMALIZED_ENTRY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "normalized_entry", raising=False)
    envs = gymnasium.wrappers.vector.NormalizeObservation(
        perdure.gym.make_vec([lambda: gymnasium.make("CartPole-v1")] * 2)
    )
    with perdure.Run(tmp_path / "run", policy=["weights"]) as run:
        run.restore(weights=np.ones(3), envs=envs)
        envs.reset(seed=1)
        for _ in range(30):
            envs.step(np.array([0, 1]))
        run.export_policy(tmp_path / "policy", weights=np.ones(3))
    normaliser = perdure.Policy(tmp_path / "policy").normaliser
    assert normaliser is not None

    results = []
    for name in ("bare", "wrapped"):
        words = ("--entry", f"normalized_entry:{name}", "--episodes", 2, "--json")
        result = perdure_cli("eval", tmp_path / "policy", *words)
        assert result.code == 0, result.err
        seen = sys.modules["normalized_entry"].SEEN
        results.append((json.loads(result.out), np.array(seen)))
        seen.clear()
    assert results[0][0] == results[1][0]
    assert np.array_equal(results[0][1], results[1][1])
    seed = int(np.random.SeedSequence(0).generate_state(3)[0] >> 1)
    first, _ = gymnasium.make("CartPole-v1").reset(seed=seed)
    assert results[0][1][0].tobytes() == normaliser(first).tobytes()


def test_twin_an_environment_of_other_spaces_is_still_refused(perdure_cli, tmp_path: Path):
    words = (*NORMALIZED, "--n-envs", 1, "--run", tmp_path / "run")
    assert perdure_cli(*words).code == 0
    perdure_cli("export", tmp_path / "run", "--to", tmp_path / "policy")

    refused = perdure_cli("eval", tmp_path / "policy", "--env", "MountainCar-v0")

    assert refused.code == 3
    assert "environment.observation_space" in refused.err


def test_a_policy_of_a_script_that_calls_the_trainer(perdure_cli, tmp_path: Path):
    from perdure.torch import PPOConfig, train

    config = PPOConfig(total_timesteps=16, n_envs=2, n_steps=8, n_minibatches=2, hidden_sizes=(4, 3), lstm_size=5)
    train("CartPole-v1", config, run=tmp_path / "run")
    words = ("export", tmp_path / "run", "--to", tmp_path / "policy", "--components", "networks")
    assert perdure_cli(*words).code == 0

    result = perdure_cli("eval", tmp_path / "policy", "--episodes", 2, "--max-length", 5)

    assert result.code == 0
    assert "over 2 episodes of CartPole-v1 (seed 0)" in result.out


def test_a_policy_of_the_trainer_with_jax(perdure_cli, trained: Path, tmp_path: Path):
    assert perdure_cli("export", trained, "--to", tmp_path / "policy").code == 0
    words = ("eval", tmp_path / "policy", "--episodes", 3, "--max-length", 8, "--json")
    first, again, other = (json.loads(perdure_cli(*words, "--seed", seed).out) for seed in (1, 1, 2))
    refused = perdure_cli(*words, "--env", "Acrobot-v1")

    assert first == again
    assert (first["episodes"], first["seed"], other["seed"]) == (3, 1, 2)
    assert refused.code == 3
    assert "env.env_id: 'CartPole-v1' in the run, 'Acrobot-v1' here." in refused.err
