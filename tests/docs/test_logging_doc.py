"""The blocks of docs/logging.md run, and print what the document shows."""

from pathlib import Path

import pytest
from tests.docs.blocks import execute

pytest.importorskip("tensorboard")


@pytest.mark.full
@pytest.mark.usefixtures("global_generators")
def test_the_document_s_code_runs_and_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    executed = execute("docs/logging.md", str)

    assert executed.real == executed.shown
