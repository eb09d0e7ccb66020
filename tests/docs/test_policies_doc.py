"""The blocks of docs/policies.md run, and print what the document shows."""

import re
from pathlib import Path

import pytest
from tests.docs.blocks import execute

pytest.importorskip("gymnasium")
pytest.importorskip("safetensors")
pytest.importorskip("torch")


@pytest.mark.full
@pytest.mark.usefixtures("global_generators")
def test_the_document_s_code_runs_and_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def masked(text: str) -> str:
        """Without what is drawn anew: the run's id, and the weights that decide the return."""
        named = re.sub(r"(step_\d{10})-[0-9a-f]{8}", r"\1-0a1b2c3d", text.replace(f"{tmp_path.resolve()}/", ""))
        return re.sub(r"return -[0-9.e-]+\)", "return -0.318)", named)

    executed = execute("docs/policies.md", masked)

    assert executed.real == executed.shown
