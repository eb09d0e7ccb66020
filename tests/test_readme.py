"""The README's Python blocks run, one after another, in an empty directory."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_python_blocks_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block runs; the last one ends in an assertion that two runs are equal bit for bit."""
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert blocks
    assert "assert" in blocks[-1]
    namespace: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)


def test_what_is_won_stands_in_the_first_thirty_lines() -> None:
    """A reader who sees only the first screen learns that resumes are bit-identical and damage is refused."""
    head = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30])
    assert "bit-identical" in head
    assert "flipped bit" in head
