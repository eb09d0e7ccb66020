"""A toy training loop in plain NumPy that carries every kind of state a run can lose.

The tests start it as a process of its own; twins that forget something on purpose run it in their own process.

    python numpy_loop.py DIRECTORY --updates 8 --every-updates 1 --kill-at-boundary 3

It prints `ready` before it opens the run and `boundary N` after each boundary, for whoever wants to kill it.
"""

import argparse
import os
import random
import signal
import struct
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import perdure

N_ENVS = 3
ROLLOUT_LENGTH = 5
EPISODE_LIMIT = 7
"""No multiple of the rollout's length, so that boundaries fall into episodes."""
HIDDEN = 4
FEATURES = 3
STEPS_PER_UPDATE = N_ENVS * ROLLOUT_LENGTH
SEED = 20

Evaluation = Literal["own", "shared"]
Say = Callable[[str], None]
Reset = Callable[[Any, Any], Any]


class Environment:
    """A batch of noisy carts that the actions push; an episode ends off the track or at the step limit."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.position = self.generator.normal(0.0, 0.3, N_ENVS)
        self.velocity = np.zeros(N_ENVS)
        self.elapsed = np.zeros(N_ENVS, np.int32)
        self.returns = np.zeros(N_ENVS)
        self.history: list[float] = []
        self.recent_lengths: deque[int] = deque(maxlen=4)
        self.truncations = 0

    def observe(self) -> np.ndarray:
        """Position, velocity and time of each cart, float64 `[N_ENVS, FEATURES]`."""
        return np.stack([self.position, self.velocity, self.elapsed / EPISODE_LIMIT], axis=1)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rewards and ends of episodes, `[N_ENVS]` each; where an episode ends, the next one begins."""
        self.velocity = 0.9 * self.velocity + 0.3 * action + self.generator.normal(0.0, 0.1, N_ENVS)
        self.position = self.position + self.velocity
        self.elapsed = self.elapsed + np.int32(1)
        reward = 1.0 - np.minimum(np.abs(self.position), 2.0)
        self.returns = self.returns + reward
        at_limit = self.elapsed >= EPISODE_LIMIT
        done = at_limit | (np.abs(self.position) > 2.0)
        self.truncations += int(at_limit.sum())
        for at in np.flatnonzero(done):
            self._begin_episode(int(at))
        return reward, done

    def _begin_episode(self, at: int) -> None:
        self.history.append(float(self.returns[at]))
        self.recent_lengths.append(int(self.elapsed[at]))
        self.position[at] = self.generator.normal(0.0, 0.3)
        self.velocity[at], self.elapsed[at], self.returns[at] = 0.0, 0, 0.0

    def state_dict(self) -> dict[str, Any]:
        """All of it, the generator included."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        vars(self).update(state)


class LinearModel:
    """A critic: features to a value."""

    def __init__(self, n_features: int) -> None:
        self.weight = np.zeros(n_features)
        self.bias = np.float64(0.0)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return features @ self.weight + self.bias

    def fit(self, features: np.ndarray, targets: np.ndarray, step_size: float) -> float:
        """One gradient step; returns the mean squared error before it."""
        errors = targets - self(features)
        self.weight = self.weight + step_size * errors @ features / len(errors)
        self.bias = self.bias + step_size * errors.mean()
        return float(np.square(errors).mean())

    def state_dict(self) -> dict[str, Any]:
        """Weight and bias."""
        return {"weight": self.weight, "bias": self.bias}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self.weight, self.bias = state["weight"], state["bias"]


class Normalizer:
    """Running mean and variance with an exact count."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = np.zeros(FEATURES)
        self.m2 = np.zeros(FEATURES)

    def update(self, observations: np.ndarray) -> None:
        """Takes in rows of observations."""
        for row in observations.reshape(-1, FEATURES):
            self.count += 1
            delta = row - self.mean
            self.mean = self.mean + delta / self.count
            self.m2 = self.m2 + delta * (row - self.mean)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        return (observations - self.mean) / np.sqrt(self.m2 / max(self.count, 1) + 0.1)

    def get_state(self) -> dict[str, Any]:
        """Count, mean and sum of squares."""
        return dict(vars(self))

    def set_state(self, state: dict[str, Any]) -> None:
        """The inverse of `get_state`."""
        vars(self).update(state)


class Training:
    """All state of the training in one place. Building one seeds the process's generators, as scripts do."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)
        self.generator = np.random.default_rng(seed + 1)
        self.legacy = np.random.RandomState(seed + 2)
        self.environment = Environment(seed + 3)
        self.critic = LinearModel(HIDDEN)
        self.normalizer = Normalizer()
        self.weights = {
            "recurrent": self.generator.normal(0.0, 0.4, (HIDDEN, HIDDEN)),
            "input": self.generator.normal(0.0, 0.4, (FEATURES, HIDDEN)),
            "action": self.generator.normal(0.0, 0.4, HIDDEN),
        }
        self.optimizer = {"momentum": {name: np.zeros_like(w) for name, w in self.weights.items()}, "updates": 0}
        self.carry = np.zeros((N_ENVS, HIDDEN))
        self.observation = self.environment.observe()
        # The memory looks at the very array that the loop overwrites: sharing is part of the state.
        self.memory = {"latest": self.observation, "trace": np.zeros((N_ENVS, FEATURES))}
        self.exploration = 0.8
        self.learning_rate = 0.05
        self.counters = {"samples": 0, "episodes": 0, "fingerprint": 1}
        self._fill_buffers()

    def _fill_buffers(self) -> None:
        """One draw that every generator keeps the second half of; updates draw in pairs, so it stays kept."""
        random.gauss(0.0, 1.0)
        np.random.standard_normal()
        self.legacy.standard_normal()
        self.generator.integers(0, 256, dtype=np.uint8)

    def components(self) -> dict[str, Any]:
        """Every component by name."""
        return dict(vars(self))


VALUES = ("weights", "optimizer", "carry", "observation", "memory", "exploration", "learning_rate", "counters")
"""Components that are handed in at each boundary; the others are live."""


def update(t: Training) -> dict[str, Any]:
    """Collects a rollout and learns from it; returns the metrics."""
    rollout = [_act(t) for _ in range(ROLLOUT_LENGTH)]
    rewards = np.array([step["reward"] for step in rollout])
    loss, gradient_norm = _learn(t, rollout)
    t.normalizer.update(np.stack([step["observation"] for step in rollout]))
    t.memory["trace"] = 0.9 * t.memory["trace"] + 0.1 * t.memory["latest"]
    t.exploration *= 1.0 - 0.05 / (1.0 + t.counters["samples"] / 100.0)
    t.learning_rate *= 1.02 if gradient_norm < 0.2 else 0.97
    t.counters["samples"] += STEPS_PER_UPDATE
    t.counters["fingerprint"] = _fingerprint(t.counters["fingerprint"], float(rewards.sum()))
    episodes = t.environment.history
    return {
        "reward_mean": float(rewards.mean()),
        "loss": loss,
        "gradient_norm": gradient_norm,
        "exploration": t.exploration,
        "episodes": len(episodes),
        "last_return": episodes[-1] if episodes else None,
        "recent_lengths": list(t.environment.recent_lengths),
    }


def _act(t: Training) -> dict[str, np.ndarray]:
    """One step of all environments, with exploration noise; overwrites the observation in place."""
    seen, before = t.normalizer(t.observation), t.carry
    t.carry = _advance(t.weights, t.carry, seen)
    noise = np.array([random.gauss(0.0, 1.0) if random.random() < t.exploration else 0.0 for _ in range(N_ENVS)])
    action = np.tanh(t.carry @ t.weights["action"] + noise)
    step = {"observation": t.observation.copy(), "seen": seen, "before": before, "features": t.carry, "noise": noise}
    reward, done = t.environment.step(action)
    t.observation[...] = t.environment.observe()
    t.carry = np.where(done[:, None], 0.0, t.carry)
    t.counters["episodes"] += int(done.sum())
    return {**step, "reward": reward}


def _advance(weights: dict[str, np.ndarray], carry: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return np.tanh(carry @ weights["recurrent"] + seen @ weights["input"])


def _learn(t: Training, rollout: list[dict[str, np.ndarray]]) -> tuple[float, float]:
    """One step of momentum along a noisy policy gradient; returns the critic's loss and the gradient's norm."""
    stacked = {name: np.concatenate([step[name] for step in rollout]) for name in rollout[0]}
    order = np.random.permutation(STEPS_PER_UPDATE)[: STEPS_PER_UPDATE - 2]
    batch = {name: rows[order] for name, rows in stacked.items()}
    baseline = t.critic(batch["features"]) + 0.1 * t.memory["trace"].mean()
    weighted = (batch["reward"] - baseline) * batch["noise"]
    into_carry = weighted[:, None] * t.weights["action"] * (1.0 - batch["features"] ** 2)
    gradient = {
        "recurrent": batch["before"].T @ into_carry,
        "input": batch["seen"].T @ into_carry,
        "action": batch["features"].T @ weighted,
    }
    norm = float(np.sqrt(sum(np.square(g).sum() for g in gradient.values()))) / len(order)
    scale = 1.0 / (len(order) * max(1.0, norm)) * (1.0 + 0.05 * _jitter(t))
    for name, momentum in t.optimizer["momentum"].items():
        t.optimizer["momentum"][name] = 0.9 * momentum + scale * gradient[name]
        t.weights[name] = 0.99 * t.weights[name] + t.learning_rate * t.optimizer["momentum"][name]
    t.optimizer["updates"] += 1
    warm = min(1.0, t.optimizer["updates"] / 5)
    return t.critic.fit(batch["features"], batch["reward"], warm * t.learning_rate), norm


def _jitter(t: Training) -> float:
    """A number in (-1, 1) from every generator: draws in pairs keep their buffers filled."""
    child = t.generator.spawn(1)[0]
    bytes_ = t.generator.integers(0, 256, size=8, dtype=np.uint8)
    normal = [source.standard_normal() for source in (t.legacy, np.random) for _ in range(2)]
    _ = [random.gauss(0.0, 1.0) for _ in range(_odd_draws_since_last(t))]
    return float(np.tanh(sum(normal) + child.normal() + bytes_.mean() / 128.0 - 1.0))


def _odd_draws_since_last(t: Training) -> int:
    """How many Gaussians to draw from Python's generator so that it keeps one back at the boundary."""
    return 2 if random.getstate()[2] is not None else 1


def _fingerprint(previous: int, number: float) -> int:
    """A running hash, an integer far beyond 2**53, to which every number that mattered has led."""
    (bits,) = struct.unpack("<q", struct.pack("<d", number))
    return (previous * 6364136223846793005 + bits) % (2**89 - 1)


def evaluate(t: Training, seed: int) -> float:
    """The mean reward of the greedy policy in environments and with generators of its own."""
    environment, carry, rewards = Environment(seed), np.zeros((N_ENVS, HIDDEN)), []
    for _ in range(EPISODE_LIMIT):
        carry = _advance(t.weights, carry, t.normalizer(environment.observe()))
        reward, done = environment.step(np.tanh(carry @ t.weights["action"]))
        carry = np.where(done[:, None], 0.0, carry)
        rewards.append(reward.mean())
    return float(np.mean(rewards))


def evaluate_with_the_training_generator(t: Training) -> float:
    """What many loops do, for a twin: the evaluation's seed is drawn from the training's own generator."""
    return evaluate(t, int(t.generator.integers(2**31)))


def forget(t: Training, reset: Reset) -> None:
    """Resets one part of a restored training and leaves the rest, the process's generators included, alone."""
    python, numpy = random.getstate(), np.random.get_state()
    fresh = Training(SEED)
    random.setstate(python)
    np.random.set_state(numpy)
    reset(t, fresh)


def train(
    directory: str | Path,
    *,
    updates: int = 8,
    every_updates: int | None = 1,
    kill_at_boundary: int | None = None,
    reset: Reset | None = None,
    drop: str | None = None,
    evaluation: Evaluation | None = None,
    keep_last: int | None = None,
    background: bool = True,
    say: Say = lambda line: None,
) -> perdure.Run:
    """Trains, or goes on training, until `updates` updates are done; returns the finished run.

    Args:
        directory: the run's directory.
        updates: the horizon.
        every_updates: the cadence; None saves the first and the last boundary only.
        kill_at_boundary: after the boundary of this number, which is committed before, the process kills itself.
        reset: a twin of `forgetting.py`: is given a resumed training and a fresh one, and spoils the first.
        drop: a component that is neither handed to `restore` nor to `boundary`.
        evaluation: after every update, `own` apart from the training, `shared` with its generator (a twin).
        keep_last: how many checkpoints stay; None: all.
        background: whether a thread writes the checkpoints; not if the process kills itself after a boundary.
        say: told where the loop stands.
    """
    config = {"updates": updates, "seed": SEED, "n_envs": N_ENVS, "env_steps": updates * STEPS_PER_UPDATE}
    saving = {
        "every": perdure.Every(updates=every_updates),
        "keep": None if keep_last is None else perdure.Keep(last=keep_last),
        "background": background and kill_at_boundary is None,
    }
    with perdure.Run(directory, config=config, horizon="env_steps", **saving) as run:
        t = Training(SEED)
        say("ready")
        handed = _restore(run, t, drop)
        if reset is not None and run.resumed:
            forget(t, reset)
        while not run.is_finished:
            metrics = update(t) | _evaluate(t, run, evaluation)
            values = {name: getattr(t, name) for name in handed}
            run.boundary(env_steps=run.env_steps + STEPS_PER_UPDATE, metrics=metrics, **values)
            say(f"boundary {run.boundary_number}")
            if run.boundary_number == kill_at_boundary:
                os.kill(os.getpid(), signal.SIGKILL)
        run.finish()
    return run


def _restore(run: perdure.Run, t: Training, drop: str | None) -> list[str]:
    """Begins or resumes; returns the names of the values to hand in at each boundary."""
    restored = vars(run.restore(**{name: part for name, part in t.components().items() if name != drop}))
    handed = [name for name in VALUES if name != drop]
    vars(t).update({name: restored[name] for name in handed})
    return handed


def _evaluate(t: Training, run: perdure.Run, evaluation: Evaluation | None) -> dict[str, float]:
    match evaluation:
        case None:
            return {}
        case "own":
            return {"evaluation": evaluate(t, SEED + run.updates)}
        case "shared":
            return {"evaluation": evaluate_with_the_training_generator(t)}


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and trains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--every-updates", type=int, help="without it, only the first and the last boundary are saved")
    parser.add_argument("--kill-at-boundary", type=int)
    parser.add_argument("--drop")
    parser.add_argument("--evaluation", choices=["own", "shared"])
    parser.add_argument("--keep-last", type=int, help="without it, every checkpoint stays")
    parser.add_argument("--synchronous", dest="background", action="store_false")
    options = vars(parser.parse_args(argv))
    train(options.pop("directory"), **options, say=lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
