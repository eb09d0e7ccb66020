"""docs/run.md names every argument of `Run`, and docs/command-line.md every verb and every exit code."""

import inspect
import re
from pathlib import Path

import perdure
from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import VERBS

DOCS = Path(__file__).parents[2] / "docs"


def test_every_argument_of_a_run_stands_there_with_its_default():
    shown = re.findall(r"`(\w+)=([^`]*)`", "\n".join(rows((DOCS / "run.md").read_text(encoding="utf-8"))))
    parameters = [*inspect.signature(perdure.Run).parameters.values()][1:]

    assert {name for name, _ in shown} == {parameter.name for parameter in parameters}
    defaults = {parameter.name: parameter.default for parameter in parameters}
    evaluated = {name: eval(text, {"Every": perdure.Every, "Keep": perdure.Keep}) for name, text in shown}
    assert evaluated == {**defaults, "every": perdure.Every(minutes=10)}


def test_every_verb_and_every_exit_code_stands_there():
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    verbs = set(re.findall(r"`perdure (\w+)", "\n".join(rows(text))))

    assert verbs == set(VERBS)
    codes = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert codes == {int(code) for code in ExitCode}


def rows(text: str) -> list[str]:
    """The first cell of each row of the document's tables."""
    return [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
