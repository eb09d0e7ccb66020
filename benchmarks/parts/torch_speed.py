"""Part: env-steps per second of PPO with PyTorch, beside Stable-Baselines3's."""

from benchmarks.common.report import Part, Target, number, table
from benchmarks.common.timing import interleaved, note
from benchmarks.trainers.torch_ppo import N_STEPS, OURS, THEIRS, config, ours, stamps, theirs

SIZES = ((4, 4), (4, 8), (8, 4))
"""Environments, and minibatches an epoch. The first is CleanRL's default, and judged."""
UPDATES = {THEIRS: 20, OURS: 60}
WANTED = 3.5

TEXT = f"""\
CartPole-v1, {N_STEPS} steps of each environment between updates, 4 epochs, actor and critic of two layers of 64 each.
Trainings take turns in one process; the first update of each is not counted. Environments are each trainer's own
affair: Stable-Baselines3's are its `DummyVecEnv` with `Monitor`, perdure's are those of `perdure.gym.make_vec`."""

LIMIT = "what is left is mostly PyTorch's dispatch of small products and the environments themselves."


def measure(repeats: int) -> Part:
    """Each size."""
    rows, targets = [], []
    for n_envs, n_minibatches in SIZES:
        note(f"speed: {n_envs} environments, {n_minibatches} minibatches")
        samples = interleaved(
            {
                THEIRS: lambda _turn, size=(n_envs, n_minibatches): _per_step(theirs, THEIRS, *size),
                OURS: lambda _turn, size=(n_envs, n_minibatches): _per_step(ours, OURS, *size),
            },
            repeats,
        )
        ratio = samples[THEIRS].median / samples[OURS].median
        batch = n_envs * N_STEPS // n_minibatches
        for name, sample in samples.items():
            quartiles = ", ".join(f"{1 / value:,.0f}" for value in reversed(sample.quartiles))
            times = number(samples[THEIRS].median / sample.median)
            rows.append(
                (f"{name}, {n_envs} environments, batch {batch}", f"{1 / sample.median:,.0f}", quartiles, times)
            )
        if not targets:
            work = f"throughput, {n_envs} environments, batch {batch}"
            met = ratio >= WANTED
            targets.append(Target(work, f"≥ {WANTED} × {THEIRS}", f"{number(ratio)} ×", is_met=met, limit=LIMIT))
    head = ("trainer", "env-steps / s", "quartiles", f"times {THEIRS}")
    return Part("Throughput", TEXT, [table(head, rows)], targets)


def _per_step(trainer, name: str, n_envs: int, n_minibatches: int) -> float:
    """Seconds an env-step, from the second update on."""
    updates = UPDATES[name]
    found = stamps(trainer, config(updates, n_envs, n_minibatches))
    return (found[-1] - found[0]) / ((updates - 1) * n_envs * N_STEPS)
