"""The blocks of docs/nnx.md run from top to bottom, and print what it shows.

`PERDURE_WRITE_DOCS=1 python -m pytest tests/docs` writes the shown outputs anew.
"""

import os
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, execute

pytestmark = [pytest.mark.jax, pytest.mark.full]

DOCUMENT = "docs/nnx.md"


def test_every_block_runs_and_shows_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save, own callback, resume with another learning rate than the template's, inference."""
    monkeypatch.chdir(tmp_path)

    executed = execute(DOCUMENT, lambda output: output)

    if os.environ.get("PERDURE_WRITE_DOCS"):
        (ROOT / DOCUMENT).write_text(executed.real, encoding="utf-8")
    assert executed.real == executed.shown
