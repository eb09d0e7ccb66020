"""The blocks of docs/gymnasium.md run; its loop ends in an assertion that a resumed run equals one never stopped."""

from pathlib import Path

import pytest
from tests.docs.blocks import blocks, execute

import perdure

pytest.importorskip("gymnasium")

pytestmark = pytest.mark.jax


def test_the_document_s_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    execute("docs/gymnasium.md", str)

    assert "assert train(" in blocks("docs/gymnasium.md", "python")[0]
    saved = perdure.read(max((tmp_path / "runs" / "pendulum" / "checkpoints").iterdir()))
    assert saved["steps_taken"] == 120
    assert saved["env_states"]["envs"]["envs"][0]["_elapsed_steps"] == 30
