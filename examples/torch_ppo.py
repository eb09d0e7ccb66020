"""PPO with a learning rate that falls to nothing, in PyTorch and Gymnasium's vector environments.

`python examples/torch_ppo.py --run runs/ppo` trains; killed and started again with the same command it goes on, bit for
bit. Lines that end in `# perdure` do that. Without them this is a complete training script.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.distributions import Categorical

import perdure  # perdure
from perdure.gym import seed_spaces  # perdure


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PPO.")
    parser.add_argument("--env", default="CartPole-v1", help="any with a flat observation and discrete actions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-steps", type=int, default=100_000)
    parser.add_argument("--run", default="runs/ppo")  # perdure
    parser.add_argument("--checkpoint-every", type=int, default=5_000)  # perdure
    parser.set_defaults(n_envs=4, n_steps=128, n_epochs=4, n_minibatches=4, learning_rate=2.5e-3, gamma=0.99)
    parser.set_defaults(gae_lambda=0.95, clip=0.2, value_cost=0.5, entropy_cost=0.01, largest_gradient=0.5)
    return parser.parse_args(argv)


class Agent(nn.Module):
    """Actor and critic."""

    def __init__(self, obs_size: int, n_actions: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs_size, 64), nn.Tanh(), nn.Linear(64, n_actions))
        self.critic = nn.Sequential(nn.Linear(obs_size, 64), nn.Tanh(), nn.Linear(64, 1))

    def value(self, observations: Any) -> torch.Tensor:
        return self.critic(torch.as_tensor(observations)).squeeze(-1)

    def policy(self, observations: Any) -> Categorical:
        return Categorical(logits=self.actor(torch.as_tensor(observations)))


@torch.no_grad()
def collect(args, envs, agent, observation, returns):
    """A rollout, each part of shape (n_steps, n_envs, …), the next observation, and the returns of ended episodes."""
    rollout, ended_returns = [], []
    for _ in range(args.n_steps):
        policy = agent.policy(observation)
        action = policy.sample()
        after, reward, terminated, truncated, info = envs.step(action.numpy())
        returns += reward
        ended = terminated | truncated
        cut = truncated & ~terminated
        if cut.any():  # by a limit, not lost: what would have followed is worth what the critic says
            reward[cut] += args.gamma * agent.value(np.stack(info["final_obs"][cut])).numpy()
        parts = (observation, action, policy.log_prob(action), agent.value(observation), reward, ~ended)
        rollout.append([torch.as_tensor(part) for part in parts])
        ended_returns += returns[ended].tolist()
        returns[ended] = 0
        observation = after
    return [torch.stack(part) for part in zip(*rollout, strict=True)], observation, ended_returns


def advantages_of(args, rewards, values, goes_on, last_value):
    """Generalised advantage estimation (Schulman et al., 2016); shapes (n_steps, n_envs)."""
    advantages, next_value, running = torch.zeros_like(values), last_value, torch.zeros_like(last_value)
    for t in reversed(range(args.n_steps)):
        error = rewards[t].float() + args.gamma * goes_on[t] * next_value - values[t]
        running = error + args.gamma * args.gae_lambda * goes_on[t] * running
        advantages[t], next_value = running, values[t]
    return advantages


def learn(args, agent, optimizer, batch):
    loss = torch.zeros(())
    for _ in range(args.n_epochs):
        for at in torch.randperm(args.n_envs * args.n_steps).chunk(args.n_minibatches):
            observations, actions, old_log_prob, old_values, advantages = (part.flatten(0, 1)[at] for part in batch)
            policy = agent.policy(observations)
            ratio = (policy.log_prob(actions) - old_log_prob).exp()
            normalised = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            gain = torch.min(ratio * normalised, ratio.clamp(1 - args.clip, 1 + args.clip) * normalised).mean()
            value_loss = (agent.value(observations) - old_values - advantages).square().mean()
            loss = args.value_cost * value_loss - gain - args.entropy_cost * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.largest_gradient)
            optimizer.step()
    return loss.item()


def main(argv: Sequence[str] | None = None) -> nn.Module:
    args = parse(argv)
    torch.set_num_threads(1)  # enough for small networks, and the last bits depend on it
    torch.manual_seed(args.seed)
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    envs: Any = gymnasium.make_vec(args.env, args.n_envs, vectorization_mode="sync", vector_kwargs=same_step)
    seed_spaces(envs, args.seed)  # perdure
    observation, _ = envs.reset(seed=args.seed)
    agent = Agent(observation.shape[1], int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    n_updates = args.total_steps // (args.n_envs * args.n_steps)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=n_updates)
    returns, steps = np.zeros(args.n_envs), 0

    every, free = perdure.Every(env_steps=args.checkpoint_every), ["run", "checkpoint_every"]  # perdure
    run = perdure.Run(args.run, config=args, horizon="total_steps", free=free, every=every)  # perdure
    live = {"agent": agent, "optimizer": optimizer, "schedule": schedule, "envs": envs}  # perdure
    restored = run.restore(**live, observation=observation, returns=returns)  # perdure
    observation, returns, steps = restored.observation, restored.returns, restored.env_steps  # perdure
    while steps < args.total_steps:
        parts, observation, ended_returns = collect(args, envs, agent, observation, returns)
        observations, actions, log_prob, values, rewards, goes_on = parts
        advantages = advantages_of(args, rewards, values, goes_on, agent.value(observation).detach())
        loss = learn(args, agent, optimizer, (observations, actions, log_prob, values, advantages))
        schedule.step()
        steps += args.n_envs * args.n_steps
        row = {"return": float(np.mean(ended_returns)) if ended_returns else None, "loss": loss}
        print(f"step {steps}: {row}")
        run.boundary(env_steps=steps, observation=observation, returns=returns, metrics=row)  # perdure
    run.finish()  # perdure
    return agent


if __name__ == "__main__":
    main()
