"""PPO, read from top to bottom: build, restore, collect, estimate, update, evaluate, save."""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor, nn

from perdure import Run, UsageError
from perdure.torch.actions import Actions, Choices, actions_of
from perdure.torch.config import PPOConfig
from perdure.torch.environments import (
    MASK,
    Factory,
    autoreset_mode,
    check_environments,
    factory_of,
    is_image,
    masks_in,
    step,
    vector_of,
)
from perdure.torch.evaluation import check_evaluation, evaluate
from perdure.torch.loss import Judged, Taught, ppo_loss
from perdure.torch.networks import ActorCritic, Carry
from perdure.torch.state import Carried, Rollout, TrainingState

LogFn = Callable[[dict[str, Any], int], None]
"""Called with an update's metrics (flat names, plain numbers) and the env-steps taken."""

HORIZON = "total_timesteps"
"""The field that says how long to train."""

FREE = ("eval_every_steps", "eval_episodes", "eval_max_length")
"""Fields that may change when a run is resumed: they leave no trace in it."""

PARTS = ("loss/policy", "loss/value", "loss/entropy", "loss/approx_kl", "loss/clip_fraction")
"""Names of what `ppo_loss` tells of a minibatch, which are logged."""


@dataclass(frozen=True)
class TrainResult:
    """What a training leaves."""

    networks: ActorCritic
    """The trained policy."""
    metrics: dict[str, Any]
    """Of the last update."""
    total_steps: int
    """Env-steps taken, those before a resume included."""


@dataclass(frozen=True)
class _Task:
    """What does not change."""

    config: PPOConfig
    """The options."""
    actions: Actions
    """How the policy acts."""
    mode: AutoresetMode
    """When the environments begin anew."""
    factory: Factory | None
    """Makes environments to evaluate in."""
    log_fn: LogFn | None
    """As in `train`."""


def train(
    environments: str | Factory | VectorEnv[Any, Any, Any],
    config: PPOConfig | None = None,
    *,
    run: Run | str | Path | None = None,
    log_fn: LogFn | None = None,
) -> TrainResult:
    """Train an actor and a critic by PPO until `config.total_timesteps` env-steps are taken.

    With a run, the training is saved as it goes, and picked up where the run stands: the result, every number of it, is
    the one of a training that was never interrupted. A run that has reached its total returns at once.

    Args:
        environments: Gymnasium's id, a function that makes one environment, or a vector environment, which is reset
            here and not closed.
        config: The options; their defaults if None.
        run: An open run, or the directory of one, which is then saved every ten minutes.
        log_fn: Called once an update, before it may be saved: an update that is interrupted in between is repeated and
            logged again.

    Raises:
        UsageError: If the environments do not fit the trainer or the options; nothing was trained or written.
        perdure.PerdureError: What opening or restoring the run raises.
        FloatingPointError: If a reward, an observation, a loss or a gradient is NaN or infinite; no parameter was
            changed by it, and the last checkpoint is from before.
    """
    config = config or PPOConfig()
    made = factory_of(environments, config) if isinstance(environments, str) else environments
    factory = None if isinstance(made, VectorEnv) else made
    envs = made if isinstance(made, VectorEnv) else vector_of(made, config)
    try:
        check_environments(envs, config)
        check_evaluation(envs, factory, config)
        task = _Task(config, actions_of(envs.single_action_space), autoreset_mode(envs), factory, log_fn)
        with _threads(config.n_threads):
            state = _start(task, envs)
            if run is None or isinstance(run, Run):
                return _train(task, state, run)
            _seed_process(config.seed, run)
            schedules = None if config.anneal_lr else "none"
            with Run(run, config=config, horizon=HORIZON, schedules=schedules, free=FREE) as opened:
                return _train(task, state, opened)
    finally:
        if factory is not None:
            envs.close()


def _train(task: _Task, state: TrainingState, run: Run | None) -> TrainResult:
    """The loop itself, from where the run stands, if there is one."""
    config, metrics = task.config, {}
    if run is not None:
        metrics = _restore(state, run)
    while state.env_steps < config.total_timesteps:
        remaining = 1 - state.env_steps / config.total_timesteps if config.anneal_lr else 1
        for group in state.optimizer.param_groups:
            group["lr"] = config.learning_rate * remaining
        rollout, metrics = collect(task, state)
        metrics |= update(task, state, rollout)
        before, state.env_steps = state.env_steps, state.env_steps + config.steps_per_update
        every = config.eval_every_steps
        if task.factory is not None and every and state.env_steps // every > before // every:
            metrics |= evaluate(state.networks, task.actions, task.factory, config, state.env_steps)
        if task.log_fn is not None:
            task.log_fn(metrics, state.env_steps)
        if run is not None:
            run.boundary(env_steps=state.env_steps, carried=state.carried, metrics=metrics)
    if run is not None:
        run.finish()
    return TrainResult(state.networks, metrics, state.env_steps)


def _restore(state: TrainingState, run: Run) -> dict[str, Any]:
    """Begins the run or resumes it; returns the metrics of its last update."""
    restored = run.restore(
        networks=state.networks,
        optimizer=state.optimizer,
        envs=state.envs,
        action_rng=state.action_rng,
        shuffle_rng=state.shuffle_rng,
        carried=state.carried,
    )
    state.carried, state.env_steps = restored.carried, restored.env_steps
    last = (run.metrics_rows() or [{}])[-1]
    return {name: value for name, value in last.items() if name not in ("boundary", "env_steps", "updates")}


def _start(task: _Task, envs: VectorEnv[Any, Any, Any]) -> TrainingState:
    """A fresh training: everything that is drawn comes from the seed."""
    config, space = task.config, envs.single_observation_space
    for_networks, *for_generators = np.random.SeedSequence(config.seed).spawn(3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(for_networks.generate_state(1)[0]))
        networks = ActorCritic(
            space.shape or (),
            task.actions.n_outputs,
            hidden_sizes=config.hidden_sizes,
            lstm_size=config.lstm_size,
            has_scale=task.actions.has_scale,
            is_image=is_image(space),
        ).to(config.device)
    optimizer = torch.optim.Adam(networks.parameters(), lr=config.learning_rate, eps=1e-5, fused=True)
    generators = [np.random.Generator(np.random.PCG64(seed)) for seed in for_generators]
    return TrainingState(networks, optimizer, envs, *generators, carried=_first(task, envs, networks))


def _first(task: _Task, envs: VectorEnv[Any, Any, Any], networks: ActorCritic) -> Carried:
    observation, info = envs.reset(seed=task.config.seed)
    n_envs, carry = envs.num_envs, networks.empty_carry(envs.num_envs)
    return Carried(
        observation=np.array(observation, np.uint8 if networks.is_image else np.float32),
        action_mask=_masks(task.actions, info, n_envs) if task.config.mask_actions and MASK in info else None,
        memory=None if carry is None else _to_numpy(carry),
        starts=np.ones(n_envs, bool),
        resets=np.zeros(n_envs, bool),
        returns=np.zeros(n_envs),
        lengths=np.zeros(n_envs, np.int64),
    )


def _masks(actions: Actions, info: dict[str, Any], n_envs: int) -> np.ndarray:
    if not isinstance(actions, Choices):
        raise UsageError(f"info['{MASK}']: continuous actions cannot be masked. Set mask_actions=False.")
    return masks_in(info, n_envs, actions.sizes)


class _Episodes:
    """Rewards and lengths of the episodes under way, and of those that ended in a rollout."""

    def __init__(self, carried: Carried) -> None:
        self.returns, self.lengths = carried.returns.copy(), carried.lengths.copy()
        self.ended: list[tuple[float, int]] = []

    def add(self, rewards: np.ndarray, dones: np.ndarray, resets: np.ndarray) -> None:
        """Takes note of a step."""
        self.returns += rewards
        self.lengths += ~resets
        if dones.any():
            self.ended += zip(self.returns[dones].tolist(), self.lengths[dones].tolist(), strict=True)
            self.returns[dones], self.lengths[dones] = 0, 0

    def metrics(self) -> dict[str, Any]:
        """Their number, and means if there are any."""
        found: dict[str, Any] = {"rollout/episodes": len(self.ended)}
        if self.ended:
            returns, lengths = zip(*self.ended, strict=True)
            found |= {"rollout/return_mean": float(np.mean(returns)), "rollout/length_mean": float(np.mean(lengths))}
        return found


@torch.no_grad()
def collect(task: _Task, state: TrainingState) -> tuple[Rollout, dict[str, Any]]:
    """Steps the environments `n_steps` times, and estimates how much better than expected each action was.

    The critic is not needed while they step: it looks at everything at once afterwards.
    """
    config, carried, networks = task.config, state.carried, state.networks
    n_steps, n_envs, device = config.n_steps, config.n_envs, config.device
    observations = np.empty((n_steps + 1, *carried.observation.shape), carried.observation.dtype)
    rewards, dones = np.zeros((n_steps, n_envs)), np.zeros((n_steps, n_envs), bool)
    terminations, starts, resets = np.zeros_like(dones), np.zeros((n_steps + 1, n_envs), bool), np.zeros_like(dones)
    noise = torch.from_numpy(task.actions.noise(state.action_rng, n_steps, n_envs)).to(device).unbind()
    rows = torch.from_numpy(observations).unbind()
    memory = None if carried.memory is None else _to_tensors(carried.memory, device)
    first_memory, mask, pending, episodes = memory, carried.action_mask, carried.resets, _Episodes(carried)
    seen, outputs, actions, masks, finals = [], [], [], [], []
    observations[0], starts[0] = carried.observation, carried.starts
    for t in range(n_steps):
        features, memory = _see(networks, rows[t], memory, starts[t], device)
        output = networks.policy(features)
        legal = None if mask is None else torch.from_numpy(mask).to(device)
        action = task.actions.sample(output, noise[t], legal, networks.log_std)
        stepped = step(state.envs, task.actions.to_environment(action.cpu().numpy()), task.mode)
        seen.append(features), outputs.append(output), actions.append(action), masks.append(legal)
        done = stepped.terminated | stepped.truncated
        observations[t + 1], rewards[t], dones[t], terminations[t] = (
            stepped.observation, stepped.reward, done, stepped.terminated,
        )  # fmt: skip
        resets[t] = pending
        episodes.add(stepped.reward, done, pending)
        for index, last in stepped.final.items():
            finals.append((t, index, _see_last(networks, last, memory, index, device)))
        starts[t + 1] = pending if task.mode is AutoresetMode.NEXT_STEP else done
        pending = done if task.mode is AutoresetMode.NEXT_STEP else pending
        mask = None if mask is None else _masks(task.actions, stepped.info, n_envs)
    _check_finite(observations, rewards)
    seen.append(_see(networks, rows[n_steps], memory, starts[n_steps], device)[0])
    values = networks.value(torch.stack(seen)).squeeze(-1).cpu().numpy()
    after = values[1:].copy()
    if finals:
        steps, indices, last_seen = zip(*finals, strict=True)
        after[list(steps), list(indices)] = networks.value(torch.stack(last_seen)).squeeze(-1).cpu().numpy()
    advantages = advantages_of(rewards, values[:-1], np.where(terminations, 0, after), dones, config)
    state.carried = Carried(
        observations[n_steps].copy(),
        mask,
        None if memory is None else _to_numpy(memory),
        starts[n_steps].copy(),
        pending.copy(),
        episodes.returns,
        episodes.lengths,
    )
    taken, legal = torch.stack(actions), None if carried.action_mask is None else torch.stack(masks)
    log_probs, _ = task.actions.judge(torch.stack(outputs), taken, legal, networks.log_std)
    rollout = Rollout(
        torch.from_numpy(observations[:n_steps]).to(device),
        legal,
        taken,
        log_probs,
        torch.from_numpy(values[:-1]).to(device),
        torch.from_numpy(advantages).to(device),
        torch.from_numpy(advantages + values[:-1]).to(device),
        torch.from_numpy(starts[:n_steps]).to(device),
        ~resets if resets.any() else None,
        first_memory,
    )
    return rollout, episodes.metrics()


def _see(
    networks: ActorCritic, observations: Tensor, memory: Carry | None, starts: np.ndarray, device: str
) -> tuple[Tensor, Carry | None]:
    """What policy and value stand upon, and the memory after it."""
    features = networks.encode(observations.to(device))
    if memory is None:
        return features, None
    memory = networks.remember(features, memory, torch.from_numpy(starts).to(device))
    return memory[0], memory


def _see_last(
    networks: ActorCritic, observation: np.ndarray, memory: Carry | None, index: int, device: str
) -> Tensor:
    """The same for the last observation of a truncated episode, which no step follows."""
    row = torch.from_numpy(observation[None].astype(np.uint8 if networks.is_image else np.float32))
    own = None if memory is None else (memory[0][index : index + 1], memory[1][index : index + 1])
    return _see(networks, row, own, np.zeros(1, bool), device)[0][0]


def advantages_of(
    rewards: np.ndarray, values: np.ndarray, after: np.ndarray, dones: np.ndarray, config: PPOConfig
) -> np.ndarray:
    """Generalised advantage estimates (arXiv:1506.02438, equation 16), float32, shape (n_steps, n_envs).

    Args:
        rewards: Of each step.
        values: Estimates before it.
        after: Estimates behind it, of the episode that it belongs to: 0 where that was terminated.
        dones: Whether it ended the episode, for either reason.
        config: The options.
    """
    surprises = rewards + config.gamma * after - values
    decay = config.gamma * config.gae_lambda * ~dones
    advantages, advantage = np.empty(rewards.shape, np.float32), np.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        advantage = surprises[t] + decay[t] * advantage
        advantages[t] = advantage
    return advantages


@dataclass(frozen=True)
class _Minibatch:
    """Some of a rollout, without the axis of time but for an LSTM."""

    observations: Tensor
    masks: Tensor | None
    actions: Tensor
    taught: Taught
    starts: Tensor
    memory: Carry | None
    counts: Tensor | None


def update(task: _Task, state: TrainingState, rollout: Rollout) -> dict[str, Any]:
    """Several passes over what was collected, a step of the optimizer a minibatch."""
    config, networks, told = task.config, state.networks, []
    limit = math.inf if config.target_kl is None else 1.5 * config.target_kl
    parameters = list(networks.parameters())
    for minibatch in _minibatches(rollout, config, state.shuffle_rng):
        judged = _judge(task, networks, minibatch)
        loss = ppo_loss(judged, minibatch.taught, config)
        told.append(loss.parts)
        _check_loss(loss.total, loss.parts, state.env_steps)
        if limit < math.inf and loss.parts[3] > limit:
            break
        state.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward((judged.log_probs, judged.entropies, judged.values), loss.gradients)
        norm = nn.utils.clip_grad_norm_(parameters, config.max_grad_norm or math.inf)
        _check_gradient(norm, state.env_steps)
        state.optimizer.step()
    means = torch.stack(told).mean(0).tolist()
    rate = state.optimizer.param_groups[0]["lr"]
    return {**dict(zip(PARTS, means, strict=True)), "explained_variance": _explained(rollout), "learning_rate": rate}


def _minibatches(rollout: Rollout, config: PPOConfig, rng: np.random.Generator) -> Iterator[_Minibatch]:
    """All epochs' minibatches; what is drawn for an epoch is drawn when it begins."""
    if rollout.memory is not None:
        for _ in range(config.n_epochs):
            for chosen in np.split(rng.permutation(config.n_envs), config.n_minibatches):
                yield _of_environments(rollout, rollout.memory, torch.from_numpy(chosen))
        return
    fields = (rollout.observations, rollout.actions, rollout.masks, *_taught(rollout))
    flat = [None if field is None else field.flatten(0, 1) for field in fields]
    usable = np.arange(config.steps_per_update) if rollout.counts is None else np.flatnonzero(rollout.counts)
    for _ in range(config.n_epochs):
        order = torch.from_numpy(rng.permutation(usable))
        shuffled = [None if field is None else field[order].tensor_split(config.n_minibatches) for field in flat]
        for n in range(config.n_minibatches):
            observations, actions, masks, *taught = [None if field is None else field[n] for field in shuffled]
            assert observations is not None
            assert actions is not None
            if len(observations):
                yield _Minibatch(observations, masks, actions, Taught(*taught), rollout.starts, None, None)


def _of_environments(rollout: Rollout, memory: Carry, chosen: Tensor) -> _Minibatch:
    """Whole environments, for networks that must see their steps in order."""
    counts = None if rollout.counts is None else torch.from_numpy(rollout.counts)[:, chosen].flatten()
    flat = [field[:, chosen].flatten() for field in _taught(rollout)]
    return _Minibatch(
        rollout.observations[:, chosen],
        None if rollout.masks is None else rollout.masks[:, chosen].flatten(0, 1),
        rollout.actions[:, chosen].flatten(0, 1),
        Taught(*(field if counts is None else field[counts] for field in flat)),
        rollout.starts[:, chosen],
        (memory[0][chosen], memory[1][chosen]),
        counts,
    )


def _taught(rollout: Rollout) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return rollout.log_probs, rollout.values, rollout.advantages, rollout.returns


def _judge(task: _Task, networks: ActorCritic, minibatch: _Minibatch) -> Judged:
    """What the networks say now; steps that ignored their action have no say."""
    if minibatch.memory is None:
        features = networks.encode(minibatch.observations)
    else:
        encoded = networks.encode(minibatch.observations.flatten(0, 1)).unflatten(0, minibatch.starts.shape)
        features = networks.recall(encoded, minibatch.memory, minibatch.starts).flatten(0, 1)
    outputs, values = networks.policy(features), networks.value(features).squeeze(-1)
    log_probs, entropies = task.actions.judge(outputs, minibatch.actions, minibatch.masks, networks.log_std)
    chosen = minibatch.counts
    if chosen is None:
        return Judged(log_probs, entropies, values)
    return Judged(log_probs[chosen], entropies[chosen], values[chosen])


def _explained(rollout: Rollout) -> float:
    """Share of the returns' variance that the critic foresaw; 0 where they do not vary."""
    returns, values = rollout.returns.double(), rollout.values.double()
    variance = float(returns.var(correction=0))
    return 1 - float((returns - values).var(correction=0)) / variance if variance > 0 else 0.0


def _check_finite(observations: np.ndarray, rewards: np.ndarray) -> None:
    for what, values in (("observation", observations[1:]), ("reward", rewards)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            t, index = np.argwhere(~np.isfinite(values))[0][:2]
            raise FloatingPointError(
                f"environment {index} gave a {what} that is NaN or infinite, in step {t} of the rollout; nothing was "
                "learned from it."
            )


def _check_loss(total: Tensor, parts: Tensor, env_steps: int) -> None:
    if not math.isfinite(total):
        found = dict(zip(PARTS, parts.tolist(), strict=True))
        wrong = ", ".join(f"{name} is {value}" for name, value in found.items() if not math.isfinite(value))
        raise FloatingPointError(
            f"the update after {env_steps:,} env-steps: {wrong}. Lower learning_rate, or scale rewards and observations."
        )


def _check_gradient(norm: Tensor, env_steps: int) -> None:
    if not math.isfinite(norm):
        raise FloatingPointError(
            f"the update after {env_steps:,} env-steps: the norm of the gradient is {float(norm)}. Lower learning_rate, "
            "or scale rewards and observations."
        )


def _to_numpy(carry: Carry) -> tuple[np.ndarray, np.ndarray]:
    return carry[0].cpu().numpy().copy(), carry[1].cpu().numpy().copy()


def _to_tensors(memory: tuple[np.ndarray, np.ndarray], device: str) -> Carry:
    return torch.from_numpy(memory[0]).to(device), torch.from_numpy(memory[1]).to(device)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """So many threads of PyTorch, for as long as this lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seed_process(seed: int, run_directory: str | Path) -> None:
    """Seeds the process's generators, if the run is a new one.

    The training draws nothing from them, but they are part of every run's state, and two runs of one seed would differ
    in them alone.
    """
    if not (Path(run_directory) / "run.json").exists():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
