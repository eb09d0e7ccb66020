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


CACHED = """
import functools
import numpy as np, perdure

rng, weights = np.random.default_rng(1), np.zeros(3)

@functools.lru_cache
def noise(turn):
    return rng.normal()

run = perdure.Run("runs/x", horizon=9, audit_ignore={ignore})
weights = run.restore(rng=rng, weights=weights).weights
while not run.is_finished:
    weights = weights + noise(run.env_steps % 2)
    run.boundary(env_steps=run.env_steps + 1, weights=weights)
run.finish()
"""


@pytest.mark.full
@pytest.mark.parametrize(("ignore", "code"), [({}, 1), ({"module train: noise": "a cache"}, 0)])
def test_a_resume_that_is_not_exact_is_no_success_though_nothing_explains_it(
    perdure_cli, tmp_path: Path, ignore: dict[str, str], code: int
):
    (tmp_path / "train.py").write_text(CACHED.replace("{ignore}", repr(ignore)))
    result = perdure_cli("audit", "--", sys.executable, tmp_path / "train.py")

    assert "Something is lost that this audit cannot see: `perdure prove` names" in result.out
    assert "not seen   what lru_cache keeps of noise\n" in result.out
    assert result.code == code


def test_a_command_is_needed_and_must_exist(perdure_cli):
    assert perdure_cli("audit").err == "perdure: audit: which script? perdure audit -- python train.py …\n"
    result = perdure_cli("audit", "--", "no-such-program")

    assert result.code == 2
    assert result.err.endswith("perdure: no-such-program: cannot be executed (No such file or directory).\n")
