"""A toy training over a `Run`, and what its directory holds: shared by the tests of `Run`."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from perdure import Every, Run
from perdure.checkpoint.opening import read_manifest
from perdure.runs.directory import RunDirectory
from perdure.runs.lineage import read_lineage

CONFIG = {"total": 80, "lr": 0.5, "seed": 1, "track": False}


class Learner:
    """A learner with an optimizer-like state, restored in place."""

    def __init__(self) -> None:
        self.weights, self.momentum = np.zeros(2), np.zeros(2)

    def step(self, gradient: np.ndarray) -> None:
        self.momentum = 0.9 * self.momentum + gradient
        self.weights = self.weights - 0.1 * self.momentum

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights, "momentum": self.momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights, self.momentum = state["weights"], state["momentum"]


class Training:
    """A toy training: live learner and generator, a value, and the process's generators.

    It seeds the process's generators: tests that use it ask for the fixture `global_generators`.
    """

    def __init__(self, directory: Path, *, seed: int = 0, **options: Any) -> None:
        self.learner, self.rng = Learner(), np.random.default_rng(seed)
        random.seed(seed)
        np.random.seed(seed)
        options = {"config": CONFIG, "horizon": "total", "every": Every(updates=1), "keep": None, **options}
        self.run = Run(directory, **options)
        self.observation = np.zeros(2, np.float32)

    def restore(self) -> "Training":
        s = self.run.restore(learner=self.learner, rng=self.rng, observation=self.observation)
        self.observation = s.observation
        return self

    def update(self) -> None:
        noise = self.rng.normal(size=2) + random.gauss(0, 1) + np.random.randn()
        self.observation = (0.5 * self.observation + noise).astype(np.float32)
        self.learner.step(self.observation.astype(float))

    def boundary(self, **options: Any) -> None:
        self.run.boundary(
            env_steps=self.run.env_steps + 10,
            observation=self.observation,
            metrics={"norm": float(np.abs(self.learner.weights).sum())},
            **options,
        )

    def go(self, updates: int) -> "Training":
        for _ in range(updates):
            self.update()
            self.boundary()
        return self

    def stop(self) -> None:
        """Gives the run up before its end."""
        self.run.close()


def checkpoint_names(directory: Path) -> list[str]:
    """The checkpoints of a run, oldest first."""
    return RunDirectory(directory).store().names()


def states(directory: Path) -> dict[str, str]:
    """The state digest of every checkpoint of a run."""
    store = RunDirectory(directory).store()
    return {name: read_manifest(store, name)[0].state_digest for name in store.names()}


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a run but the lock's."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != ".writer.lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def names(path: Path) -> list[str]:
    """What stands in a directory."""
    return sorted(entry.name for entry in path.iterdir())


def rows(directory: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics."""
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def events(directory: Path) -> list[str]:
    """What happened to a run."""
    return [event["event"] for event in read_lineage(directory / "lineage.jsonl")]
