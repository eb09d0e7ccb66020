"""A recording double of the few things of wandb that the sink uses, with its rules about steps and late writing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@dataclass
class Server:
    """What W&B holds: rows by run, over all attempts."""

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    inits: list[Mapping[str, Any]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    """Steps that came in out of order, which W&B ignores."""
    late: int = 0
    """How many of the last rows a kill loses, for wandb sends them some seconds late."""
    runs: list["Run"] = field(default_factory=list)

    def init(self, **options: Any) -> "Run":
        self.inits.append(options)
        self.runs.append(Run(self, options["id"]))
        return self.runs[-1]

    def kill(self) -> None:
        """The process is killed: what was not sent yet is lost, and nothing else happens."""
        rows = self.rows.get(self.runs[-1].id, [])
        del rows[max(0, len(rows) - self.late) :]

    def steps(self) -> list[int]:
        (rows,) = self.rows.values()
        return [row["_step"] for row in rows]


class Run:
    """An online run of wandb."""

    offline = False

    def __init__(self, server: Server, id: str) -> None:
        self._server, self.id, self.is_finished = server, id, False
        rows = server.rows.get(id)
        self.resumed = rows is not None
        self.starting_step = rows[-1]["_step"] + 1 if rows else 0
        self._rows = server.rows.setdefault(id, [])
        self.settings = SimpleNamespace(sync_dir=str(Path("wandb") / "run"))

    def log(self, data: Mapping[str, Any], *, step: int, commit: bool) -> None:
        assert not self.is_finished
        assert commit
        if step < (self._rows[-1]["_step"] + 1 if self._rows else self.starting_step):
            self._server.refused.append(step)
            return
        self._rows.append({**data, "_step": step})

    def finish(self) -> None:
        self.is_finished = True
