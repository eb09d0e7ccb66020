"""Part: what links of the digest chain cost a training."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch
import xxhash

from benchmarks.common.report import Part, Target, number, table, time_table
from benchmarks.common.timing import Sample, interleaved, note
from benchmarks.parts.large import MEBIBYTES
from benchmarks.peers.states import Make, as_jax, as_torch, made, ppo_state
from perdure import Every, Run
from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.format.known import Known
from perdure.format.state_digest import component_digests
from perdure.nnx.config import EvalConfig, NetworkConfig, TrainConfig
from perdure.nnx.config import PPOConfig as NnxConfig
from perdure.nnx.launch import build
from perdure.nnx.training import HORIZON, train_ppo
from perdure.torch import PPOConfig, train

EVERY = 10
BOUNDARIES = 40
SELDOM = Every(minutes=10_000)
WIDE = (336, 336)
"""Hidden layers with which the weights of actor and critic and their moments come to 2.6 MiB."""

TEXT = f"""\
A link holds the digest of the whole state, so the state is captured and every byte of it is read. First the link alone:
what a boundary takes longer with `chain=1` than without a chain, the median of {BOUNDARIES} in a row, each with another
PPO-sized state; below it its parts. Then trainings with links at every {EVERY}th boundary: how much longer such a
boundary takes than the others of its training, by medians; the share of an update that is; and how much longer the
update behind it takes than the others, for what the link leaves in the caches. So the share is that of a chain with a
link at *every* boundary. A training without a chain is the control of each: its differences should be 0, and are what
this machine can tell apart. CartPole is cheap, so its updates are shorter than most."""

LARGE_TEXT = """\
{width} × {width} weights in each of {layers} layers and Adam's moments of them: {size} MiB. One minibatch is forward,
backward and Adam for {rows} rows, with all threads of PyTorch; `perdure.torch.train` makes 16 of them an update. A link
at every {every}th boundary costs a tenth of itself per update."""


def measure(directory: Path, repeats: int) -> Part:
    """Milliseconds a link, and its share of trainings."""
    note("chain: links alone")
    links = _links(directory, repeats)
    note("chain: trainings")
    costs = _costs(directory, max(1, repeats // 4))
    note("chain: 512 MiB")
    large = _large(directory / "large", max(3, repeats // 3))
    shown = [(name, *cost.row) for name, cost in costs.items()]
    head = ("training", "update, ms", "a link, ms", "share", "the update behind it", "1 % of, ms")
    text = LARGE_TEXT.format(width=WIDTH, layers=LAYERS, size=number(_large_mebibytes()), rows=ROWS, every=EVERY)
    tables = ["A link alone:", time_table(links), "Trainings:", table(head, shown), text, time_table(large)]
    return Part("The digest chain", TEXT, tables, [*_targets(costs), _large_target(large)])


# --- a link alone


def _links(directory: Path, repeats: int) -> dict[str, Sample]:
    works: dict[str, Callable[[int], float]] = {}
    for name, make in (("JAX", as_jax), ("PyTorch", as_torch)):
        works[f"a link, 80 arrays of {name}"] = partial(_link, directory / name, make)
        works[f"of that capture, {name}"] = partial(_capture, make)
        works[f"of that digests, {name}"] = partial(_digests, make)
    works["XXH3-128 of as many bytes in one piece"] = _hash
    return interleaved(works, repeats)


def _link(directory: Path, make: Make, turn: int) -> float:
    """Seconds that a link adds to a boundary."""
    states = [made(ppo_state(seed), make) for seed in range(BOUNDARIES)]
    taken = [_boundaries(directory / f"{turn}_{chain}", states, chain) for chain in (1, None)]
    return taken[0] - taken[1]


def _boundaries(directory: Path, states: Sequence[dict[str, Any]], chain: int | None) -> float:
    with Run(directory, every=SELDOM, chain=chain) as run:
        run.restore(**states[0])
        return _median(lambda state: run.boundary(env_steps=run.env_steps + 1, **state), states)


def _capture(make: Make, _turn: int) -> float:
    states = [made(ppo_state(seed), make) for seed in range(BOUNDARIES)]
    return _median(lambda state: capture(state, Resolver(), Counters()), states)


def _digests(make: Make, _turn: int) -> float:
    states = [made(ppo_state(seed), make) for seed in range(BOUNDARIES)]
    snapshots = [capture(state, Resolver(), Counters()).snapshot for state in states]
    known = Known()
    return _median(lambda snapshot: component_digests(snapshot, memory=known.forms), snapshots)


def _hash(_turn: int) -> float:
    size = sum(array.nbytes for part in ppo_state(0).values() for array in part.values())
    return _median(xxhash.xxh3_128_hexdigest, [bytes([seed]) * size for seed in range(BOUNDARIES)])


def _median(work: Callable[[Any], object], objects: Sequence[Any]) -> float:
    """Seconds a call."""
    taken = []
    for each in objects:
        started = time.perf_counter()
        work(each)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


# --- trainings


@dataclass(frozen=True)
class Cost:
    """What a link costs a training, in seconds."""

    update: float
    """Of an update that follows no link."""
    link: float
    """That a boundary with a link takes longer."""
    behind: float
    """That the update behind it takes longer."""

    @property
    def share(self) -> float:
        """Of a training with a link at every boundary."""
        return self.link / self.update

    @property
    def row(self) -> tuple[str, ...]:
        """Milliseconds of an update and a link; shares; the milliseconds of an update of which a link is 1 %."""
        shares = (self.share, self.behind / self.update)
        figures = (number(1e3 * self.update), number(1e3 * self.link), *(f"{100 * share:+.2f} %" for share in shares))
        return (*figures, number(1e5 * self.link))


class Clocked(Run):
    """A run that notes when each of its boundaries began and ended."""

    def boundary(self, **arguments: Any) -> None:
        """A boundary of the run."""
        started = time.perf_counter()
        super().boundary(**arguments)
        self.spans = [*getattr(self, "spans", ()), (started, time.perf_counter())]


Span = tuple[float, float]
"""When a boundary began, and when it ended."""


def cost_of(trainings: Sequence[Sequence[Span]]) -> Cost:
    """What links at every EVERY-th boundary cost, by medians.

    Args:
        trainings: the boundaries of each, from number 1 on.
    """
    boundaries: dict[bool, list[float]] = {True: [], False: []}
    updates: dict[bool, list[float]] = {True: [], False: []}
    for spans in trainings:
        for number_before, (before, after) in enumerate(pairwise(spans), start=1):
            boundaries[(number_before + 1) % EVERY == 0].append(after[1] - after[0])
            updates[number_before % EVERY == 0].append(after[0] - before[1])
    median = {is_link: statistics.median(found) for is_link, found in updates.items()}
    link = statistics.median(boundaries[True]) - statistics.median(boundaries[False])
    return Cost(median[False], link, median[True] - median[False])


Work = Callable[[Path, int | None], Sequence[Span]]


def _costs(directory: Path, turns: int) -> dict[str, Cost]:
    trainings: dict[str, Work] = {
        "PyTorch, CartPole, layers of 64": partial(_torch, "CartPole-v1", PPOConfig(), 150),
        f"PyTorch, CartPole, {SIZED}": partial(_torch, "CartPole-v1", PPOConfig(hidden_sizes=WIDE), 80),
        f"PyTorch, Pendulum, 2,048 steps, 10 epochs, {SIZED}": partial(_torch, "Pendulum-v1", CONTINUOUS, 21),
        f"JAX, CartPole, 256 environments, {SIZED}": partial(_nnx, 80),
    }
    found: dict[str, list[Sequence[Span]]] = {}

    def training(name: str, work: Work, chain: int | None, turn: int) -> float:
        spans = work(directory / f"training_{time.monotonic_ns()}", chain)
        if turn:
            found.setdefault(name, []).append(spans)
        return spans[-1][1] - spans[0][1]

    works = {}
    for name, work in trainings.items():
        works[name] = partial(training, name, work, EVERY)
        works[f"{name}{CONTROL}"] = partial(training, f"{name}{CONTROL}", work, None)
    interleaved(works, turns)
    return {name: cost_of(found[name]) for name in works}


SIZED, CONTROL = "2.6 MiB", ", no chain"
CONTINUOUS = PPOConfig(n_envs=1, n_steps=2048, n_epochs=10, n_minibatches=32, hidden_sizes=WIDE)
"""What is usual for continuous control (arXiv:1707.06347, table 3), but for the layers."""


def _torch(env: str, config: PPOConfig, updates: int, directory: Path, chain: int | None) -> Sequence[Span]:
    options = replace(config, total_timesteps=updates * config.steps_per_update)
    with Clocked(directory, config=options, horizon="total_timesteps", every=SELDOM, chain=chain) as run:
        train(env, options, run=run)
        return run.spans


def _nnx(updates: int, directory: Path, chain: int | None) -> Sequence[Span]:
    options = NnxConfig(total_steps=updates * NnxConfig().steps_per_iteration)
    config = TrainConfig(ppo=options, eval=EvalConfig(enabled=False))
    env, networks = build("CartPole-v1", NetworkConfig(actor_hidden_sizes=WIDE, critic_hidden_sizes=WIDE), seed=0)
    with Clocked(directory, config=config, horizon=HORIZON, every=SELDOM, chain=chain) as run:
        train_ppo(env, networks, config, run=run)
        return run.spans


def _targets(costs: dict[str, Cost]) -> Iterator[Target]:
    for name, cost in costs.items():
        if name.endswith(SIZED):
            limit = (
                f"a link takes {number(1e3 * cost.link)} ms, most of it Python that walks objects, and an update only "
                f"{number(1e3 * cost.update)} ms; 1 % needs updates of {number(1e5 * cost.link)} ms, or a link every "
                f"{cost.share * 100:.0f} boundaries."
            )
            found = f"{100 * cost.share:+.2f} %"
            yield Target(f"chain, {name}, every boundary", "≤ 1 %", found, is_met=cost.share <= 0.01, limit=limit)


# --- half a gibibyte

WIDTH, LAYERS, ROWS = 3856, 3, 128
UPDATE, LINK, NO_LINK = "one minibatch", "a boundary with a link", "a boundary without"


def _large_mebibytes() -> float:
    return LAYERS * (WIDTH + 1) * WIDTH * 4 * 3 / 2**20


def _large(directory: Path, turns: int) -> dict[str, Sample]:
    layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    networks = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(networks.parameters(), lr=1e-4, fused=True)
    found: dict[str, list[float]] = {UPDATE: [], LINK: [], NO_LINK: []}
    with Run(directory, every=SELDOM, chain=EVERY) as run:
        run.restore(networks=networks, optimizer=optimizer)
        for boundary in islice(range(1, 10**9), (turns + 1) * EVERY):
            started = time.perf_counter()
            _update(networks, optimizer)
            updated = time.perf_counter()
            run.boundary(env_steps=boundary)
            if boundary > EVERY:
                found[UPDATE].append(updated - started)
                found[NO_LINK if boundary % EVERY else LINK].append(time.perf_counter() - updated)
    return {name: Sample(tuple(values)) for name, values in found.items()}


def _update(networks: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    loss = networks(torch.randn(ROWS, WIDTH)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _large_target(large: dict[str, Sample]) -> Target:
    link, update = large[LINK].median - large[NO_LINK].median, large[UPDATE].median
    share = link / (EVERY * update)
    limit = f"a link takes {number(1e3 * link)} ms; 2 % needs updates of {number(1e3 * link / EVERY / 0.02)} ms."
    work = f"chain, {MEBIBYTES} MiB, every {EVERY}th boundary, updates of one minibatch"
    return Target(work, "≤ 2 %", f"{100 * share:+.2f} %", is_met=share <= 0.02, limit=limit)
