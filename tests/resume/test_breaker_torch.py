"""Scripts that people write: what they keep in modules and environments comes back exactly, or is refused by name.

Each script ran through a resume unnoticed, or could not be resumed at all, before it became a test.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import perdure
from perdure.errors import CaptureError, ContractError

UPDATES = 6


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class Counting:
    """A forward hook that counts."""

    def __init__(self, calls: int = 0) -> None:
        self.calls = calls

    def __call__(self, module: nn.Module, arguments: Any, output: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return output * self.calls


class Hooked(nn.Module):
    """A layer with such a hook."""

    def __init__(self, hook: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.layer.register_forward_hook(hook or Counting())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Recurrent(nn.Module):
    """Keeps its state: one row at first, as many as the batch has later, none after an episode."""

    def __init__(self, rows: int = 1) -> None:
        super().__init__()
        self.layer, self.hidden, self.passes = nn.Linear(3, 1), torch.zeros(rows, 1), 0
        self.noise: torch.Tensor | None = torch.ones(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        rows = 2 + self.passes % 3
        output = self.layer(x[:rows]) + self.hidden.mean()
        self.hidden = output.detach()
        self.noise = None if self.passes % 2 else torch.full((1,), 0.5)
        return output * (1 if self.noise is None else self.noise)


def train(directory: Path, make: Callable[[], nn.Module], updates: int) -> list[torch.Tensor]:
    torch.manual_seed(1)
    net = make()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with perdure.Run(directory, every=perdure.Every(updates=1)) as run:
        run.restore(net=net, optimizer=optimizer)
        while run.updates < updates:
            optimizer.zero_grad()
            net(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
            run.boundary(env_steps=run.env_steps + 1)
    return [parameter.detach().clone() for parameter in net.parameters()]


@pytest.mark.parametrize("make", [Hooked, Recurrent])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_what_a_module_keeps_comes_back(tmp_path: Path, make: Callable[[], nn.Module], k: int) -> None:
    straight = train(tmp_path / "straight", make, UPDATES)
    train(tmp_path / "stopped", make, k)
    resumed = train(tmp_path / "stopped", make, UPDATES)
    assert all(map(torch.equal, resumed, straight))


def test_the_twin_whose_hook_begins_anew_trains_otherwise(tmp_path: Path) -> None:
    hooks: list[Counting] = []

    def make() -> nn.Module:
        hooks.append(Counting())
        return Hooked(hooks[-1])

    def with_forgetful_hook() -> nn.Module:
        return Hooked(lambda *inputs: hooks[-1](*inputs))

    straight = train(tmp_path / "straight", make, UPDATES)
    train(tmp_path / "stopped", with_forgetful_hook, 2)
    hooks.append(Counting())
    assert not all(map(torch.equal, train(tmp_path / "stopped", with_forgetful_hook, UPDATES), straight))


def test_another_hook_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "run", Hooked, 1)
    with pytest.raises(ContractError, match=r"net/layer/\.hooks"):
        train(tmp_path / "run", lambda: Hooked(lambda *_: None), 2)


def test_another_shape_at_the_start_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "run", Recurrent, 2)
    with pytest.raises(ContractError, match=r"net/\./hidden/shape: '1×1' in the run, '2×1' here"):
        train(tmp_path / "run", lambda: Recurrent(2), 3)


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))


def compiled() -> Any:
    return torch.compile(plain(), backend="eager")


@pytest.mark.parametrize(("first", "second"), [(plain, compiled), (compiled, plain)])
def test_a_run_may_be_compiled_or_not_at_each_start(tmp_path: Path, first: Any, second: Any) -> None:
    """`torch.compile` leaves a mark on the module that it wraps."""
    straight = train(tmp_path / "straight", first, UPDATES)
    train(tmp_path / "stopped", first, 2)
    assert all(map(torch.equal, train(tmp_path / "stopped", second, UPDATES), straight))


class Remembering(nn.Module):
    """Keeps the log-probabilities of an episode, as PyTorch's example of REINFORCE does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.saved: list[torch.Tensor] = []


def test_a_graph_inside_a_module_is_refused(tmp_path: Path) -> None:
    net = Remembering()
    net.saved.append(net.layer(torch.ones(3)).sum())
    refusal = r"net/\./saved/0: the tensor has a graph behind it.*Detach it, or set it to None, before the boundary"
    with pytest.raises(CaptureError, match=refusal):
        perdure.save(tmp_path / "saved", net=net)
    net.saved[0] = net.saved[0].detach()
    perdure.save(tmp_path / "detached", net=net)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_weight_norm_computes_from_parameters_is_no_such_graph(tmp_path: Path) -> None:
    net = torch.nn.utils.weight_norm(nn.Linear(3, 2))
    net(torch.ones(3))
    assert net.weight.grad_fn is not None
    perdure.save(tmp_path / "saved", net=net)
    assert net.weight.grad_fn is not None


class Logged(gymnasium.Env):
    """Has a logger, as user environments do, and a function that may be changed."""

    observation_space = gymnasium.spaces.Discrete(1000)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, scaled: Callable[..., float] = float) -> None:
        self.logger, self.steps = logging.getLogger(__name__), 0
        self.scaled = scaled

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return self.steps, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.steps, self.scaled(self.steps), False, False, {}


def test_loggers_stay_the_targets_own(tmp_path: Path) -> None:
    first, second = Logged(), Logged()
    first.step(0)
    perdure.save(tmp_path / "saved", env=first)
    perdure.load(tmp_path / "saved", env=second)
    assert second.steps == 1
    assert second.logger is first.logger


def test_another_default_of_a_function_is_refused(tmp_path: Path) -> None:
    perdure.save(tmp_path / "saved", env=Logged(lambda steps, scale=0.5: steps * scale))
    with pytest.raises(ContractError, match=r"env/scaled/scale: 0\.5 in the run, 0\.25 here"):
        perdure.load(tmp_path / "saved", env=Logged(lambda steps, scale=0.25: steps * scale))


def counting_function() -> Callable[..., float]:
    def scaled(steps: int) -> float:
        scaled.calls += 1  # type: ignore[attr-defined]
        return steps * scaled.calls  # type: ignore[attr-defined]

    scaled.calls = 0  # type: ignore[attr-defined]
    return scaled


def counting_default() -> Callable[..., float]:
    def scaled(steps: int, calls: list[int] = [0]) -> float:  # noqa: B006 - what people write
        calls[0] += 1
        return float(np.float64(steps) * calls[0])

    return scaled


@pytest.mark.parametrize("make", [counting_function, counting_default])
def test_a_function_that_counts_is_refused(tmp_path: Path, make: Callable[[], Callable[..., float]]) -> None:
    env = Logged(make())
    env.step(0)
    perdure.save(tmp_path / "saved", env=env)
    with pytest.raises(ContractError, match=r"env/scaled/calls.*1 in the run, 0 here"):
        perdure.load(tmp_path / "saved", env=Logged(make()))
