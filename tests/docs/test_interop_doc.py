"""The blocks of docs/interop.md run, and what it shows is what comes out.

`PERDURE_WRITE_DOCS=1 python -m pytest tests/docs` writes the shown outputs anew.
"""

from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, assert_shown, execute

from perdure.interop.carried import WritableKind
from perdure.interop.recognition import kinds

pytest.importorskip("torch")

DOCUMENT = "docs/interop.md"


def test_the_document_s_code_runs_and_its_outputs_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    document = execute(DOCUMENT, str)

    assert_shown(DOCUMENT, document.real)


def test_every_kind_has_its_row_and_says_whether_it_is_written():
    text = (ROOT / DOCUMENT).read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line.rstrip(" |").split("|")[-1].strip() for line in text.splitlines() if "| `" in line}

    assert {kind.name: isinstance(kind, WritableKind) for kind in kinds()} == {
        name: written != "no" for name, written in rows.items()
    }
