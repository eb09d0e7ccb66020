"""PyTorch's `SummaryWriter` on the event file of a run: images, histograms, figures and all it can do."""

from typing import Any

from torch.utils.tensorboard.writer import FileWriter, SummaryWriter

from perdure.sinks.tensorboard_files import EventFile


class _Events:
    """What PyTorch's `FileWriter` expects of an event writer; the run alone closes the file."""

    def __init__(self, events: EventFile) -> None:
        self._events = events

    def add_event(self, event: Any) -> None:
        self._events.add(event)

    def get_logdir(self) -> str:
        return str(self._events.directory)

    def flush(self) -> None:
        self._events.flush()

    def close(self) -> None:
        self._events.flush()

    def reopen(self) -> None:
        """It is open as long as the run is."""


class _FileWriter(FileWriter):
    def __init__(self, events: EventFile) -> None:
        # The base class would create an event file of its own.
        self.event_writer = _Events(events)


class TorchSummaryWriter(SummaryWriter):
    """PyTorch's writer; `global_step` is env_steps. `add_hparams` opens files that no resume takes back."""

    def __init__(self, events: EventFile) -> None:
        """Writes to the event file of a run."""
        self._file = _FileWriter(events)
        super().__init__(log_dir=str(events.directory))

    def _get_file_writer(self) -> FileWriter:
        """The base class asks for it at every call, and made its own here."""
        self.file_writer = self._file
        self.all_writers = {self._file.get_logdir(): self._file}
        return self._file
