"""The README's Python blocks run, one after another, in an empty directory."""

from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, blocks, run_blocks


def test_python_blocks_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block runs; the last one ends in an assertion that two runs are equal bit for bit."""
    monkeypatch.chdir(tmp_path)
    assert "assert" in blocks("README.md", "python")[-1]
    run_blocks("README.md")


def test_what_is_won_stands_in_the_first_thirty_lines() -> None:
    """A reader who sees only the first screen learns that resumes are bit-identical and damage is refused."""
    head = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30])
    assert "bit-identical" in head
    assert "flipped bit" in head
