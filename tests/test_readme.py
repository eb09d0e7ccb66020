"""The README's Python blocks run, one after another, in an empty directory, and print what it shows.

`PERDURE_WRITE_DOCS=1 python -m pytest tests/test_readme.py` writes the shown outputs anew.
"""

import difflib
import os
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, blocks, execute


def test_the_readme_s_code_runs_and_its_outputs_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block runs; the example ends in an assertion that two runs are equal bit for bit."""
    monkeypatch.chdir(tmp_path)
    readme = execute("README.md", lambda text: text.replace(f"{tmp_path}/", ""))

    if os.environ.get("PERDURE_WRITE_DOCS"):
        (ROOT / "README.md").write_text(readme.real, encoding="utf-8")
    assert blocks("README.md", "python")[0].endswith("assert straight.tobytes() == resumed.tobytes()\n")
    assert readme.real == (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_is_won_stands_in_the_first_thirty_lines() -> None:
    """A reader who sees only the first screen learns that resumes are bit-identical and damage is refused."""
    head = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30])
    assert "bit-identical" in head
    assert "flipped bit" in head


def test_the_shown_diff_is_the_one_between_the_script_without_perdure_and_with_it() -> None:
    """Every line that bears the mark, in order, each with a line around it as it stands there."""
    marked = (ROOT / "examples" / "torch_ppo.py").read_text(encoding="utf-8").splitlines()
    bare = [line for line in marked if not line.endswith("# perdure")]
    whole = [line.removesuffix("  # perdure") for line in marked]
    real = list(difflib.unified_diff(bare, whole, lineterm="", n=1))[2:]

    (shown,) = blocks("README.md", "diff")
    assert shown.splitlines() == real
    assert sum(line.startswith("+") for line in real) <= 12
    assert not any(line.startswith("-") for line in real)
