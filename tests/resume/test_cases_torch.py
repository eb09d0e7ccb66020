"""Faults that users of PyTorch and Gymnasium reported elsewhere, by their numbers in CASES, and what happens here."""

import json
import random
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
gymnasium = pytest.importorskip("gymnasium")

from tests.conftest import load_beside  # noqa: E402

import perdure  # noqa: E402
from perdure.errors import CommitError, ContractError, DamagedError, UnknownObjectError  # noqa: E402
from perdure.gym import LevelPool  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("global_generators")]

STEPS, UPDATES = 12, 12


class Policy(torch.nn.Module):
    """A policy that keeps its options, and a learning rate that follows from how far it moved (adaptive KL)."""

    def __init__(self, args: Namespace) -> None:
        super().__init__()
        self.args = args
        self.rate = args.learning_rate
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def forward(self, observation: Any) -> Any:
        return torch.distributions.Categorical(logits=self.layers(torch.as_tensor(observation, dtype=torch.float32)))


class Everything:
    """A training as scripts have it: seeds, vector environments that normalise, a policy, Adam."""

    def __init__(self, *, learning_rate: float = 0.05, n_envs: int = 2, total: int = UPDATES) -> None:
        self.args = Namespace(learning_rate=learning_rate, n_envs=n_envs, seed=3)
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(self.args.seed)
        self.envs: Any = gymnasium.make_vec("CartPole-v1", n_envs, vectorization_mode="sync")
        self.envs = gymnasium.wrappers.vector.NormalizeObservation(self.envs)
        self.observation, _ = self.envs.reset(seed=self.args.seed)
        self.policy = Policy(self.args)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=learning_rate)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, total_iters=total)
        self.epsilon, self.is_warm = 1.0, False

    def update(self) -> dict[str, Any]:
        """Acts, learns, and tells what it has seen."""
        loss, ended = torch.zeros(()), 0
        for _ in range(STEPS):
            policy = self.policy(self.observation)
            action = policy.sample()
            if random.random() < self.epsilon:
                action = torch.randint(2, action.shape)
            self.observation, reward, terminated, _, _ = self.envs.step(action.numpy())
            loss = loss - (policy.log_prob(action) * torch.as_tensor(reward)).mean()
            ended += int(terminated.sum())
        if self.is_warm:  # the first rollout is not learned from
            self.policy.rate *= 0.9 if loss.item() > 5 else 1.1
            self.optimizer.param_groups[0]["lr"] = self.policy.rate
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
        self.epsilon, self.is_warm = max(0.1, 0.9 * self.epsilon), True
        return {"loss": loss.item(), "ended": ended, "rate": self.policy.rate, "epsilon": self.epsilon}


LIVE = ("envs", "policy", "optimizer", "schedule")
VALUES = ("observation", "epsilon", "is_warm")


def train(directory: Path, updates: int = UPDATES, *, forget: Any = None, accept: Any = (), **changes: Any) -> Any:
    """Trains, or goes on, until so many updates are done; checkpoints at each, all kept."""
    t = Everything(**changes)
    saving = {"every": perdure.Every(updates=1), "keep": None, "background": False}
    with perdure.Run(directory, config=t.args, accept=accept, **saving) as run:
        restored = run.restore(**{name: getattr(t, name) for name in LIVE + VALUES})
        vars(t).update({name: getattr(restored, name) for name in VALUES})
        if forget is not None and run.resumed:
            forget(t)
        while run.updates < updates:
            row = t.update()
            run.boundary(env_steps=run.env_steps + STEPS, metrics=row, **{name: getattr(t, name) for name in VALUES})
        run.finish()
    return t


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    directory = tmp_path_factory.mktemp("straight") / "run"
    train(directory)
    return directory


@pytest.fixture
def stopped(straight: Path, comparing: Any, tmp_path: Path) -> Path:
    """The same run, stopped half-way."""
    return comparing.stopped_at(straight, UPDATES // 2, tmp_path / "run")


def column(directory: Path, name: str) -> list[Any]:
    return [json.loads(line)[name] for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def dqn() -> Any:
    return load_beside("examples/scripts").load("dqn")


# Resume is not the same run.


def test_case_1_the_script_seeds_again_at_each_of_three_starts_and_no_episode_comes_twice(
    straight: Path, comparing: Any, tmp_path: Path
):
    comparing.stopped_at(straight, 0, tmp_path / "run")
    for updates in (2, 3, 7, UPDATES):
        train(tmp_path / "run", updates)

    assert comparing.differences(straight, tmp_path / "run") == []
    assert sum(column(straight, "ended")) > 4
    assert len(set(column(straight, "loss"))) == UPDATES


@pytest.mark.parametrize("at", range(UPDATES))
def test_case_1_stopped_after_k_updates_for_every_k(at: int, straight: Path, comparing: Any, tmp_path: Path):
    comparing.stopped_at(straight, at, tmp_path / "run")

    train(tmp_path / "run")

    assert comparing.differences(straight, tmp_path / "run") == []


def _statistics(t: Any) -> Any:
    return t.envs.obs_rms


LOST = {
    "case 1: the seed was applied anew": lambda t: torch.manual_seed(3),
    "case 1: the environments began anew": lambda t: t.envs.reset(seed=3),
    "case 2: the normaliser's mean": lambda t: setattr(_statistics(t), "mean", np.zeros(4)),
    "case 2: the normaliser's variance": lambda t: setattr(_statistics(t), "var", np.ones(4)),
    "case 2: the normaliser's count alone": lambda t: setattr(_statistics(t), "count", 1e-4),
    "case 3: Adam's moments": lambda t: t.optimizer.state.clear(),
    "case 4: the rate in an attribute": lambda t: setattr(t.policy, "rate", t.args.learning_rate),
    "case 5: epsilon": lambda t: setattr(t, "epsilon", 1.0),
    "case 8: the observation of other environments": lambda t: setattr(t, "observation", np.zeros_like(t.observation)),
    "case 10: a flag for the warm-up": lambda t: setattr(t, "is_warm", False),
}


@pytest.mark.parametrize("what", LOST)
def test_twin_each_of_these_faults_would_be_seen(what: str, straight: Path, stopped: Path, comparing: Any):
    train(stopped, forget=LOST[what])

    assert comparing.starting_with(comparing.differences(straight, stopped), "policy/")


def test_case_2_the_normaliser_s_mean_variance_and_count_are_in_the_checkpoint_of_the_environments(straight: Path):
    saved = perdure.read(straight / "checkpoints" / f"step_{STEPS * UPDATES:010d}")["envs"]["obs_rms"]

    assert saved["count"] == pytest.approx(2 * (STEPS * UPDATES + 1), rel=1e-5)
    assert saved["mean"].any()
    assert (saved["var"] != 1).all()


def test_case_3_moments_and_their_step_come_back_for_every_parameter(stopped: Path):
    wanted = perdure.read(stopped / "checkpoints" / f"step_{STEPS * UPDATES // 2:010d}")["optimizer"]["state"]
    seen: list[Any] = []

    train(stopped, UPDATES // 2, forget=lambda t: seen.extend(t.optimizer.state.values()))

    assert len(seen) == len(wanted) == 4
    for found, saved in zip(seen, wanted.values() if isinstance(wanted, dict) else wanted, strict=True):
        assert found["step"] == UPDATES // 2 - 1
        assert found["exp_avg"].numpy().tobytes() == saved["exp_avg"].tobytes()
        assert found["exp_avg_sq"].numpy().tobytes() == saved["exp_avg_sq"].tobytes()


def test_case_4_an_adapted_rate_does_not_jump_back(straight: Path, stopped: Path):
    train(stopped)

    rates = column(stopped, "rate")
    assert rates == column(straight, "rate")
    assert abs(rates[UPDATES // 2] / rates[UPDATES // 2 - 1] - 1) == pytest.approx(0.1)
    assert 0.05 not in rates[UPDATES // 2 :]


def test_case_4_a_cache_that_nobody_can_see_into_is_refused_not_left_out(tmp_path: Path):
    class Cache:
        rate = 0.1

    net: Any = torch.nn.Linear(1, 1)
    net.cache = Cache()

    with pytest.raises(UnknownObjectError, match=r"^net/\./cache: no adapter knows a .*Cache"):
        perdure.Run(tmp_path / "run").restore(net=net)


def test_case_5_epsilon_and_a_linear_schedule_go_on_and_another_total_is_refused(straight: Path, stopped: Path):
    with pytest.raises(ContractError, match=r"schedule/total_iters: 12 in the run, 24 here"):
        train(stopped, 2 * UPDATES, total=2 * UPDATES)

    train(stopped)
    assert column(stopped, "epsilon") == column(straight, "epsilon")
    assert column(stopped, "epsilon")[UPDATES // 2] < 0.5


def fill(replay: Any, args: Namespace, steps: int, start: int = 0) -> None:
    for step in range(start, start + steps):
        before, after = np.full(4, step, np.float32), np.full(4, step + 1, np.float32)
        replay.push(args, before, step % 2, step, after, terminated=step % 9 == 8, ended=step % 9 == 8)
        if step > 8:
            replay.prioritise(np.array([step % 8]), np.array([0.1 + step % 5]))


OPTIONS = Namespace(n_step=3, gamma=0.9, batch_size=16, beta=0.4)


def test_case_6_the_replay_is_as_old_as_the_weights_is_not_doubled_and_not_empty(dqn: Any, tmp_path: Path):
    """The live arrays go on changing after the save, which must not reach the checkpoint."""
    replay, net = dqn.Replay(32, 4), torch.nn.Linear(4, 2)
    fill(replay, OPTIONS, 20)
    wanted = {name: np.array(value) for name, value in vars(replay).items() if name != "queue"}
    with perdure.Run(tmp_path / "run", every=perdure.Every(updates=1)) as run:
        run.restore(replay=replay, net=net)
        run.boundary(env_steps=20)
        fill(replay, OPTIONS, 40, start=20)
        torch.nn.init.zeros_(net.weight)

    backs = [dqn.Replay(32, 4), dqn.Replay(32, 4)]
    for back in [*backs, backs[0]]:  # loaded twice, it does not double
        with perdure.Run(tmp_path / "run") as run:
            run.restore(replay=back, net=torch.nn.Linear(4, 2))
        assert back.added == wanted["added"] == 18
        assert all(np.array(getattr(back, name)).tobytes() == value.tobytes() for name, value in wanted.items())
    assert replay.added > 2 * wanted["added"]


def _no_tree(replay: Any) -> None:
    replay.tree[:] = 0
    replay.prioritise(np.arange(32), np.ones(32))


class Mapped:
    """A replay in a file that is mapped into memory."""

    def __init__(self, path: Path, kept: Any = np.array) -> None:
        self.rows, self.kept = np.memmap(path, np.float32, "w+", shape=(4,)), kept

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.kept(self.rows)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows[:] = state["rows"]


@pytest.mark.parametrize("kept", [np.array, np.asanyarray])
def test_case_6_a_file_that_is_mapped_is_as_old_as_the_weights(kept: Any, tmp_path: Path):
    """A copy of it, or the mapped array itself: the file is newer than the checkpoint, and is rolled back."""
    replay = Mapped(tmp_path / "file", kept)
    with perdure.Run(tmp_path / "run", every=perdure.Every(updates=1)) as run:
        run.restore(replay=replay)
        replay.rows[:] = 1
        run.boundary(env_steps=1)
        replay.rows[:] = 2
        replay.rows.flush()

    back = Mapped(tmp_path / "another file", kept)
    with perdure.Run(tmp_path / "run") as run:
        run.restore(replay=back)
    assert back.rows.tolist() == [1, 1, 1, 1]


PRIORITIES: dict[str, Any] = {
    "nothing": lambda replay: None,
    "the tree": _no_tree,
    "max_priority": lambda replay: setattr(replay, "max_priority", 1.0),
    "the queue": lambda replay: replay.queue.clear(),
}


@pytest.mark.parametrize("lost", PRIORITIES)
def test_case_7_the_next_draws_by_priority_are_the_same(lost: str, dqn: Any, tmp_path: Path):
    """Tree, greatest priority and n-step queue; twins that lose one draw otherwise."""
    replay, rng = dqn.Replay(32, 4), np.random.default_rng(1)
    fill(replay, OPTIONS, 50)
    perdure.save(tmp_path / "saved", replay=replay, rng=rng)
    back, again = dqn.Replay(32, 4), np.random.default_rng(2)
    perdure.load(tmp_path / "saved", replay=back, rng=again)

    PRIORITIES[lost](back)

    draws = []
    for each, generator in ((replay, rng), (back, again)):
        fill(each, OPTIONS, 10, start=50)
        places, weights = each.draw(OPTIONS, generator)
        draws.append((places.tolist(), weights.tolist(), each.tree.tobytes(), each.rewards.tobytes()))
    assert (draws[0] == draws[1]) == (lost == "nothing")


@pytest.mark.parametrize("missing", ["observation", "envs"])
def test_case_8_observation_and_environments_come_back_together_or_not_at_all(missing: str, stopped: Path):
    t = Everything()
    weights = t.policy.layers[0].weight.detach().clone()
    parts = {name: getattr(t, name) for name in LIVE + VALUES if name != missing}

    with pytest.raises(ContractError, match=rf"  {missing}: a component in the run, nothing here"):
        perdure.Run(stopped, config=t.args).restore(**parts)
    assert torch.equal(t.policy.layers[0].weight, weights)


class Levels(gymnasium.Env):
    """Each episode is three steps in the next level of a pool."""

    def __init__(self, pool: LevelPool) -> None:
        self.pool = pool
        self.observation_space = gymnasium.spaces.Box(0, 9, (1,))
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.elapsed = 0
        return np.array([self.pool.next()], np.float32), {}

    def step(self, action: Any) -> Any:
        self.elapsed += 1
        return np.array([self.pool.current], np.float32), 0.0, self.elapsed == 3, False, {}


@pytest.mark.parametrize("mode", ["round-robin", "random"])
def test_case_9_the_stream_of_levels_goes_on_and_shows_no_prefix_again(mode: Any, tmp_path: Path):
    def levels(directory: Path, steps: int) -> list[float]:
        env = Levels(LevelPool(range(8), mode=mode, seed=4))
        observation, _ = env.reset(seed=1)
        seen: list[float] = []
        with perdure.Run(directory, every=perdure.Every(updates=1)) as run:
            s = run.restore(env=env, observation=observation, seen=seen)
            observation, seen = s.observation, s.seen
            while run.updates < steps:
                observation, _, terminated, _, _ = env.step(0)
                observation = env.reset()[0] if terminated else observation
                seen = [*seen, float(observation[0])]
                run.boundary(env_steps=run.env_steps + 1, observation=observation, seen=seen)
            run.finish()
        return seen

    straight = levels(tmp_path / "straight", 40)
    for steps in (7, 8, 25, 40):
        stopped = levels(tmp_path / "stopped", steps)

    assert stopped == straight
    assert len(set(straight)) > 5


def test_case_10_two_resumes_of_one_checkpoint_agree_and_so_does_a_resume_of_a_resume(
    straight: Path, stopped: Path, comparing: Any, tmp_path: Path
):
    shutil.copytree(stopped, tmp_path / "again")

    train(stopped)
    train(tmp_path / "again", 8)
    train(tmp_path / "again", 8)  # nothing to do
    train(tmp_path / "again")

    assert comparing.differences(stopped, tmp_path / "again") == []
    assert comparing.differences(straight, stopped) == []


# Files.


def test_case_15_a_path_that_was_loaded_is_not_saved_over_and_what_was_loaded_does_not_hang_on_it(tmp_path: Path):
    net, path = torch.nn.Linear(3, 3), tmp_path / "saved"
    wanted = net.weight.detach().clone()
    perdure.save(path, net=net, tensor=wanted)
    torch.nn.init.zeros_(net.weight)
    tensor = perdure.load(path, net=net, tensor=torch.zeros(3, 3))["tensor"]

    with pytest.raises(CommitError, match=r"saved exists\. Earlier checkpoints are untouched"):
        perdure.save(path, net=net)
    for file in path.iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    shutil.rmtree(path)

    assert torch.equal(net.weight, wanted)
    assert torch.equal(tensor, wanted)
    with torch.no_grad():
        net.weight += 1  # writable, and its own


@pytest.mark.parametrize("component", ["policy", "optimizer", "envs"])
def test_case_16_a_flipped_bit_in_weights_moments_or_environments_is_found_and_named(component: str, stopped: Path):
    newest = stopped / "checkpoints" / f"step_{STEPS * UPDATES // 2:010d}"
    file = newest / f"{component}.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 4
    file.write_bytes(data)

    with pytest.raises(DamagedError, match=rf"{component}\.safetensors"):
        perdure.Run(stopped, config=Everything().args, strict=True).restore(**_all_parts())


def _all_parts() -> dict[str, Any]:
    t = Everything()
    return {name: getattr(t, name) for name in LIVE + VALUES}


@pytest.mark.parametrize("missing", LIVE + VALUES)
def test_case_17_a_component_that_is_missing_or_new_is_an_error_never_silently_fresh(missing: str, stopped: Path):
    parts = _all_parts()
    policy = parts["policy"]
    state = {name: value.clone() for name, value in policy.state_dict().items()}
    parts["another"] = parts.pop(missing)

    with pytest.raises(ContractError) as refusal:
        perdure.Run(stopped, config=Everything().args).restore(**parts)

    assert f"\n  {missing}: " in str(refusal.value)
    assert "\n  another: " in str(refusal.value)
    assert all(torch.equal(value, state[name]) for name, value in policy.state_dict().items())


# People.


def test_case_20_a_changed_option_is_neither_used_nor_ignored_in_silence(straight: Path, stopped: Path):
    """It stands in the options, in the module that keeps them, and in the optimizer: each is named."""
    with pytest.raises(ContractError) as refusal:
        train(stopped, learning_rate=0.01)
    for place in ("algorithm.learning_rate", "policy/./args/learning_rate", "optimizer/groups/0/lr"):
        assert f"{place}: 0.05 in the run, 0.01 here" in str(refusal.value)

    train(stopped)  # nothing was changed by it
    assert column(stopped, "loss") == column(straight, "loss")


def test_case_24_generators_and_step_counts_stay_on_the_cpu_whatever_the_default_device(stopped: Path):
    """The default device `meta` stands for a GPU: whatever a restore allocates there would be lost."""
    t = Everything()
    with perdure.Run(stopped, config=t.args) as run, torch.device("meta"):
        run.restore(**{name: getattr(t, name) for name in LIVE + VALUES})

    steps = [value["step"] for value in t.optimizer.state.values()]
    assert [(step.device.type, step.dtype, step.item()) for step in steps] == [("cpu", torch.float32, 5.0)] * 4
    assert all(value["exp_avg"].device.type == "cpu" for value in t.optimizer.state.values())
    state = torch.get_rng_state()
    assert (state.device.type, state.dtype) == ("cpu", torch.uint8)


def test_case_25_another_number_of_environments_is_refused_by_its_place(stopped: Path):
    with pytest.raises(ContractError) as refusal:
        train(stopped, n_envs=3)

    assert "algorithm.n_envs: 2 in the run, 3 here" in str(refusal.value)
    assert "envs/" in str(refusal.value)
