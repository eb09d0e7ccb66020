"""Soft actor-critic with twin critics and a temperature that tunes itself, in PyTorch and Gymnasium.

`python examples/torch_sac.py --run runs/sac` trains; killed and started again with the same command it goes on, bit for
bit. Lines that end in `# perdure` do that. Without them this is a complete training script.
"""

import argparse
import copy
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

import perdure  # perdure


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Soft actor-critic.")
    parser.add_argument("--env", default="Pendulum-v1", help="any with a flat observation and bounded real actions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-steps", type=int, default=10_000)
    parser.add_argument("--run", default="runs/sac")  # perdure
    parser.add_argument("--checkpoint-every", type=int, default=1_000)  # perdure
    parser.set_defaults(
        learning_rate=1e-3, batch_size=128, gamma=0.99, tau=0.005, capacity=1_000_000, learning_starts=300
    )
    return parser.parse_args(argv)


class Replay:
    """A ring of transitions."""

    def __init__(self, capacity: int, obs_size: int, action_size: int) -> None:
        self.observations = np.zeros((capacity, 2, obs_size), np.float32)  # before and after
        self.actions = np.zeros((capacity, action_size), np.float32)
        self.rewards = np.zeros((capacity, 1), np.float32)
        self.goes_on = np.zeros((capacity, 1), np.float32)
        self.added = 0

    def push(self, before, action, reward, after, *, terminated):
        at = self.added % len(self.actions)
        self.observations[at] = before, after
        self.actions[at], self.rewards[at], self.goes_on[at] = action, reward, not terminated
        self.added += 1

    def draw(self, count, rng):
        places = rng.integers(min(self.added, len(self.actions)), size=count)
        observations, *others = (self.observations, self.actions, self.rewards, self.goes_on)
        return (*torch.as_tensor(observations[places]).unbind(1), *(torch.as_tensor(part[places]) for part in others))

    def state_dict(self):  # perdure
        columns = {name: part for name, part in vars(self).items() if name != "added"}  # perdure
        return {"ring": perdure.Ring.over(columns, self.added)}  # perdure

    def load_state_dict(self, state):  # perdure
        self.added = state["ring"].total  # perdure
        vars(self).update(state["ring"].columns)  # perdure


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


def act(actor, observations):
    """Actions in [-1, 1], drawn, and their log-likelihoods, shape (..., 1)."""
    mean, log_std = actor(observations).chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    drawn = normal.rsample()
    squashing = 2 * (np.log(2) - drawn - nn.functional.softplus(-2 * drawn))  # log of the derivative of tanh
    return drawn.tanh(), (normal.log_prob(drawn) - squashing).sum(-1, keepdim=True)


def value(critics, observations, actions):
    """What each critic says, shape (critics, batch, 1)."""
    return torch.stack([critic(torch.cat([observations, actions], 1)) for critic in critics])


def step_down(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main(argv: Sequence[str] | None = None) -> nn.Module:
    args = parse(argv)
    torch.set_num_threads(1)  # enough for small networks, and the last bits depend on it
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env: Any = gymnasium.wrappers.RescaleAction(gymnasium.make(args.env), np.float32(-1), np.float32(1))
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env.action_space.seed(args.seed)
    observation, _ = env.reset(seed=args.seed)
    sizes = len(observation), len(env.action_space.low)
    actor, critics = mlp(sizes[0], 2 * sizes[1]), nn.ModuleList([mlp(sum(sizes), 1) for _ in range(2)])
    targets = copy.deepcopy(critics).requires_grad_(False)
    log_alpha = torch.zeros(1, requires_grad=True)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=args.learning_rate)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=args.learning_rate)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=args.learning_rate)
    replay, steps_done = Replay(args.capacity, *sizes), 0

    every, free = perdure.Every(env_steps=args.checkpoint_every), ["run", "checkpoint_every"]  # perdure
    run = perdure.Run(args.run, config=args, horizon="total_steps", free=free, every=every)  # perdure
    networks = {"actor": actor, "critics": critics, "targets": targets, "log_alpha": log_alpha}  # perdure
    optimizers = {"actor_optimizer": actor_optimizer, "critic_optimizer": critic_optimizer}  # perdure
    others = {"alpha_optimizer": alpha_optimizer, "env": env, "replay": replay, "rng": rng}  # perdure
    restored = run.restore(**networks, **optimizers, **others, observation=observation)  # perdure
    observation, steps_done = restored.observation, restored.env_steps  # perdure
    for step in range(steps_done + 1, args.total_steps + 1):
        action = env.action_space.sample()
        if step > args.learning_starts:
            with torch.no_grad():
                action = act(actor, torch.as_tensor(observation))[0].numpy()
        after, reward, terminated, truncated, info = env.step(action)
        replay.push(observation, action, reward, after, terminated=terminated)
        ended = terminated or truncated
        observation = env.reset()[0] if ended else after
        if step >= args.learning_starts:
            before, later, actions, rewards, goes_on = replay.draw(args.batch_size, rng)
            with torch.no_grad():
                next_actions, likelihood = act(actor, later)
                next_value = value(targets, later, next_actions).amin(0) - log_alpha.exp() * likelihood
                goal = rewards + args.gamma * goes_on * next_value
            step_down(critic_optimizer, (value(critics, before, actions) - goal).square().mean(1).sum())
            chosen, likelihood = act(actor, before)
            cost = log_alpha.exp().detach() * likelihood - value(critics, before, chosen).amin(0)
            step_down(actor_optimizer, cost.mean())
            step_down(alpha_optimizer, -(log_alpha.exp() * (likelihood.detach() - sizes[1])).mean())
            with torch.no_grad():
                for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
                    slow.lerp_(fast, args.tau)
        row = {"return": float(info["episode"]["r"]), "alpha": log_alpha.exp().item()} if ended else None
        if row:
            print(f"step {step}: {row}")
        run.boundary(env_steps=step, observation=observation, metrics=row)  # perdure
    run.finish()  # perdure
    return actor


if __name__ == "__main__":
    main()
