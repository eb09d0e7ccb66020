"""`perdure prove` in this process, on scripts beside the tests."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.main import main

FAULTS = Path(__file__).with_name("faults")

Prove = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def prove(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Prove:
    """Proves a script of `faults/`: the exit code and the document."""

    def call(*options: object, script: str, mended: bool = False) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        words = [str(option) for option in options]
        command = [sys.executable, str(FAULTS / f"{script}.py"), *(["--mended"] if mended else [])]
        code = main(["prove", "--json", "--keep", str(tmp_path / "kept"), *words, "--", *command])
        captured = capsys.readouterr()
        assert captured.out, captured.err
        return code, json.loads(captured.out)

    return call
