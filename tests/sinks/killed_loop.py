"""A tiny training with sinks, for processes that are killed: `python killed_loop.py DIRECTORY SINK …`.

Prints the number of each boundary. Sinks: `csv`, `tensorboard`, `wandb`, and twins that have lost what makes them
exact: `csv-without-rebuild`, `tensorboard-without-purge`, `wandb-at-once`.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import perdure
from perdure.checkpoint.capture import Counters
from perdure.sinks import Csv, Sink, SinkInfo, TensorBoard, WandB

UPDATES = 60
EVERY = 4


class CsvWithoutRebuild(Csv):
    """A twin that goes on behind whatever stands in the file."""

    def begin(self, info: SinkInfo) -> None:
        path = info.directory / "metrics.csv"
        kept = path.read_bytes() if info.resumed and path.exists() else None
        super().begin(info)
        if kept is not None:
            path.write_bytes(kept)


class TensorBoardWithoutPurge(TensorBoard):
    """A twin that takes no steps back."""

    def purge_from(self, info: SinkInfo) -> None:
        return None


class WandBAtOnce(WandB):
    """A twin that hands rows in before a checkpoint counts them, and never asks W&B how far it came."""

    def row(self, counters: Counters, metrics: Mapping[str, Any]) -> None:
        self._held = -1
        super().row(counters, metrics)
        super().committed(counters, Path(), 0)


OFFLINE: dict[str, Any] = {"mode": "offline", "settings": {"x_transaction_log_flush_interval": 0.05}}


def sink_named(name: str) -> Sink:
    """The sink that a word on the command line means; event files are flushed at every row, so that kills meet them."""
    match name:
        case "csv":
            return Csv()
        case "csv-without-rebuild":
            return CsvWithoutRebuild()
        case "tensorboard":
            return TensorBoard(flush_every_s=0)
        case "tensorboard-without-purge":
            return TensorBoardWithoutPurge(flush_every_s=0)
        case "wandb":
            return WandB("perdure", options=OFFLINE)
        case "wandb-at-once":
            return WandBAtOnce("perdure", options=OFFLINE)
    raise ValueError(name)


def train(directory: Path, sinks: Sequence[Sink], *, updates: int = UPDATES, says: bool = False) -> None:
    """Trains to the end, or goes on; metrics of every kind, and one that begins late."""
    rng, weights = np.random.default_rng(3), np.zeros(4)
    horizon = 10 * updates
    run = perdure.Run(directory, sinks=sinks, every=perdure.Every(updates=EVERY), horizon=horizon)
    s = run.restore(rng=rng, weights=weights)
    weights = s.weights
    writer = run.summary_writer() if any(isinstance(sink, TensorBoard) for sink in sinks) else None
    while run.env_steps < horizon:
        weights = 0.9 * weights + rng.normal(size=4)
        step = run.env_steps + 10
        metrics = {"norm": float(np.abs(weights).sum()), "weights": weights, "text": "nan", "zero": -0.0}
        metrics |= {"late/nan": float("nan"), "late/big": 2**70} if step > horizon // 2 else {}
        if writer is not None:
            writer.add_scalar("own/first", weights[0], step)
        run.boundary(env_steps=step, weights=weights, metrics=metrics)
        if says:
            print(run.boundary_number, flush=True)
    run.finish()


if __name__ == "__main__":
    train(Path(sys.argv[1]), [sink_named(name) for name in sys.argv[2:]], says=True)
