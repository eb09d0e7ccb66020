"""The blocks of docs/pytorch.md run: a resumed run equals one never stopped, stock safetensors reads its weights."""

from pathlib import Path

import pytest
from tests.docs.blocks import blocks, execute

pytest.importorskip("torch")
pytest.importorskip("gymnasium")


def test_the_document_s_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    execute("docs/pytorch.md", str)

    assert "assert all(torch.equal(" in blocks("docs/pytorch.md", "python")[0]
    assert "carry=carry)" in blocks("docs/pytorch.md", "python")[1]
    assert "strict=True" in blocks("docs/pytorch.md", "python")[2]
