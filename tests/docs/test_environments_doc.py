"""The blocks of docs/environments-brax-playground.md run, and the trainings that they start reach their end."""

from pathlib import Path

import pytest
from tests.docs.blocks import execute

import perdure

pytestmark = [pytest.mark.jax, pytest.mark.slow]


def test_the_document_s_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    execute("docs/environments-brax-playground.md", str)

    for name in ("brax", "playground"):
        newest = max((tmp_path / "runs" / name / "checkpoints").iterdir())
        saved = perdure.read(newest)
        assert saved["steps_taken"] == 60
        assert {"physics", "steps"} == set(saved["env_states"]["data"])
