"""The blocks of docs/replay.md run, with what they assert, and print what they show."""

from pathlib import Path

import pytest
from tests.docs.blocks import blocks, execute


@pytest.mark.full
@pytest.mark.usefixtures("global_generators")
def test_the_document_s_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    executed = execute("docs/replay.md", str)

    assert executed.real == executed.shown
    assert len(blocks("docs/replay.md", "python")) == 5
    assert "assert drawn_since == drawn[3_000:]" in blocks("docs/replay.md", "python")[0]
