"""The blocks of docs/proving.md run and print what it shows; the default numbers are those of the code."""

import re
import sys
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, blocks, execute

from perdure.proof.plan import DEFAULT_UNTIL

DOCUMENT = "docs/proving.md"


def masked(text: str) -> str:
    """Without durations and places of this machine."""
    text = re.sub(r"processes, \d+\.\d s", "processes, … s", text)
    text = re.sub(r"/\S*/perdure-prove-\w+", "/tmp/perdure-prove-…", text)
    return re.sub(r"(?m)^([AB] +)/\S*/(\w+/runs/x:)", r"\1…/\2", text)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the two scripts, where `python` is this one and temporary folders are made beside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for block in blocks(DOCUMENT, "python"):
        if named := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / named[1]).write_text(block)
    return tmp_path


@pytest.mark.full
@pytest.mark.usefixtures("global_generators")
def test_the_document_s_code_runs_and_prints_what_it_shows(here: Path):
    executed = execute(DOCUMENT, masked)

    assert executed.real == executed.shown
    test = executed.namespace["test_training_resumes_exactly"]
    assert callable(test)
    test(here / "tests")


def test_the_numbers():
    assert f"how far runs go: {DEFAULT_UNTIL} boundaries" in (ROOT / DOCUMENT).read_text(encoding="utf-8")
