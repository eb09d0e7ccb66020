"""A script that ran under another Python than perdure's, and misses a module there, is told so."""

import sys
from pathlib import Path

import pytest

from perdure.cli.interpreter import other_interpreter
from perdure.cli.main import main


@pytest.fixture
def other_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `python` in another folder, first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (folder / "python").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder / "python"


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text("import perdure_has_no_such_module\n")
    return str(path)


@pytest.mark.parametrize(("verb", "code"), [("prove", 70), ("audit", 2)])
def test_both_are_named(verb: str, code: int, other_python: Path, script: str, capsys: pytest.CaptureFixture[str]):
    assert main([verb, "--", "python", script]) == code
    said = capsys.readouterr().err
    assert "No module named 'perdure_has_no_such_module'" in said
    assert f"\npython is {other_python}, and perdure runs under {sys.executable}: activate its environment, or" in said


def test_twin_nothing_is_said_of_perdure_s_own(script: str, capsys: pytest.CaptureFixture[str]):
    assert main(["prove", "--", sys.executable, script]) == 70
    said = capsys.readouterr().err
    assert "No module named 'perdure_has_no_such_module'" in said
    assert "runs under" not in said


def test_twin_nothing_is_said_of_other_errors(other_python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "script.py").write_text("raise RuntimeError('by itself')\n")
    assert main(["prove", "--", str(other_python), str(tmp_path / "script.py")]) == 70
    assert "runs under" not in capsys.readouterr().err


def test_what_is_no_python(tmp_path: Path):
    assert other_interpreter(["sh", "train.sh"]) is None
    assert other_interpreter([str(tmp_path / "nothing")]) is None
    assert other_interpreter([sys.executable]) is None
