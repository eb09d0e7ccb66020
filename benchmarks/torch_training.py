"""Env-steps per second of PPO with PyTorch beside Stable-Baselines3's, at equal learning, and what checkpoints cost."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.common.machine import OtherWork, describe_machine, describe_versions
from benchmarks.common.report import render
from benchmarks.common.scratch import PROJECT, scratch
from benchmarks.parts import torch_boundaries, torch_checkpoints, torch_learning, torch_speed

RESULTS = Path(__file__).parent / "results" / "torch_training.md"


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(prog="./dev bench torch_training", description=__doc__)
    parser.add_argument("--repeats", type=int, default=9, help="turns of each trainer")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    others = OtherWork()
    with scratch() as directory:
        parts = [
            torch_speed.measure(options.repeats),
            torch_learning.measure(),
            torch_checkpoints.measure(directory / "checkpoints", options.repeats),
            torch_boundaries.measure(directory / "boundaries", options.repeats),
        ]
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": describe_versions(),
        "machine": describe_machine(PROJECT),
        "other work": others.describe(),
        "threads": "one, of PyTorch",
    }
    text = render("PPO with PyTorch", facts, parts)
    print(text)
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
