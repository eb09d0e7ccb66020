"""docs/auditing.md: its script is audited, with the output that it shows; its numbers are those of the code."""

import sys
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, blocks

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import main
from perdure.memory.look import DEEPEST, MOST_VALUES
from perdure.proof.audit import AT, UNTIL

DOCUMENT = "docs/auditing.md"


@pytest.mark.full
def test_the_script_is_audited_with_the_output_that_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    [script] = blocks(DOCUMENT, "python")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")

    code = main(["audit", "--", sys.executable, "train.py"])

    assert capsys.readouterr().out == blocks(DOCUMENT, "text")[0]
    assert code == ExitCode.DIFFERENCES
    assert not (tmp_path / "runs").exists()


def test_the_numbers():
    text = " ".join((ROOT / DOCUMENT).read_text(encoding="utf-8").split())

    assert f"At most {MOST_VALUES:,} values, {DEEPEST} steps deep" in text
    assert f"interrupt at boundary K ({AT})" in text
    assert f"compare up to boundary M (K + {UNTIL - AT})" in text
