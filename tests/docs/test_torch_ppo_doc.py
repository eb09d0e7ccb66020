"""The blocks of docs/torch-ppo.md run; they end in an assertion of equality, and no option is left out."""

import dataclasses
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, blocks, execute

pytest.importorskip("gymnasium")
pytest.importorskip("torch")


@pytest.mark.full
def test_the_document_s_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    execute("docs/torch-ppo.md", str)

    assert "assert all(torch.equal(" in blocks("docs/torch-ppo.md", "python")[0]


def test_every_option_is_in_the_table():
    from perdure.torch import PPOConfig

    text = (ROOT / "docs" / "torch-ppo.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))

    assert {field.name for field in dataclasses.fields(PPOConfig)} == set(
        rows.replace(",", " ").replace("`", "").split()
    )
