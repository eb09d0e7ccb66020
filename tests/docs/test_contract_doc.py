"""The blocks of docs/contract.md run, and what it shows is what perdure says.

`PERDURE_WRITE_DOCS=1 python -m pytest tests/docs` writes the shown outputs anew.
"""

import re
from pathlib import Path

import pytest
from tests.docs.blocks import assert_shown, execute

pytest.importorskip("flax")
pytestmark = pytest.mark.jax

DOCUMENT = "docs/contract.md"


def masked(output: str, folder: Path) -> str:
    """An output without what differs from time to time: folders, times, durations, ids."""
    output = output.replace(f"{folder}/", "")
    output = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-11-30 00:00:00", output)
    output = re.sub(r"\d+(\.\d)? s of training", "0.0 s of training", output)
    return re.sub(r"from run [0-9a-f]{8}|as run [0-9a-f]{8}", lambda found: f"{found[0][:-8]}00000000", output)


def test_the_document_s_code_runs_and_its_outputs_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "")  # the document sets it and takes it away; this puts it back
    monkeypatch.delenv("OMP_NUM_THREADS")
    document = execute(DOCUMENT, lambda output: masked(output, tmp_path))

    assert_shown(DOCUMENT, document.real)
