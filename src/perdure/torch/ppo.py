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
from torch import Tensor

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
    seed_spaces,
    step,
    vector_of,
)
from perdure.torch.evaluation import check_evaluation, evaluate
from perdure.torch.gradients import FlatGradients
from perdure.torch.loss import Taught, Told, ppo_loss
from perdure.torch.networks import ActorCritic, Carry
from perdure.torch.state import Carried, Rollout, TrainingState

LogFn = Callable[[dict[str, Any], int], None]
"""Called with an update's metrics (flat names, plain numbers) and the env-steps taken."""

HORIZON = "total_timesteps"
"""The field that says how long to train."""

FREE = ("eval_every_steps", "eval_episodes", "eval_max_length", "device")
"""Fields that may change when a run is resumed: they leave no trace in it."""


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
            seed_process(config.seed, run)
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
    seed_spaces(envs, task.config.seed)
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


class _Acting:
    """The policy in a rollout: parameters that do not change, and a memory that does."""

    def __init__(self, task: _Task, state: TrainingState) -> None:
        self._networks, self._device, carried = state.networks, task.config.device, state.carried
        self._policy, self._sample, self._log_std = (
            state.networks.policy.frozen(), task.actions.sample, state.networks.log_std,
        )  # fmt: skip
        self.memory = None if carried.memory is None else _to_tensors(carried.memory, self._device)

    def see(self, observations: Tensor, starts: np.ndarray) -> Tensor:
        """What policy and value stand upon; the memory takes note of it."""
        features = self._networks.encode(observations.to(self._device))
        if self.memory is None:
            return features
        self.memory = self._networks.remember(features, self.memory, torch.from_numpy(starts).to(self._device))
        return self.memory[0]

    def act(self, features: Tensor, noise: Tensor, legal: Tensor | None) -> tuple[Tensor, Tensor]:
        """The policy's outputs, and actions."""
        outputs = self._policy(features)
        return outputs, self._sample(outputs, noise, legal, self._log_std)

    def see_last(self, observation: np.ndarray, index: int) -> Tensor:
        """The same as `see` for the last observation of a truncated episode of one environment; nothing is noted."""
        row = torch.from_numpy(observation[None].astype(np.uint8 if self._networks.is_image else np.float32))
        features = self._networks.encode(row.to(self._device))
        if self.memory is None:
            return features[0]
        own = self.memory[0][index : index + 1], self.memory[1][index : index + 1]
        return self._networks.remember(features, own, torch.zeros(1, dtype=torch.bool, device=self._device))[0][0]


@dataclass
class _Record:
    """What the environments did in a rollout, NumPy arrays of shape (n_steps, n_envs, …), one row more where said."""

    observations: np.ndarray
    """One row more."""
    rewards: np.ndarray
    terminated: np.ndarray
    dones: np.ndarray
    """Whether a step ended an episode, for either reason."""
    starts: np.ndarray
    """Whether a step is the first of an episode; one row more."""
    resets: np.ndarray
    """Whether a step only reset; one row more."""

    @classmethod
    def after(cls, carried: Carried, n_steps: int) -> "_Record":
        """Empty but for what the step before has left."""
        shape = n_steps, *carried.starts.shape
        observations = np.empty((n_steps + 1, *carried.observation.shape), carried.observation.dtype)
        longer = np.zeros((n_steps + 1, *carried.starts.shape), bool)
        record = cls(observations, np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool), longer, longer.copy())
        observations[0], record.starts[0], record.resets[0] = carried.observation, carried.starts, carried.resets
        return record


@torch.no_grad()
def collect(task: _Task, state: TrainingState) -> tuple[Rollout, dict[str, Any]]:
    """Steps the environments `n_steps` times, and estimates how much better than expected each action was.

    The critic is not needed while they step: it looks at everything at once afterwards.
    """
    config, n_steps, device = task.config, task.config.n_steps, task.config.device
    acting, record = _Acting(task, state), _Record.after(state.carried, n_steps)
    first_memory, mask, waits = acting.memory, state.carried.action_mask, task.mode is AutoresetMode.NEXT_STEP
    noise = torch.from_numpy(task.actions.noise(state.action_rng, n_steps, config.n_envs)).to(device).unbind()
    rows = torch.from_numpy(record.observations).unbind()
    seen: list[Tensor] = []
    acted: list[tuple[Tensor, Tensor]] = []
    masks: list[Tensor | None] = []
    finals: dict[tuple[int, int], Tensor] = {}
    for t in range(n_steps):
        seen.append(acting.see(rows[t], record.starts[t]))
        masks.append(None if mask is None else torch.from_numpy(mask).to(device))
        acted.append(acting.act(seen[t], noise[t], masks[t]))
        actions = task.actions.to_environment(acted[t][1].cpu().numpy())
        observation, reward, terminated, truncated, final, info = step(state.envs, actions, task.mode)
        done = terminated | truncated
        record.observations[t + 1], record.rewards[t], record.terminated[t] = observation, reward, terminated
        record.dones[t] = done
        record.starts[t + 1] = record.resets[t] if waits else done
        if waits:
            record.resets[t + 1] = done
        if final:
            finals |= {(t, index): acting.see_last(last, index) for index, last in final.items()}
        if mask is not None:
            mask = _masks(task.actions, info, config.n_envs)
    _check_finite(record)
    memory = acting.memory
    seen.append(acting.see(rows[n_steps], record.starts[n_steps]))
    values, advantages = _estimate(config, state.networks, record, seen, finals)
    outputs, taken = (torch.stack(parts) for parts in zip(*acted, strict=True))
    legal = torch.stack([each for each in masks if each is not None]) if mask is not None else None
    rollout = Rollout(
        observations=torch.from_numpy(record.observations[:n_steps]).to(device),
        masks=legal,
        actions=taken,
        log_probs=task.actions.judge(outputs, taken, legal, state.networks.log_std)[0],
        values=values,
        advantages=advantages,
        returns=advantages + values,
        starts=torch.from_numpy(record.starts[:n_steps]).to(device),
        counts=~record.resets[:n_steps] if record.resets[:n_steps].any() else None,
        memory=first_memory,
    )
    returns, lengths, metrics = _episodes(state.carried, record)
    carried = record.observations[n_steps].copy(), mask, None if memory is None else _to_numpy(memory)
    state.carried = Carried(*carried, record.starts[n_steps].copy(), record.resets[n_steps].copy(), returns, lengths)
    return rollout, metrics


def _estimate(
    config: PPOConfig,
    networks: ActorCritic,
    record: _Record,
    seen: list[Tensor],
    finals: dict[tuple[int, int], Tensor],
) -> tuple[Tensor, Tensor]:
    """The critic's estimates before each step, and advantages, shape (n_steps, n_envs) each."""
    values = networks.value(torch.stack(seen)).squeeze(-1).cpu().numpy()
    after = values[1:].copy()
    if finals:
        steps, indices = zip(*finals, strict=True)
        after[steps, indices] = networks.value(torch.stack(list(finals.values()))).squeeze(-1).cpu().numpy()
    after[record.terminated] = 0
    advantages = advantages_of(record.rewards, values[:-1], after, record.dones, config)
    return torch.from_numpy(values[:-1]).to(config.device), torch.from_numpy(advantages).to(config.device)


def _episodes(carried: Carried, record: _Record) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Returns and lengths of the episodes under way, and means of those that ended."""
    returns, lengths, ended = carried.returns.copy(), carried.lengths.copy(), []
    begun = np.zeros(len(returns), np.int64)
    counted = ~record.resets
    for t, index in np.argwhere(record.dones):
        own = slice(begun[index], t + 1), index
        ended.append((returns[index] + record.rewards[own].sum(), lengths[index] + counted[own].sum()))
        returns[index], lengths[index], begun[index] = 0, 0, t + 1
    for index, first in enumerate(begun):
        returns[index] += record.rewards[first:, index].sum()
        lengths[index] += counted[first:-1, index].sum()
    metrics: dict[str, Any] = {"rollout/episodes": len(ended)}
    if ended:
        means = np.mean(ended, axis=0).tolist()
        metrics |= {"rollout/return_mean": means[0], "rollout/length_mean": means[1]}
    return returns, lengths, metrics


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
    with FlatGradients(networks.parameters()) as gradients:
        for minibatch in _minibatches(rollout, config, state.shuffle_rng):
            said = _say_again(task, networks, minibatch)
            tells, derivatives = ppo_loss(*said, minibatch.taught, config)
            told.append(tells)
            if config.target_kl is not None and tells.divergence() > 1.5 * config.target_kl:
                break
            gradients.derive(said, derivatives)
            if not math.isfinite(gradients.clip(config.max_grad_norm)):
                raise FloatingPointError(_not_finite(tells, config, state.env_steps))
            state.optimizer.step()
    rate = state.optimizer.param_groups[0]["lr"]
    return {**Told.joined(told).parts(config), "explained_variance": _explained(rollout), "learning_rate": rate}


def _minibatches(rollout: Rollout, config: PPOConfig, rng: np.random.Generator) -> Iterator[_Minibatch]:
    """All epochs' minibatches; what is drawn for an epoch is drawn when it begins."""
    if rollout.memory is not None:
        for _ in range(config.n_epochs):
            for chosen in np.split(rng.permutation(config.n_envs), config.n_minibatches):
                yield _of_environments(rollout, rollout.memory, torch.from_numpy(chosen))
        return
    fields = (rollout.observations, rollout.actions, torch.stack(_taught(rollout), -1), rollout.masks)
    flat = [None if field is None else field.flatten(0, 1) for field in fields]
    usable = np.arange(config.steps_per_update) if rollout.counts is None else np.flatnonzero(rollout.counts)
    for _ in range(config.n_epochs):
        order = torch.from_numpy(rng.permutation(usable))
        shuffled = [None if field is None else field[order].tensor_split(config.n_minibatches) for field in flat]
        for n in range(config.n_minibatches):
            observations, actions, taught, masks = (None if field is None else field[n] for field in shuffled)
            assert observations is not None
            assert actions is not None
            assert taught is not None
            if len(actions):
                yield _Minibatch(observations, masks, actions, Taught(*taught.unbind(-1)), rollout.starts, None, None)


def _of_environments(rollout: Rollout, memory: Carry, chosen: Tensor) -> _Minibatch:
    """Whole environments, for networks that must see their steps in order."""
    counts = None if rollout.counts is None else torch.from_numpy(rollout.counts)[:, chosen].flatten()

    def of_these(field: Tensor) -> Tensor:
        flat = field[:, chosen].flatten(0, 1)
        return flat if counts is None else flat[counts]

    return _Minibatch(
        rollout.observations[:, chosen],
        None if rollout.masks is None else of_these(rollout.masks),
        of_these(rollout.actions),
        Taught(*map(of_these, _taught(rollout))),
        rollout.starts[:, chosen],
        (memory[0][chosen], memory[1][chosen]),
        counts,
    )


def _taught(rollout: Rollout) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return rollout.log_probs, rollout.values, rollout.advantages, rollout.returns


def _say_again(task: _Task, networks: ActorCritic, minibatch: _Minibatch) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, entropies and values as the networks are now; steps that ignored their action are left out."""
    if minibatch.memory is None:
        features = networks.encode(minibatch.observations)
    else:
        encoded = networks.encode(minibatch.observations.flatten(0, 1)).unflatten(0, minibatch.starts.shape)
        features = networks.recall(encoded, minibatch.memory, minibatch.starts).flatten(0, 1)
        features = features if minibatch.counts is None else features[minibatch.counts]
    outputs, values = networks.policy(features), networks.value(features).squeeze(-1)
    log_probs, entropies = task.actions.judge(outputs, minibatch.actions, minibatch.masks, networks.log_std)
    return log_probs, entropies, values


def _explained(rollout: Rollout) -> float:
    """Share of the returns' variance that the critic foresaw; 0 where they do not vary."""
    returns, values = rollout.returns.double(), rollout.values.double()
    variance = float(returns.var(correction=0))
    return 1 - float((returns - values).var(correction=0)) / variance if variance > 0 else 0.0


def _check_finite(record: _Record) -> None:
    for what, values in (("observation", record.observations[1:]), ("reward", record.rewards)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            t, index = np.argwhere(~np.isfinite(values))[0][:2]
            raise FloatingPointError(
                f"environment {index} gave a {what} that is NaN or infinite, in step {t} of the rollout; nothing was "
                "learned from it."
            )


def _not_finite(tells: Told, config: PPOConfig, env_steps: int) -> str:
    wrong = [f"{name} is {value}" for name, value in tells.parts(config).items() if not math.isfinite(value)]
    return (
        f"the update after {env_steps:,} env-steps: {', '.join(wrong) or 'the gradient is NaN or infinite'}. The networks "
        "are as before that minibatch. Lower learning_rate, or scale rewards and observations."
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


def seed_process(seed: int, run_directory: str | Path) -> None:
    """Seeds the process's generators, if the run is a new one.

    The training draws nothing from them, but they are part of every run's state, and two runs of one seed would differ
    in them alone.
    """
    if not (Path(run_directory) / "run.json").exists():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
