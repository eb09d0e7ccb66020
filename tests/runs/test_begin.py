"""Begin or resume: missing, empty, damaged and finished are different things, and deciding changes nothing."""

from pathlib import Path

import pytest

from perdure.errors import AllDamagedError, DamagedError, NoCheckpointError, NoRunError, UsageError
from perdure.runs.begin import Beginning, decide
from perdure.runs.directory import RunDirectory

STOPPED = "the run was stopped before its first checkpoint was committed"


def directory(path: Path, *parts: str) -> RunDirectory:
    """A run's directory that has these parts."""
    where = RunDirectory(path / "run")
    if parts:
        where.path.mkdir()
    for part in parts:
        match part:
            case "record":
                where.record.write_text("{}")
            case "checkpoint":
                (where.checkpoints / "step_0000000005").mkdir(parents=True)
            case "staging":
                (where.checkpoints / ".staging.00").mkdir(parents=True)
            case "stranger":
                (where.checkpoints / "step_5").mkdir(parents=True)
            case "damaged":
                (where.damaged / "step_0000000005").mkdir(parents=True)
            case "metrics":
                where.metrics.touch()
            case _:
                raise AssertionError(part)
    return where


@pytest.mark.parametrize(
    ("parts", "mode", "beginning"),
    [
        ([], "auto", Beginning(resumes=False)),
        ([], "new", Beginning(resumes=False)),
        (["metrics"], "auto", Beginning(resumes=False)),
        (["record", "checkpoint"], "auto", Beginning(resumes=True)),
        (["record", "checkpoint"], "resume", Beginning(resumes=True)),
        (["record", "checkpoint", "damaged"], "auto", Beginning(resumes=True)),
        (["record"], "auto", Beginning(resumes=False, notice=f"{STOPPED}; it starts again from the beginning.")),
        (
            ["record", "staging"],
            "auto",
            Beginning(resumes=False, notice=f"{STOPPED}; it starts again from the beginning."),
        ),
        (
            ["record", "stranger"],
            "auto",
            Beginning(resumes=False, notice=f"{STOPPED}; it starts again from the beginning."),
        ),
    ],
)
def test_what_is_decided(tmp_path: Path, parts: list[str], mode: str, beginning: Beginning):
    assert decide(directory(tmp_path, *parts), mode) == beginning


@pytest.mark.parametrize(
    ("parts", "mode", "kind", "text"),
    [
        ([], "resume", NoRunError, "no such directory. Check the spelling; nothing was created."),
        (["metrics"], "resume", NoRunError, "not a run (no run.json in it). Check the spelling; nothing was created."),
        (["record"], "resume", NoCheckpointError, f"{STOPPED}; start it again without insisting on a resume."),
        (["record"], "new", UsageError, "there is a run already; resume it, or choose another directory."),
        (
            ["record", "checkpoint"],
            "new",
            UsageError,
            "there is a run already; resume it, or choose another directory.",
        ),
        (["record", "damaged"], "auto", AllDamagedError, "every checkpoint was damaged; they stand under damaged/."),
        (["record", "damaged"], "resume", AllDamagedError, "every checkpoint was damaged; they stand under damaged/."),
        (["checkpoint"], "auto", DamagedError, "there are checkpoints but no run.json; put it back."),
        (["checkpoint"], "new", DamagedError, "there are checkpoints but no run.json; put it back."),
        (["checkpoint"], "resume", DamagedError, "there are checkpoints but no run.json; put it back."),
    ],
)
def test_what_is_refused_and_why(tmp_path: Path, parts: list[str], mode: str, kind: type[Exception], text: str):
    where = directory(tmp_path, *parts)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(kind) as caught:
        decide(where, mode)

    assert type(caught.value) is kind
    assert str(caught.value) == f"{where.path}: {text}"
    assert sorted(tmp_path.rglob("*")) == before
