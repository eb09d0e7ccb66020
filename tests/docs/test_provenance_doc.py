"""The blocks of docs/provenance.md run, and print what the document shows; its lists are those of the code."""

from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, execute

from perdure.runs.variables import KNOWN


def test_the_document_s_code_runs_and_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    executed = execute("docs/provenance.md", lambda text: text)

    assert executed.real == executed.shown


def test_the_variables_that_it_names_are_kept():
    text = (ROOT / "docs" / "provenance.md").read_text("utf-8")
    named = text.split("`variables` holds ")[1].split(" and others")[0].replace("`", "").replace("\n", " ").split(", ")
    last = named.pop().split(" and ")

    assert {*map(str.strip, named), *last} <= set(KNOWN)
