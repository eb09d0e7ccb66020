"""Part: a boundary of a PPO training with PyTorch that is not due."""

import time
from pathlib import Path

from benchmarks.common.report import Part, Target, number, time_table
from benchmarks.common.timing import interleaved, note
from benchmarks.trainers.torch_ppo import ENV, config
from perdure import Every, Run
from perdure.torch.actions import actions_of
from perdure.torch.environments import autoreset_mode, factory_of, vector_of
from perdure.torch.ppo import restore, start
from perdure.torch.state import Task

CALLS = 2000
WITHOUT, METRICS = "without metrics", "with the trainer's metrics"
LIMIT = "checks of counters and names in Python."

TEXT = f"""\
One call of `boundary` that saves nothing, with the components of a training: networks, optimizer, environments and
generators live, what is carried from step to step as a value. The mean of {CALLS:,} calls is one measurement."""


def measure(directory: Path, repeats: int) -> Part:
    """Microseconds a call."""
    note("boundaries that are not due")
    options = config(10**9, 4, 4)
    envs = vector_of(factory_of(ENV, options), options)
    state = start(Task(options, actions_of(envs.single_action_space), autoreset_mode(envs), None, None), envs)
    metrics = {f"metric/{number}": number / 7 for number in range(10)}
    with Run(directory, config=options, horizon="total_timesteps", every=Every(minutes=10_000)) as run:
        restore(state, run)
        samples = interleaved(
            {
                WITHOUT: lambda _turn: _batch(run, state.carried, None),
                METRICS: lambda _turn: _batch(run, state.carried, metrics),
            },
            repeats,
        )
    envs.close()
    found = samples[WITHOUT].median * 1e6
    target = Target("a boundary that is not due", "≤ 10 µs", f"{number(found)} µs", is_met=found <= 10, limit=LIMIT)
    return Part("A boundary that is not due", TEXT, [time_table(samples, unit="µs")], [target])


def _batch(run: Run, carried: object, metrics: dict[str, float] | None) -> float:
    first = run.env_steps + 1
    started = time.perf_counter()
    for env_steps in range(first, first + CALLS):
        run.boundary(env_steps=env_steps, carried=carried, metrics=metrics)
    return (time.perf_counter() - started) / CALLS
