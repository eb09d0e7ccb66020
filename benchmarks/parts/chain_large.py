"""Part of the chain's: links of a state of half a gibibyte."""

import time
from pathlib import Path

import torch

from benchmarks.common.report import Target, number
from benchmarks.common.timing import Sample
from benchmarks.parts.large import MEBIBYTES
from perdure import Every, Run

EVERY = 10
WIDTH, LAYERS, ROWS = 3856, 3, 128
UPDATE, LINK, NO_LINK = "one minibatch", "a boundary with a link", "a boundary without"
SIZE_MIB = LAYERS * (WIDTH + 1) * WIDTH * 4 * 3 / 2**20

LARGE_TEXT = f"""\
{WIDTH} × {WIDTH} weights in each of {LAYERS} layers and Adam's moments of them: {number(SIZE_MIB)} MiB, a link at every
{EVERY}th boundary. One minibatch is forward, backward and Adam for {ROWS} rows, with all threads of PyTorch;
`perdure.torch.train` makes 16 of them an update."""


def measure_large(directory: Path, turns: int) -> dict[str, Sample]:
    """Seconds of updates and of boundaries.

    Args:
        directory: of the run.
        turns: links that are counted.
    """
    layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    networks = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(networks.parameters(), lr=1e-4, fused=True)
    found: dict[str, list[float]] = {UPDATE: [], LINK: [], NO_LINK: []}
    with Run(directory, every=Every(minutes=10_000), chain=EVERY) as run:
        run.restore(networks=networks, optimizer=optimizer)
        for boundary in range(1, (turns + 1) * EVERY + 1):
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


def large_target(large: dict[str, Sample]) -> Target:
    """What is asked for, of updates of a single minibatch."""
    link, update = large[LINK].median - large[NO_LINK].median, large[UPDATE].median
    share = link / (EVERY * update)
    limit = f"a link takes {number(1e3 * link)} ms; 2 % needs updates of {number(1e3 * link / EVERY / 0.02)} ms."
    work = f"chain, {MEBIBYTES} MiB, every {EVERY}th boundary, updates of one minibatch"
    return Target(work, "≤ 2 %", f"{100 * share:+.2f} %", is_met=share <= 0.02, limit=limit)
