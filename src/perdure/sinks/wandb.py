"""Weights & Biases: one run over all resumes, each step once."""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perdure.checkpoint.capture import Counters
from perdure.errors import UsageError
from perdure.sinks.sink import Row, Sink, SinkInfo
from perdure.store.small_files import replace_durably

CURSOR = "wandb.json"
"""In the run's directory: the run's id there, and up to which step W&B surely has the rows."""

ATTEMPT = "attempt"
"""The column that says which opening of the run handed a row in."""


class WandB(Sink):
    """Hands rows to Weights & Biases when a checkpoint that counts them is durable: it takes nothing back.

    The run there has the id that stands in `wandb.json`, at first the run's own, so that every resume goes on with it.
    Rows bear `step=env_steps`: W&B takes steps in order only, and refuses a step that it has; without it, a resume
    offline would count steps from 0 again, and what several attempts left could not be synced into one history. Hence
    log nothing else to this W&B run with a greater step than the last checkpoint's.

    A row is the metrics, `env_steps`, `updates`, `boundary` and `attempt`: the opening that handed it in. After a step
    back over a damaged checkpoint, rows that W&B has already are not handed in again.

    When the run is opened, W&B is asked how far it came: the server for the run's last step, or, offline, the files
    themselves. wandb writes those some seconds late, so that a kill loses rows that were handed in; they are handed in
    again.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        name: str | None = None,
        id: str | None = None,
        config: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepares the sink.

        Args:
            project: W&B's project.
            name: the run's name there.
            id: the run's id there; default: the one in `wandb.json`, else this run's.
            config: what W&B shows as the run's configuration.
            options: further arguments of `wandb.init`, `{"mode": "offline"}` for instance.

        Raises:
            UsageError: wandb is not installed, or an option is this sink's own affair.
        """
        if find_spec("wandb") is None:
            raise UsageError("WandB: wandb is not installed: pip install 'perdure[wandb]'")
        own = {"id", "resume", "resume_from", "fork_from", "reinit"} & {*(options or {})}
        if own:
            raise UsageError(f"WandB(options=…): {', '.join(sorted(own))} would break the run in two; leave it out.")
        self._options = {"project": project, "name": name, "config": config, **(options or {})}
        self._id = id
        self.run: Any = None
        """wandb's own run while the sink is open."""
        self._waiting: list[Row] = []

    def begin(self, info: SinkInfo) -> None:
        """Opens the run at W&B, and hands in the rows that it lacks."""
        from perdure.sinks import wandb_run

        self._cursor_file, self._attempt = info.directory / CURSOR, info.attempt
        kept_id, cursor = self._read()
        self._run_id = self._id or kept_id or info.run_id
        self._write(cursor if self._run_id == kept_id else -1)  # a crash from here on must not open another run
        self.run = wandb_run.open_run(self._run_id, info.directory, self._options)
        self._held = wandb_run.last_step(self.run, cursor)
        self._write(self._held)
        self._waiting = []
        for row in info.rows():
            self._hand_in(row)

    def row(self, counters: Counters, metrics: Mapping[str, Any]) -> None:
        """Keeps the row back until a checkpoint counts it."""
        self._waiting.append((counters, metrics))

    def committed(self, counters: Counters, checkpoint: Path, size_bytes: int) -> None:
        """Hands in the rows that no kill can undo any more."""
        ready = [row for row in self._waiting if row[0].env_steps <= counters.env_steps]
        self._waiting = self._waiting[len(ready) :]
        for row in ready:
            self._hand_in(row)

    def close(self) -> None:
        """Waits until W&B has everything that was handed in."""
        run, self.run = self.run, None
        if run is not None:
            run.finish()
            self._write(self._held)

    def _hand_in(self, row: Row) -> None:
        counters, metrics = row
        if counters.env_steps <= self._held:
            return
        values = {**metrics, **vars(counters), ATTEMPT: self._attempt}
        self.run.log(values, step=counters.env_steps, commit=True)
        self._held = counters.env_steps

    def _read(self) -> tuple[str | None, int]:
        try:
            kept = json.loads(self._cursor_file.read_bytes())
            return str(kept["id"]), int(kept["env_steps"])
        except (OSError, ValueError, KeyError, TypeError):  # W&B itself is asked how far it came
            return None, -1

    def _write(self, env_steps: int) -> None:
        replace_durably(self._cursor_file, json.dumps({"id": self._run_id, "env_steps": env_steps}).encode())
