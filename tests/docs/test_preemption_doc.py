"""The blocks of docs/preemption.md run and print what it shows; codes, numbers and signals are those of the code."""

import re
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, execute

from perdure.cli.exit_codes import ExitCode
from perdure.runs.crash_loop import LIMIT
from perdure.runs.holding import MOST_BYTES, SHARE
from perdure.runs.signals import LATE_S, SAVE, STOP
from perdure.runs.stopping import PATIENCE_S

DOCUMENT = "docs/preemption.md"


@pytest.fixture
def text() -> str:
    """The document, its lines joined."""
    return " ".join((ROOT / DOCUMENT).read_text(encoding="utf-8").split())


@pytest.mark.usefixtures("global_generators")
def test_the_document_s_code_runs_and_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    executed = execute(DOCUMENT, str)

    assert executed.real == executed.shown
    evaluate = executed.namespace["evaluate"]
    assert callable(evaluate)
    assert [evaluate(Told(stop), 3) for stop in (False, True)] == [0.0, None]


class Told:
    """Stands for a run."""

    def __init__(self, should_stop: bool) -> None:
        self.should_stop = should_stop


def test_the_signals_of_the_table(text: str):
    names = [number.name for number in STOP]

    assert f"| {names[0]}, {names[1]} (Ctrl-C), {names[2]} | the last boundary becomes durable" in text
    assert f"| {SAVE.name} | a checkpoint" in text


def test_the_exit_codes_of_the_table(text: str):
    again = {int(code) for code in re.findall(r"\| \**(\d+)\** \| [^|]+ \| \*\*yes", text)}
    never = {int(code) for code in re.findall(r"\| (\d+) \| [^|]+ \| no", text)}

    assert again == {ExitCode.PREEMPTED}
    assert never == {code for code in ExitCode if code < ExitCode.PREEMPTED} - {ExitCode.DIFFERENCES}
    assert "| **128 or more** |" in text


def test_the_numbers(text: str):
    assert f"may cost {SHARE:.0%}".replace("%", " %") in text
    assert f"more than {MOST_BYTES >> 20} MiB of arrays" in text
    assert f"come within {PATIENCE_S:.0f} seconds" in text
    assert f"after {LATE_S:.0f} seconds, the process ends without it, code {ExitCode.INTERRUPTED}" in text
    assert LIMIT == 3
    assert "the last three resumes of one checkpoint" in text


def test_the_recipes_exist():
    linked = re.findall(r"\]\(\.\./(examples/preemption/[^)]+)\)", (ROOT / DOCUMENT).read_text(encoding="utf-8"))

    assert {ROOT / path for path in linked} == set((ROOT / "examples" / "preemption").iterdir())
