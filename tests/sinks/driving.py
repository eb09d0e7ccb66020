"""A run with one sink, opened as often as a test likes, saved at every second boundary."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import perdure
from perdure.sinks import Sink


class Driver:
    """Opens a run; its boundaries are ten env-steps apart."""

    def __init__(self, directory: Path, make: Callable[[], Sink] | None) -> None:
        self.directory = directory
        self.make = make

    def open(self, *, every: int = 2, keep: perdure.Keep | None = None) -> perdure.Run:
        sinks = [self.make()] if self.make else []
        run = perdure.Run(
            self.directory, sinks=sinks, every=perdure.Every(updates=every), keep=keep, background=False, horizon=1000
        )
        run.restore(x=0)
        return run

    def step(self, run: perdure.Run, **metrics: Any) -> None:
        run.boundary(env_steps=run.env_steps + 10, x=run.env_steps, metrics=metrics)
