"""Part: what links of the digest chain cost a training."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import xxhash

from benchmarks.common.report import Part, Target, number, table, time_table
from benchmarks.common.timing import Sample, interleaved, note
from benchmarks.parts.chain_large import LARGE_TEXT, large_target, measure_large
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

BOUNDARIES = 40
SELDOM = Every(minutes=10_000)
WIDE = (336, 336)
"""Hidden layers with which the weights of actor and critic and their moments come to 2.6 MiB."""

TEXT = f"""\
A link holds the digest of the whole state, so the state is captured and every byte of it is read. First the link alone:
what a boundary takes longer with `chain=1` than without a chain, the median of {BOUNDARIES} in a row, each with another
PPO-sized state; below it its parts. Then trainings with `chain=1` and without a chain in turns, by medians. The share
is all of a boundary with a link, as a part of an update: without a chain some boundaries are held in memory, which
needs a capture too (all of them, where updates are long), so that a link adds less there. How much longer the updates
between take is mostly what this machine cannot tell apart. CartPole is cheap, so its updates are shorter than most."""


def measure(directory: Path, repeats: int) -> Part:
    """Milliseconds a link, and its share of trainings."""
    note("chain: links alone")
    links = _links(directory, repeats)
    note("chain: trainings")
    costs = _costs(directory, max(1, repeats // 4))
    note("chain: 512 MiB")
    large = measure_large(directory / "large", max(3, repeats // 3))
    shown = [(name, *cost.row) for name, cost in costs.items()]
    head = (
        "training",
        "update, ms",
        "boundary with a link, ms",
        "without, ms",
        "share",
        "updates between",
        "1 % of, ms",
    )
    tables = ["A link alone:", time_table(links), "Trainings:", table(head, shown), LARGE_TEXT, time_table(large)]
    return Part("The digest chain", TEXT, tables, [*_targets(costs), large_target(large)])


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


@dataclass(frozen=True)
class Cost:
    """What a link costs a training, in seconds."""

    update: float
    """An update without a chain."""
    link: float
    """A boundary with a link."""
    plain: float
    """A boundary without a chain."""
    between: float
    """That updates between boundaries with links take longer."""

    @property
    def share(self) -> float:
        """Of a training with a link at every boundary."""
        return self.link / self.update

    @property
    def row(self) -> tuple[str, ...]:
        """Milliseconds of an update and of boundaries; shares; milliseconds of an update of which a link is 1 %."""
        figures = [number(1e3 * value) for value in (self.update, self.link, self.plain)]
        shares = [f"{100 * share:+.2f} %" for share in (self.share, self.between / self.update)]
        return (*figures, *shares, number(1e5 * self.link))


Span = tuple[float, float]
"""When a boundary began, and when it ended."""


class Clocked(Run):
    """A run that notes when each of its boundaries began and ended."""

    def __init__(self, directory: Path, **options: Any) -> None:
        """Opens it."""
        super().__init__(directory, **options)
        self.spans: list[Span] = []

    def boundary(self, **arguments: Any) -> None:
        """A boundary of the run."""
        started = time.perf_counter()
        super().boundary(**arguments)
        self.spans.append((started, time.perf_counter()))


def cost_of(linked: Sequence[Sequence[Span]], plain: Sequence[Sequence[Span]]) -> Cost:
    """What links at every boundary cost, by medians.

    Args:
        linked: the boundaries of each training with links.
        plain: of each without.
    """
    boundaries = [statistics.median(_boundaries_of(each)) for each in (linked, plain)]
    updates = [statistics.median(_updates(each)) for each in (linked, plain)]
    return Cost(updates[1], boundaries[0], boundaries[1], updates[0] - updates[1])


def _boundaries_of(trainings: Sequence[Sequence[Span]]) -> list[float]:
    return [ended - began for spans in trainings for began, ended in spans]


def _updates(trainings: Sequence[Sequence[Span]]) -> list[float]:
    return [after[0] - before[1] for spans in trainings for before, after in pairwise(spans)]


Work = Callable[[Path, int | None], Sequence[Span]]


def _costs(directory: Path, turns: int) -> dict[str, Cost]:
    trainings: dict[str, Work] = {
        "PyTorch, CartPole, layers of 64": partial(_torch, "CartPole-v1", PPOConfig(), 150),
        f"PyTorch, CartPole, {SIZED}": partial(_torch, "CartPole-v1", PPOConfig(hidden_sizes=WIDE), 80),
        f"PyTorch, Pendulum, 2,048 steps, 10 epochs, {SIZED}": partial(_torch, "Pendulum-v1", CONTINUOUS, 21),
        f"JAX, CartPole, 256 environments, {SIZED}": partial(_nnx, 80),
    }
    found: dict[tuple[str, int | None], list[Sequence[Span]]] = {}

    def training(name: str, chain: int | None, turn: int) -> float:
        spans = trainings[name](directory / f"training_{time.monotonic_ns()}", chain)
        if turn:
            found.setdefault((name, chain), []).append(spans)
        return spans[-1][1] - spans[0][1]

    works = {f"{name}, {chain}": partial(training, name, chain) for name in trainings for chain in (1, None)}
    interleaved(works, turns)
    return {name: cost_of(found[name, 1], found[name, None]) for name in trainings}


SIZED = "2.6 MiB"
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
                f"a boundary with a link takes {number(1e3 * cost.link)} ms, most of it Python that walks objects, and "
                f"an update only {number(1e3 * cost.update)} ms; 1 % needs updates of {number(1e5 * cost.link)} ms, or "
                f"a link every {cost.share * 100:.0f} boundaries."
            )
            found = f"{100 * cost.share:+.2f} %"
            yield Target(f"chain, {name}, every boundary", "≤ 1 %", found, is_met=cost.share <= 0.01, limit=limit)
