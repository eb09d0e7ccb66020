"""docs/errors.md is made of real failures: some for each public error type, their messages as they are today.

`PERDURE_WRITE_DOCS=1 python -m pytest tests/docs` writes the document anew.
"""

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT
from tests.docs.failures import ENTRIES, Entry

import perdure
from perdure import errors
from perdure.cli.exit_codes import code_of

DOCUMENT = ROOT / "docs" / "errors.md"

HEAD = """\
# Errors

Every error that perdure raises on purpose, with messages of real failures: this page is written by
`tests/docs/test_errors_gallery.py`, which provokes them. A message names the place, what was expected, what was found
and the way out.

Each type inherits the built-in exception that is named with it; the exit code is that of the command line. A script
sees the exception; one that it does not catch ends it with Python's 1, also under `perdure resume`. `perdure.Preempted`
is none of them: it is a `SystemExit` with code 75, and means that a run was told to stop and is saved.

| base | for |
|---|---|
| `perdure.PerdureError` | all of them |
| `perdure.NothingToLoadError` | `NoRunError`, `NoCheckpointError`, `AllDamagedError` |
"""

ABSTRACT = {perdure.PerdureError, perdure.NothingToLoadError}
"""Never raised themselves; the head of the document names them."""


def error_types() -> set[type[Exception]]:
    """Every error class of perdure, whether exported or not."""
    return {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, perdure.PerdureError)}


def failure(kind: type[perdure.PerdureError], provoke: Callable[[], object], folder: Path) -> perdure.PerdureError:
    """What is raised in an empty folder."""
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.raises(kind) as caught:
            provoke()
    assert type(caught.value) is kind
    return caught.value


def masked(message: str, folder: Path) -> str:
    """A message without what differs from machine to machine."""
    message = message.replace(f"{folder}/", "")
    message = re.sub(r'File "[^"]*/failures\.py", line \d+, in \w+', 'File "train.py", line 7, in <module>', message)
    assert str(folder) not in message
    return re.sub(r"pid \d+ on \S+\. ", "pid 4711 on host. ", message)


def text_of(kind: type[perdure.PerdureError], entry: Entry, folder: Path) -> str:
    """The entry of one error type."""
    raised = {folder / provoke.__name__: provoke for provoke in entry.failures}
    found = {place: failure(kind, provoke, place) for place, provoke in raised.items()}
    shown = "\n".join(f"```text\n{masked(str(error), place)}\n```\n" for place, error in found.items())
    [code] = {int(code_of(error)) for error in found.values()}
    builtin = next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")
    return f"\n## {kind.__name__}\n\n{entry.what}\n\n{shown}\n{entry.way_out} (`{builtin}`, exit code {code})\n"


def test_every_public_error_has_an_entry():
    exported = {getattr(perdure, name) for name in perdure.__all__} & error_types()

    assert exported == error_types()
    assert ENTRIES.keys() == error_types() - ABSTRACT
    assert all(f"perdure.{kind.__name__}" in HEAD for kind in ABSTRACT)
    assert all(f"`{kind.__name__}`" in HEAD for kind in perdure.NothingToLoadError.__subclasses__())


def test_the_gallery_shows_what_is_said_today(tmp_path: Path):
    gallery = HEAD + "".join(text_of(kind, entry, tmp_path) for kind, entry in ENTRIES.items())

    if os.environ.get("PERDURE_WRITE_DOCS"):
        DOCUMENT.write_text(gallery, encoding="utf-8")
    assert DOCUMENT.read_text(encoding="utf-8") == gallery
