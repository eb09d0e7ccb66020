"""Where the metric rows of a run go besides `metrics.jsonl`: `Run(sinks=[Console(), Csv(), TensorBoard()])`."""

from perdure.sinks.console import Console
from perdure.sinks.csv_file import Csv, read_csv
from perdure.sinks.sink import Sink, SinkInfo
from perdure.sinks.tensorboard import TensorBoard
from perdure.sinks.wandb import WandB

__all__ = ["Console", "Csv", "Sink", "SinkInfo", "TensorBoard", "WandB", "read_csv"]
