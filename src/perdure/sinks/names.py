"""Sinks by name, as the command line and launch records know them."""

from typing import Literal, assert_never

from perdure.sinks.csv_file import Csv
from perdure.sinks.sink import Sink
from perdure.sinks.tensorboard import TensorBoard
from perdure.sinks.wandb import WandB

Name = Literal["csv", "tensorboard", "wandb"]


def sink_named(name: Name) -> Sink:
    """The sink with its defaults.

    Raises:
        UsageError: what it needs is not installed.
    """
    match name:
        case "csv":
            return Csv()
        case "tensorboard":
            return TensorBoard()
        case "wandb":
            return WandB()
        case _:
            assert_never(name)
