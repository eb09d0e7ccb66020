"""docs/errors.md is made of real failures: one for each public error type, its message as it is today.

`PERDURE_WRITE_GALLERY=1 python -m pytest tests/docs/test_errors_gallery.py` writes the document anew.
"""

import os
import re
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT
from tests.docs.failures import FAILURES

import perdure
from perdure.cli.exit_codes import code_of

DOCUMENT = ROOT / "docs" / "errors.md"

HEAD = """\
# Errors

Every error that perdure raises on purpose, each with the message of a real failure. This page is written by
`tests/docs/test_errors_gallery.py`, which provokes them all. Messages name the place, what was expected, what was found
and the way out. All inherit `perdure.PerdureError` and a built-in exception; the exit code is that of the command line.
"""

ABSTRACT = {perdure.PerdureError, perdure.NothingToLoadError}


def public_errors() -> set[type]:
    found = {getattr(perdure, name) for name in perdure.__all__}
    return {kind for kind in found if isinstance(kind, type) and issubclass(kind, perdure.PerdureError)}


def masked(message: str, folder: Path) -> str:
    """The message without what differs from machine to machine."""
    message = message.replace(f"{folder}/", "")
    return re.sub(r"pid \d+ on [^.]+", "pid 4711 on host", message)


def entry(kind: type[perdure.PerdureError], message: str, code: int) -> str:
    what, _, way_out = FAILURES[kind]
    builtin = next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")
    return f"\n## {kind.__name__}\n\n{what}\n\n```text\n{message}\n```\n\n{way_out} (`{builtin}`, exit code {code})\n"


def test_every_public_error_has_a_failure():
    assert public_errors() - ABSTRACT == FAILURES.keys()


def test_the_gallery_shows_what_is_said_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    entries = []
    for number, (kind, (_, provoke, _)) in enumerate(FAILURES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        with pytest.raises(kind) as caught:
            provoke()
        assert type(caught.value) is kind
        entries.append(entry(kind, masked(str(caught.value), folder), code_of(caught.value)))
    gallery = HEAD + "".join(entries)

    if os.environ.get("PERDURE_WRITE_GALLERY"):
        DOCUMENT.write_text(gallery, encoding="utf-8")
    assert DOCUMENT.read_text(encoding="utf-8") == gallery
