"""The writer that a script gets: PyTorch's if PyTorch is loaded, else a small one with the same methods."""

import sys
from pathlib import Path
from typing import Any, SupportsFloat, SupportsInt

from perdure.sinks.tensorboard_files import EventFile, float32
from perdure.sinks.tensorboard_protos import DT_STRING, Event, Summary, SummaryMetadata, TensorProto, TensorShapeProto


class SummaryWriter:
    """`add_scalar` and `add_text` of `torch.utils.tensorboard.SummaryWriter`, without PyTorch."""

    def __init__(self, events: EventFile) -> None:
        """Writes to the event file of a run."""
        self._events = events

    @property
    def log_dir(self) -> Path:
        """Where the event files are."""
        return self._events.directory

    def add_scalar(
        self, tag: str, scalar_value: SupportsFloat, global_step: SupportsInt, walltime: float | None = None
    ) -> None:
        """Adds a number.

        Args:
            tag: its name.
            scalar_value: a number, or an array of one.
            global_step: env_steps.
            walltime: seconds since 1970; None: now.
        """
        number = scalar_value if isinstance(scalar_value, int) else float(scalar_value)
        self._add(Summary.Value(tag=tag, simple_value=float32(number)), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: SupportsInt, walltime: float | None = None) -> None:
        """Adds a text, in Markdown.

        Args:
            tag: its name.
            text_string: the text.
            global_step: env_steps.
            walltime: seconds since 1970; None: now.
        """
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype=DT_STRING, string_val=[text_string.encode()], tensor_shape=shape)
        # PyTorch names it so, too; both writers may have written to one run.
        self._add(Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=tensor), global_step, walltime)

    def flush(self) -> None:
        """Makes everything so far durable."""
        self._events.flush()

    def close(self) -> None:
        """Flushes; the run closes the file."""
        self._events.flush()

    def _add(self, value: Any, step: SupportsInt, walltime: float | None) -> None:
        self._events.add(Event(step=int(step), wall_time=walltime or 0.0, summary=Summary(value=[value])))


def writer_on(events: EventFile) -> Any:
    """A writer to this event file."""
    if "torch" in sys.modules:
        from perdure.sinks.torch_writer import TorchSummaryWriter

        return TorchSummaryWriter(events)
    return SummaryWriter(events)
