"""A disk that fills up within a line of lineage or metrics, or refuses its sync: whole lines only, before and after."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

import perdure
from perdure.checkpoint.capture import Counters
from perdure.errors import CommitError
from perdure.runs.lineage import Lineage, read_lineage
from perdure.runs.metrics import MetricStream


def _full_after(monkeypatch: pytest.MonkeyPatch, bytes_left: int) -> dict[str, int]:
    """Writes to files open for appending end in the middle, as on a disk that fills up; the room left can change."""
    size = {"left": bytes_left}

    class Full:
        """Stands in for a raw file."""

        def __init__(self, file: object) -> None:
            self._file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *error: object) -> None:
            self._file.close()  # type: ignore[attr-defined]

        def write(self, data: memoryview) -> int:
            if not size["left"]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            part = bytes(data[: size["left"]])
            size["left"] -= len(part)
            return self._file.write(part)  # type: ignore[attr-defined]

    open_ = Path.open

    def opening(self: Path, mode: str = "r", *arguments: object, **options: object) -> object:
        file = open_(self, mode, *arguments, **options)  # type: ignore[call-overload]
        return Full(file) if mode == "ab" else file

    monkeypatch.setattr(Path, "open", opening)
    return size


@pytest.mark.parametrize("bytes_left", [0, 1, 40, 100, 200, 300, 400, 500, 700, 900])
def test_a_line_that_a_full_disk_cuts_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_left: int
) -> None:
    """A torn line in the middle of lineage or metrics would swallow the next one and read as damage."""
    run = perdure.Run(tmp_path / "run", every=perdure.Every(updates=1), background=False)
    value = run.restore(value=0).value
    run.close()
    with monkeypatch.context() as patch:
        _full_after(patch, bytes_left)
        with suppress(OSError), perdure.Run(tmp_path / "run", every=perdure.Every(updates=1), background=False) as run:
            value = run.restore(value=0).value
            for number in (1, 2):
                run.boundary(env_steps=number, value=number, metrics={"x": number})

    with perdure.Run(tmp_path / "run", every=perdure.Every(updates=1), background=False) as run:
        value = run.restore(value=0).value
        assert value == run.env_steps
        for number in range(run.env_steps + 1, 5):
            run.boundary(env_steps=number, value=number, metrics={"x": number})
        run.finish(value=4)

    assert not [notice for notice in run.notices if "set aside" in notice]
    assert [row["x"] for row in run.metrics_rows()] == [1, 2, 3, 4]
    assert read_lineage(tmp_path / "run" / "lineage.jsonl")[-1]["event"] == "finished"


@pytest.mark.parametrize("bytes_left", [0, 1, 60])
def test_after_a_line_that_was_cut_the_same_stream_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_left: int
) -> None:
    """Whoever catches the error and goes on in the same process appends to whole lines only."""
    for kind, name in ((Lineage, "lineage.jsonl"), (MetricStream, "metrics.jsonl")):
        append = {
            Lineage: lambda stream, number: stream.append("committed", checkpoint=str(number), digest="d"),
            MetricStream: lambda stream, number: stream.append(Counters(number), {"x": "text " * 10}),
        }[kind]
        path = tmp_path / name
        with monkeypatch.context() as patch:
            room = _full_after(patch, 10_000)
            stream = kind(path)
            append(stream, 1)
            whole = path.read_bytes()
            room["left"] = bytes_left
            with pytest.raises(OSError, match="No space left"):
                append(stream, 2)
            assert path.read_bytes() == whole
            room["left"] = 10_000
            append(stream, 3)
        assert path.read_bytes().startswith(whole)
        assert path.read_bytes().count(b"\n") == 2
        if isinstance(stream, MetricStream):
            assert stream.mark()["offset"] == path.stat().st_size
            stream.close()
    assert [event["checkpoint"] for event in read_lineage(tmp_path / "lineage.jsonl")] == ["1", "3"]


def test_metrics_that_cannot_be_synced_stop_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest counts them; it is a commit error like any other, and the next commit works."""
    run = perdure.Run(tmp_path / "run", every=perdure.Every(updates=1), background=False)
    run.restore(value=0)
    failing = {"now": True}

    def sync(_: object) -> None:
        if failing["now"]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("perdure.runs.metrics.MetricStream.sync", sync)
    with pytest.raises(CommitError, match="step_0000000001 was not committed: its metric rows"):
        run.boundary(env_steps=1, value=1, metrics={"x": 1})
    failing["now"] = False
    run.boundary(env_steps=2, value=2, metrics={"x": 2})
    run.finish(value=2)

    assert "step_0000000001" not in [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()]
    assert [row["x"] for row in run.metrics_rows()] == [1, 2]
