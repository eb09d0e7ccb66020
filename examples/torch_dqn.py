"""Double DQN with n-step returns and prioritised replay, in PyTorch and Gymnasium.

`python examples/torch_dqn.py --run runs/dqn` trains; killed and started again with the same command it goes on, bit for
bit. Lines that end in `# perdure` do that. Without them this is a complete training script.
"""

import argparse
from collections import deque
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

import perdure  # perdure


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Double DQN with n-step returns and prioritised replay.")
    parser.add_argument("--env", default="CartPole-v1", help="any with a flat observation and discrete actions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-steps", type=int, default=20_000)
    parser.add_argument("--run", default="runs/dqn")  # perdure
    parser.add_argument("--checkpoint-every", type=int, default=1_000)  # perdure
    parser.set_defaults(learning_rate=5e-4, batch_size=64, gamma=0.99, n_step=3, capacity=1 << 20)
    parser.set_defaults(learning_starts=500, target_every=250, explore=0.25, alpha=0.6, beta=0.4)
    return parser.parse_args(argv)


class Replay:
    """A ring of n-step transitions, drawn in proportion to their priorities (Schaul et al., 2016)."""

    def __init__(self, capacity: int, obs_size: int) -> None:
        self.observations = np.zeros((capacity, 2, obs_size), np.float32)  # before the first step and after the last
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.discounts = np.zeros(capacity, np.float32)
        self.tree = np.zeros(2 * capacity)  # each node the sum of its two children; the second half are the priorities
        self.added, self.max_priority = 0, 1.0
        self.queue = deque()  # the last steps, whose n-step returns are not known yet

    def push(self, args, observation, action, reward, after, *, terminated, ended):
        self.queue.append((observation, action, float(reward)))
        while len(self.queue) == args.n_step or (ended and self.queue):
            at = self.added % len(self.actions)
            self.observations[at] = self.queue[0][0], after
            self.actions[at] = self.queue[0][1]
            self.rewards[at] = sum(args.gamma**t * step[2] for t, step in enumerate(self.queue))
            self.discounts[at] = 0.0 if terminated else args.gamma ** len(self.queue)
            self.prioritise(np.array([at]), self.max_priority)
            self.queue.popleft()
            self.added += 1

    def prioritise(self, places, priorities):
        nodes = places + len(self.actions)
        self.tree[nodes] = priorities
        while nodes[0] > 1:
            nodes = np.unique(nodes // 2)
            self.tree[nodes] = self.tree[2 * nodes] + self.tree[2 * nodes + 1]
        self.max_priority = max(self.max_priority, float(np.max(priorities)))

    def draw(self, args, rng):
        mass = (np.arange(args.batch_size) + rng.random(args.batch_size)) * self.tree[1] / args.batch_size
        nodes = np.ones(args.batch_size, int)
        while nodes[0] < len(self.actions):
            left = self.tree[2 * nodes]
            mass, nodes = np.where(mass < left, mass, mass - left), 2 * nodes + (mass >= left)
        size = min(self.added, len(self.actions))
        places = np.minimum(nodes - len(self.actions), size - 1)
        weights = (size * self.tree[places + len(self.actions)] / self.tree[1]) ** -args.beta
        return places, torch.as_tensor(weights / weights.max(), dtype=torch.float32)

    def state_dict(self):  # perdure
        others = dict(vars(self))  # perdure
        columns = {name: others.pop(name) for name in ("observations", "actions", "rewards", "discounts")}  # perdure
        return {**others, "ring": perdure.Ring.over(columns, self.added)}  # perdure

    def load_state_dict(self, state):  # perdure
        vars(self).update({name: part for name, part in state.items() if name != "ring"})  # perdure
        vars(self).update(state["ring"].columns)  # perdure


def learn(args, net, target, optimizer, replay, rng):
    places, weights = replay.draw(args, rng)
    parts = (replay.observations, replay.actions, replay.rewards, replay.discounts)
    observations, actions, rewards, discounts = (torch.as_tensor(part[places]) for part in parts)
    with torch.no_grad():
        best = net(observations[:, 1]).argmax(1, keepdim=True)
        goal = rewards + discounts * target(observations[:, 1]).gather(1, best).squeeze(1)
    value = net(observations[:, 0]).gather(1, actions[:, None]).squeeze(1)
    loss = (weights * nn.functional.smooth_l1_loss(value, goal, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    replay.prioritise(places, ((value - goal).detach().abs().double().numpy() + 1e-6) ** args.alpha)
    return loss.item()


def main(argv: Sequence[str] | None = None) -> nn.Module:
    args = parse(argv)
    torch.set_num_threads(1)  # enough for small networks, and the last bits depend on it
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env: Any = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(args.env))
    env.action_space.seed(args.seed)
    observation, _ = env.reset(seed=args.seed)
    sizes = len(observation), int(env.action_space.n)
    net, target = (nn.Sequential(nn.Linear(sizes[0], 64), nn.ReLU(), nn.Linear(64, sizes[1])) for _ in range(2))
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=args.learning_rate)
    replay, steps_done = Replay(args.capacity, sizes[0]), 0

    every, free = perdure.Every(env_steps=args.checkpoint_every), ["run", "checkpoint_every"]  # perdure
    run = perdure.Run(args.run, config=args, horizon="total_steps", free=free, every=every)  # perdure
    live = {"env": env, "net": net, "target": target, "optimizer": optimizer, "replay": replay, "rng": rng}  # perdure
    restored = run.restore(**live, observation=observation)  # perdure
    observation, steps_done = restored.observation, restored.env_steps  # perdure
    for step in range(steps_done + 1, args.total_steps + 1):
        if rng.random() < max(0.05, 1 - step / (args.explore * args.total_steps)):
            action = int(env.action_space.sample())
        else:
            with torch.no_grad():
                action = int(net(torch.as_tensor(observation)).argmax())
        after, reward, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
        replay.push(args, observation, action, reward, after, terminated=terminated, ended=ended)
        observation = env.reset()[0] if ended else after
        loss = learn(args, net, target, optimizer, replay, rng) if step >= args.learning_starts else None
        if step % args.target_every == 0:
            target.load_state_dict(net.state_dict())
        row = {"return": float(info["episode"]["r"]), "loss": loss} if ended else None
        if row:
            print(f"step {step}: {row}")
        run.boundary(env_steps=step, observation=observation, metrics=row)  # perdure
    run.finish()  # perdure
    return net


if __name__ == "__main__":
    main()
