"""`perdure audit`: what it prints, as text and as JSON, and its exit codes."""

import json
import sys
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT

SCRIPT = ROOT / "tests" / "proof" / "audited" / "cached_rate.py"
COMMAND = ("--", sys.executable, SCRIPT, "runs/x")


@pytest.mark.full
def test_json_tells_the_same_and_the_code_is_1(perdure_cli):
    result = perdure_cli("audit", "--json", "--at", "2", *COMMAND)

    document = json.loads(result.out)
    assert result.code == 1
    assert [each["place"] for each in document["confirmed"]] == ["component agent.lr_cached"]
    assert (document["at"], document["until"], document["exact"], document["explained"]) == (2, 5, False, True)
    assert "perdure audit: interrupted at boundary 2" in result.err


@pytest.mark.full
def test_what_forgets_nothing_is_exact_and_the_code_is_0(perdure_cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    result = perdure_cli("audit", *COMMAND, "--repaired")

    assert result.code == 0
    assert result.out.startswith(
        "resume     exact: interrupted at boundary 3, compared up to boundary 6\nconfirmed  none\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_command_is_needed_and_must_exist(perdure_cli):
    assert perdure_cli("audit").err == "perdure: audit: which script? perdure audit -- python train.py …\n"
    result = perdure_cli("audit", "--", "no-such-program")

    assert result.code == 2
    assert result.err.endswith("perdure: no-such-program: cannot be executed (No such file or directory).\n")
