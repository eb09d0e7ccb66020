"""The blocks of docs/contract.md run, and what it shows is what perdure says."""

import re
from pathlib import Path

import pytest
from tests.docs.blocks import blocks, run_blocks

from perdure.cli.main import main

DOCUMENT = "docs/contract.md"


def masked(log: str) -> str:
    """A log without what differs from run to run: times, durations, ids."""
    log = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-11-30 00:00:00", log)
    log = re.sub(r"\d+(\.\d)? s of training", "0.0 s of training", log)
    return re.sub(r"began as run [0-9a-f]{8}", "began as run 00000000", log)


def test_the_document_s_code_runs_and_its_outputs_are_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    namespace = run_blocks(DOCUMENT)
    refusal, log = blocks(DOCUMENT, "text")
    capsys.readouterr()

    assert str(namespace["message"]).replace(f"{tmp_path}/", "") == refusal.rstrip("\n")
    assert main(["log", "runs/x"]) == 0
    assert masked(capsys.readouterr().out) == log
