"""Documents whose code blocks are executed, and whose shown output is compared with what comes out.

- A `python` block runs, in one namespace with those before it, in the present directory.
- A `text` block right behind it is what it prints.
- A `console` block holds `$ perdure …` lines, each followed by what the tool says; `; echo $?` adds its exit code.
"""

import os
import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from perdure.cli.main import main

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_STATUS = "; echo $?"


@dataclass(frozen=True)
class Executed:
    """A document that was executed."""

    namespace: dict[str, object]
    """What its Python blocks left."""
    shown: str
    """The document as it is."""
    real: str
    """The document with what really came out in place of what it shows."""


def blocks(document: str, language: str) -> list[str]:
    """The blocks of one language in a document, by its path from the project's root."""
    return [block for found, block in _BLOCK.findall(_text_of(document)) if found == language]


def assert_shown(document: str, real: str) -> None:
    """A document is what it would be if it were written now; where PERDURE_WRITE_DOCS is set it is written."""
    if os.environ.get("PERDURE_WRITE_DOCS"):
        (ROOT / document).write_text(real, encoding="utf-8")
    assert real == _text_of(document)


def execute(document: str, masked: Callable[[str], str]) -> Executed:
    """Executes the blocks of a document from top to bottom.

    Args:
        document: its path from the project's root.
        masked: leaves out of an output what differs from time to time and from machine to machine.
    """
    namespace: dict[str, object] = {"__name__": document}
    printed = ""

    def with_output(block: re.Match[str]) -> str:
        nonlocal printed
        language, body = block.groups()
        if language == "python":
            printed = _printed(lambda: exec(compile(body, document, "exec"), namespace))
        elif language in ("text", "console"):
            body = masked(printed if language == "text" else _session(body))
        return f"```{language}\n{body}```"

    shown = _text_of(document)
    return Executed(namespace, shown, _BLOCK.sub(with_output, shown))


def _text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def _printed(do: Callable[[], object]) -> str:
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        do()
    return out.getvalue()


def _session(body: str) -> str:
    """The commands of a console block, each with what it says now."""
    commands = [line for line in body.splitlines() if line.startswith("$ ")]
    assert body.startswith("$ "), body
    return "".join(f"{command}\n{_said(command.removeprefix('$ '))}" for command in commands)


def _said(command: str) -> str:
    program, *words = shlex.split(command.removesuffix(_STATUS))
    assert program == "perdure", command
    codes: list[int] = []
    said = _printed(lambda: codes.append(main(words)))
    return said + (f"{int(codes[0])}\n" if command.endswith(_STATUS) else "")
