"""The blocks of docs/stable-baselines3.md run: a resumed `learn` equals one never stopped."""

from pathlib import Path

import pytest
from tests.docs.blocks import blocks, execute

pytest.importorskip("stable_baselines3")
pytest.importorskip("torch")


@pytest.mark.full
@pytest.mark.usefixtures("global_generators")
def test_the_document_s_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    execute("docs/stable-baselines3.md", str)

    assert "assert all(torch.equal(" in blocks("docs/stable-baselines3.md", "python")[1]
