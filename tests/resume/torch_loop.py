"""A toy PyTorch training for exactness tests: three networks, everything that a script may keep beside them.

`python torch_loop.py DIR --kind lstm --updates 8` trains, or goes on; `--kill-at-boundary K` kills the process there.
"""

import argparse
import os
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import lr_scheduler, swa_utils

import perdure

BATCH, WIDTH, SEED = 6, 5, 3


class Net(nn.Module):
    """A trunk and a head; counts its calls in an attribute, and normalises with a buffer that is not persistent."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.calls = 0
        self.mean: Any
        self.register_buffer("mean", torch.zeros(WIDTH), persistent=False)
        self.inputs = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.dropout = nn.Dropout(0.3)
        self.recurrent: Any = nn.LSTM(WIDTH, WIDTH) if kind == "lstm" else nn.Identity()
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        if kind == "tied":
            self.head.weight = self.inputs.weight

    def forward(self, x: Any, carry: Any) -> Any:
        self.calls += 1
        self.mean.lerp_(x.mean(0), 0.1)
        hidden = self.dropout(self.norm(torch.tanh(self.inputs(x - self.mean))))
        if self.kind == "lstm":
            hidden, carry = self.recurrent(hidden[None], carry)
            hidden, carry = hidden[0], tuple(part.detach() for part in carry)
        return self.head(hidden) * (1 + 0.01 * self.calls), carry


class Training:
    """Everything that must survive, built as a script builds it."""

    def __init__(self, kind: str, seed: int = SEED) -> None:
        for seed_all in (random.seed, np.random.seed, torch.manual_seed):
            seed_all(seed)
        self.net = Net(kind)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.02, amsgrad=True)
        self.alpha_optimizer = torch.optim.SGD([self.log_alpha], lr=0.05, momentum=0.9)
        warm = lr_scheduler.LinearLR(self.optimizer, 0.2, total_iters=3)
        decay = lr_scheduler.CosineAnnealingLR(self.optimizer, 9)
        self.schedule = lr_scheduler.SequentialLR(self.optimizer, [warm, decay], [3])
        self.plateau = lr_scheduler.ReduceLROnPlateau(self.alpha_optimizer, "max", patience=0)
        self.average: Any = swa_utils.AveragedModel(self.net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
        self.generator = torch.Generator().manual_seed(seed)
        self.observation = torch.zeros(BATCH, WIDTH)
        self.carry = (torch.zeros(1, BATCH, WIDTH), torch.zeros(1, BATCH, WIDTH))
        self.best: float | None = None
        self.recent = np.zeros(3, np.float32)


VALUES = ("observation", "carry", "best", "recent")


def update(t: Training) -> dict[str, float]:
    """One update; every part of the training has a say in the numbers of the next."""
    noise = torch.randn(BATCH, WIDTH, generator=t.generator)
    t.observation = 0.7 * t.observation + noise + 0.01 * float(t.recent.mean()) + 0.1 * torch.rand(BATCH, WIDTH)
    output, t.carry = t.net(t.observation, t.carry)
    with torch.no_grad():
        target = next(t.average.parameters()).mean() + t.average.module.head(torch.sin(t.observation))
    loss = t.log_alpha.exp() * ((output - target) ** 2).mean() + (t.log_alpha + 0.3 * (t.best or 0)) ** 2
    t.optimizer.zero_grad()
    t.alpha_optimizer.zero_grad()
    loss.sum().backward()
    t.optimizer.step()
    t.alpha_optimizer.step()
    t.schedule.step()
    t.plateau.step(loss.item())
    t.average.update_parameters(t.net)
    t.best = min(loss.item(), t.best if t.best is not None else 1e9)
    t.recent = np.roll(t.recent, 1)
    t.recent[0] = loss.item()
    return {"loss": loss.item(), "rate": float(t.optimizer.param_groups[0]["lr"])}


Forget = Callable[[Training, Training], object]
"""Given a restored training and a fresh one; spoils the first."""


def train(
    directory: str | Path,
    kind: str = "mlp",
    *,
    updates: int = 8,
    seed: int = SEED,
    kill_at_boundary: int | None = None,
    forget: Forget | None = None,
    background: bool = True,
) -> Training:
    """Trains, or goes on training, until `updates` updates are done."""
    saving = {"every": perdure.Every(updates=1), "keep": None, "background": background}
    with perdure.Run(directory, config={"kind": kind}, **saving) as run:
        t = Training(kind, seed)
        restored = vars(run.restore(**vars(t)))
        vars(t).update({name: restored[name] for name in VALUES})
        if forget is not None and run.resumed:
            state = torch.get_rng_state()
            fresh = Training(kind)
            torch.set_rng_state(state)
            forget(t, fresh)
        while run.updates < updates:
            metrics = update(t)
            values = {name: getattr(t, name) for name in VALUES}
            run.boundary(env_steps=run.env_steps + BATCH, metrics=metrics, **values)
            if run.boundary_number == kill_at_boundary:
                os.kill(os.getpid(), signal.SIGKILL)
        run.finish()
    return t


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and trains."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kind", default="mlp")
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--kill-at-boundary", type=int)
    options = vars(parser.parse_args(argv))
    train(options.pop("directory"), **options, background=options["kill_at_boundary"] is None)


if __name__ == "__main__":
    main()
