"""Env-steps per second of PPO beside nnx-ppo, at equal learning, and what a checkpoint at every iteration costs."""

import argparse
import json
import statistics
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.common.machine import OtherWork, describe_machine, describe_versions
from benchmarks.common.report import Part, Target, number, render, table
from benchmarks.common.scratch import PROJECT, scratch
from benchmarks.common.timing import Sample, interleaved, note

RESULTS = Path(__file__).parent / "results" / "training.md"
PEER = PROJECT / ".cache" / "nnx-ppo"
LOCK = PROJECT / "requirements-nnx-ppo.lock"
SIZES = {("mlp", 256): 2.0, ("mlp", 1024): 2.0, ("lstm", 256): 1.3, ("lstm", 1024): 1.3}
"""Networks and environments -> how many times as fast as nnx-ppo it is to be."""
LENGTH = 20
STRETCH = 16
"""Iterations at a time, at least: after a pause the first one or two are slower, for all trainers."""
CURVE = 60
"""Iterations of which rewards are compared."""
THEIRS, OURS, SPLIT, SAVED = "nnx-ppo", "perdure", "perdure, 2 devices", "perdure, a checkpoint each iteration"


@dataclass
class Trainer:
    """A training in a process of its own, which goes on as far as it is told."""

    process: subprocess.Popen[str]
    """It."""
    compile_s: float
    """Seconds of its first two iterations, compilation included."""

    def go_on(self, iterations: int) -> dict[str, object]:
        """Let it take so many iterations; returns their seconds and rewards."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{iterations}\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """Let it go."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict[str, object]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args}: ended early")
        return json.loads(line)

    @classmethod
    def start(cls, command: Sequence[str]) -> "Trainer":
        """Begin, and wait until everything is compiled."""
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT)
        trainer = cls(process, 0.0)
        trainer.compile_s = float(str(trainer._answer()["seconds"]))
        return trainer


def main(argv: Sequence[str] | None = None) -> None:
    """Measures every size and writes the results."""
    parser = argparse.ArgumentParser(prog="./dev bench training", description=__doc__)
    parser.add_argument("--repeats", type=int, default=9, help="turns of each trainer")
    options = parser.parse_args(argv)
    python, others = prepare_peer(), OtherWork()
    with scratch() as directory:
        parts = [measure(python, *size, options.repeats, directory / f"{size[0]}{size[1]}") for size in SIZES]
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": f"{describe_versions()}, nnx-ppo 0.2.1 in an environment of its own",
        "machine": describe_machine(PROJECT),
        "other work": others.describe(),
        "settings": f"{LENGTH} steps, 4 epochs of 4 minibatches, Adam at 1e-3, no evaluation, losses logged",
    }
    text = render("Training", facts, parts)
    print(text)
    RESULTS.write_text(text, encoding="utf-8")


def prepare_peer() -> str:
    """The Python of nnx-ppo's environment, which is made if it is not there."""
    python, stamp = PEER / "bin" / "python", PEER / ".stamp"
    if not stamp.exists() or stamp.read_text() != LOCK.read_text():
        note("making nnx-ppo's environment")
        venv.create(PEER, with_pip=True, clear=True)
        subprocess.check_call([python, "-m", "pip", "install", "-q", "-r", LOCK])
        stamp.write_text(LOCK.read_text())
    return str(python)


def commands(python: str, kind: str, n_envs: int, curve: str, run: str | None = None) -> dict[str, list[str]]:
    """How each trainer is started."""
    ours = [sys.executable, "-m", "benchmarks.trainers.perdure_ppo", kind, str(n_envs)]
    found = {
        THEIRS: [python, "-m", "benchmarks.trainers.nnx_ppo_ppo", kind, str(n_envs), curve],
        OURS: [*ours, "1", curve],
        SPLIT: [*ours, "2", curve],
    }
    return found if run is None else {**found, SAVED: [*ours, "1", curve, run]}


def measure(python: str, kind: str, n_envs: int, repeats: int, run: Path) -> Part:
    """One network and number of environments."""
    note(f"{kind}, {n_envs} environments")
    iterations = max(STRETCH, 5120 // n_envs)
    trainers = {name: Trainer.start(command) for name, command in commands(python, kind, n_envs, "0", str(run)).items()}
    works = {name: _work(trainer, iterations) for name, trainer in trainers.items()}
    samples = interleaved(works, repeats)
    for trainer in trainers.values():
        trainer.end()
    steps = iterations * LENGTH * n_envs
    return report(kind, n_envs, steps, samples, trainers, curves(python, kind, n_envs))


def _work(trainer: Trainer, iterations: int):
    return lambda _turn: float(str(trainer.go_on(iterations)["seconds"]))


def curves(python: str, kind: str, n_envs: int) -> dict[str, float]:
    """The mean reward of a rollout after `CURVE` iterations, over its last five."""
    found = {}
    for name, command in commands(python, kind, n_envs, "1").items():
        trainer = Trainer.start(command)
        rewards = trainer.go_on(CURVE)["rewards"]
        assert isinstance(rewards, list)
        found[name] = statistics.mean(rewards[-5:])
        trainer.end()
    return found


def report(
    kind: str,
    n_envs: int,
    steps: int,
    samples: Mapping[str, Sample],
    trainers: Mapping[str, Trainer],
    rewards: Mapping[str, float],
) -> Part:
    """The table of one size, and what is asked for."""
    rows = []
    for name, sample in samples.items():
        rate = steps / sample.median
        times = f"{number(samples[THEIRS].median / sample.median)} ×"
        reward = f"{rewards[name]:.3f}" if name in rewards else "–"
        rows.append((name, f"{rate:,.0f}", times, number(trainers[name].compile_s), reward))
    head = ("trainer", "env-steps / s", f"of {THEIRS}", "first two iterations, s", f"reward after {CURVE} iterations")
    title = f"{kind.upper()}, {n_envs:,} environments"
    wanted, cost = SIZES[kind, n_envs], samples[SAVED].median / samples[OURS].median - 1
    best = min((OURS, SPLIT), key=lambda name: samples[name].median)
    ratio = samples[THEIRS].median / samples[best].median
    targets = [
        Target(title, f"≥ {wanted:g} × nnx-ppo", f"{number(ratio)} × ({best})", ratio >= wanted, LIMIT),
        Target(f"{title}, a checkpoint each iteration", "≤ 3 % slower", f"{100 * cost:.1f} %", cost <= 0.03, WRITER),
    ]
    return Part(title, "", [table(head, rows)], targets)


LIMIT = "both trainers spend most of an iteration in the same matrix products."
WRITER = "the writer's Python shares the processor with XLA."

if __name__ == "__main__":
    main()
