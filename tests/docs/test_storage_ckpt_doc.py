"""The blocks of docs/storage-ckpt.md run, and what it shows is what comes out.

`PERDURE_WRITE_DOCS=1 python -m pytest tests/docs` writes the shown outputs anew.
"""

from pathlib import Path

import pytest
from tests.docs.blocks import assert_shown, execute

pytest.importorskip("torch")

DOCUMENT = "docs/storage-ckpt.md"


def test_the_document_s_code_runs_and_its_outputs_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    document = execute(DOCUMENT, str)

    assert_shown(DOCUMENT, document.real)
