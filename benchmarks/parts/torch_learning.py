"""Part: how many env-steps PPO with PyTorch takes to solve CartPole, beside Stable-Baselines3's."""

import statistics
from collections import deque

from benchmarks.common.report import Part, Target, table
from benchmarks.common.timing import note
from benchmarks.trainers.torch_ppo import N_STEPS, OURS, THEIRS, config, ours, theirs

SOLVED = 475.0
SEEDS = (1, 2, 3)
BUDGET = 250_000
N_ENVS, N_MINIBATCHES, WINDOW = 4, 4, 20

TEXT = f"""\
CartPole-v1 counts as solved where the mean return of the last {WINDOW} updates in which episodes ended reaches
{SOLVED:g}; {N_ENVS} environments, {N_MINIBATCHES} minibatches, as under *Throughput*, at most {BUDGET:,} env-steps,
over {len(SEEDS)} seeds. Same algorithm, other random numbers: seeds differ
by more than trainers."""


class _Solved(Exception):
    pass


def measure() -> Part:
    """Env-steps until it is solved, seed by seed."""
    rows, found = [], {}
    for name, trainer in ((THEIRS, theirs), (OURS, ours)):
        note(f"learning: {name}")
        found[name] = [_steps_to_solve(trainer, seed) for seed in SEEDS]
        steps = ["–" if each is None else f"{each:,}" for each in found[name]]
        rows.append((name, *steps))
    solved = [each for each in found[OURS] if each is not None]
    text = f"{len(solved)} of {len(SEEDS)}" + (f", median {statistics.median(solved):,.0f} steps" if solved else "")
    target = Target(
        f"CartPole-v1 solved in {BUDGET:,} env-steps",
        "every seed",
        text,
        is_met=len(solved) == len(SEEDS),
        limit="look at the other trainer's row: the budget is the same.",
    )
    return Part("Learning", TEXT, [table(("trainer", *(f"seed {seed}" for seed in SEEDS)), rows)], [target])


def _steps_to_solve(trainer, seed: int) -> int | None:
    recent: deque[float] = deque(maxlen=WINDOW)

    def on_update(steps: int, mean: float | None) -> None:
        if mean is not None:
            recent.append(mean)
        if len(recent) == WINDOW and statistics.mean(recent) >= SOLVED:
            raise _Solved(steps)

    try:
        trainer(config(BUDGET // (N_ENVS * N_STEPS), N_ENVS, N_MINIBATCHES, seed=seed), on_update)
    except _Solved as solved:
        return int(solved.args[0])
    return None
