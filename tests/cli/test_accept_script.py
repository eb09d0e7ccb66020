"""`perdure resume --accept` of a script's run: told through the environment, to this run alone, and remembered."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ContractError, UsageError
from perdure.runs.lineage import read_lineage

pytestmark = pytest.mark.full

SCRIPT = Path(__file__).with_name("toy_script.py")
TOOL = [sys.executable, "-m", "perdure"]
FASTER = ["--accept", "algorithm.learning_rate=0.1:0.2"]
AMENDED = ["algorithm.learning_rate=0.1:0.2"]


def execute(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def amended(perdure_cli, run: Path) -> list[str]:
    return json.loads(perdure_cli("show", run, "--json").out)["amended"]


def resumed(run: Path) -> list[dict[str, Any]]:
    return [event for event in read_lineage(run / "lineage.jsonl") if event["event"] == "resumed"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What `perdure resume --accept` puts into the environment of a script, done in this process."""

    def tell(run: Path, accept: str, reason: str = "") -> None:
        monkeypatch.setenv("PERDURE_RUN_DIR", str(run))
        monkeypatch.setenv("PERDURE_ACCEPT", accept)
        monkeypatch.setenv("PERDURE_REASON", reason)

    return tell


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[list[str], dict[str, str]]]:
    """The command, and what of the environment is perdure's, that would have taken this process's place."""
    calls: list[tuple[list[str], dict[str, str]]] = []

    def note(program: str, argv: list[str], environment: dict[str, str]) -> None:
        calls.append((argv, {name: value for name, value in environment.items() if name.startswith("PERDURE_")}))
        raise SystemExit(0)

    monkeypatch.chdir(tmp_path)  # and back at the end
    monkeypatch.setattr(os, "execvpe", note)
    return calls


def test_a_script_is_told_what_is_accepted_and_why(perdure_cli, run_path: Path, executed):
    assert perdure_cli("resume", run_path, *FASTER, "--accept", "b=1:2", "--reason", "it crept").code == 0
    assert perdure_cli("resume", run_path).code == 0

    insists = {"PERDURE_MODE": "resume", "PERDURE_RUN_DIR": str(run_path)}
    assert [environment for _, environment in executed] == [
        {**insists, "PERDURE_ACCEPT": '["algorithm.learning_rate=0.1:0.2", "b=1:2"]', "PERDURE_REASON": "it crept"},
        insists,
    ]


def test_with_another_command(perdure_cli, run_path: Path, toy, tmp_path: Path):
    command = ["--", sys.executable, SCRIPT, run_path, "--learning-rate", "0.2"]
    refused = execute(*TOOL, "resume", run_path, *command)
    done = execute(*TOOL, "resume", run_path, *FASTER, "--reason", "it crept", *command)

    assert refused.returncode == 1  # the script's own: it sees an exception
    assert "  To go on all the same: --accept algorithm.learning_rate=0.1:0.2\n" in refused.stderr
    assert done.returncode == 0, done.stderr
    assert amended(perdure_cli, run_path) == AMENDED
    [event] = resumed(run_path)
    assert (event["accepted"], event["reason"]) == ([{"text": AMENDED[0]}], "it crept")
    toy.train(tmp_path / "straight")
    assert perdure_cli("diff", run_path, tmp_path / "straight").code == 1  # the new rate was learned with


def test_with_the_recorded_command_and_an_edited_script(perdure_cli, tmp_path: Path):
    shutil.copy(SCRIPT, tmp_path / "train.py")
    launched = execute(sys.executable, "train.py", "run", cwd=tmp_path)
    assert launched.returncode == 0, launched.stderr
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_0000000060")
    text = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(text.replace("type=float, default=0.1", "type=float, default=0.2"))
    refused = execute(*TOOL, "resume", tmp_path / "run")
    done = execute(*TOOL, "resume", tmp_path / "run", *FASTER)

    assert refused.returncode == 1
    assert "algorithm.learning_rate: 0.1 in the run, 0.2 here." in refused.stderr
    assert done.returncode == 0, done.stderr
    assert amended(perdure_cli, tmp_path / "run") == AMENDED


def test_the_next_resume_repeats_the_command_that_was_accepted(perdure_cli, run_path: Path, executed, tmp_path: Path):
    command = [sys.executable, str(SCRIPT), str(run_path), "--learning-rate", "0.2", "--stop-after", "4"]
    done = execute(*TOOL, "resume", run_path, *FASTER, "--", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    perdure_cli("resume", run_path)

    assert [argv for argv, _ in executed] == [command]
    assert amended(perdure_cli, run_path) == AMENDED


def test_an_acceptance_outlives_a_process_that_died_before_the_next_commit(perdure_cli, run_path: Path, toy, told):
    told(run_path, json.dumps(AMENDED), "it crept")
    toy.train(run_path, learning_rate=0.2, stop_after=3)  # leaves before any boundary
    told(run_path, "")
    assert amended(perdure_cli, run_path) == []
    with pytest.raises(ContractError, match=r"learning_rate: 0\.1 in the run, 0\.3 here"):  # only what was accepted
        toy.train(run_path, learning_rate=0.3)
    toy.train(run_path, learning_rate=0.2)

    assert amended(perdure_cli, run_path) == AMENDED
    assert [event["accepted"] for event in resumed(run_path)] == [[{"text": AMENDED[0]}]] * 2


def test_it_reaches_no_other_run_that_the_script_opens(run_path: Path, toy, told, tmp_path: Path):
    told(tmp_path / "another", json.dumps(AMENDED))
    with pytest.raises(ContractError, match=r"learning_rate: 0\.1 in the run, 0\.2 here"):
        toy.train(run_path, learning_rate=0.2)
    (tmp_path / "another").symlink_to(run_path)  # now it is the same run under another name
    toy.train(run_path, learning_rate=0.2)


def test_what_differs_nowhere_is_no_acceptance(run_path: Path, toy, told, state_of):
    told(run_path, json.dumps(AMENDED))
    before = state_of(run_path)
    with pytest.raises(ContractError, match=r"--accept algorithm\.learning_rate=0\.1:0\.2: No such difference"):
        toy.train(run_path)

    assert state_of(run_path) == before


@pytest.mark.parametrize("text", ['{"a": 1}', "[1]", '"algorithm.learning_rate=0.1:0.2"'])
def test_an_environment_that_says_something_else_is_named(run_path: Path, toy, told, text: str):
    told(run_path, text)
    with pytest.raises(UsageError) as caught:
        toy.train(run_path, learning_rate=0.2)

    assert str(caught.value) == f"PERDURE_ACCEPT={text!r}: a JSON list of texts KEY=OLD:NEW."


def test_an_environment_that_is_no_json_is_named(run_path: Path, toy, told):
    told(run_path, AMENDED[0])
    with pytest.raises(UsageError, match="a JSON list of texts"):
        toy.train(run_path, learning_rate=0.2)


@pytest.mark.parametrize("command", [[], ["--", "my-python", "x.py"]])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--total-steps", "80"],
            "--total-steps is for runs of `perdure train`; a script has its own options: perdure resume RUN -- CMD …",
        ),
        (["--accept", "faster"], "--accept faster: write KEY=OLD:NEW, as the refusal says it."),
    ],
)
def test_what_cannot_be_said_to_a_script_starts_none(
    perdure_cli, run_path: Path, executed, words: list[str], command: list[str], message: str
):
    result = perdure_cli("resume", run_path, *words, *command)

    assert (result.code, result.err, executed) == (2, f"perdure: {message}\n", [])


def test_a_finished_run_is_started_for_an_acceptance_only(perdure_cli, toy, tmp_path: Path, executed):
    """A script that goes for more must be started to say so; a total is none of the tool's options for it."""
    toy.train(tmp_path / "done", updates=2)

    assert perdure_cli("resume", tmp_path / "done").out.startswith(f"{tmp_path}/done: finished already, at 20 of 20")
    assert executed == []
    assert perdure_cli("resume", tmp_path / "done", "--accept", "horizon.total=20:60").code == 0
    assert len(executed) == 1


def test_nothing_intact_to_accept_for(perdure_cli, run_path: Path, executed, flip: Callable):
    for manifest in run_path.glob("checkpoints/*/MANIFEST.json"):
        flip(manifest)

    assert (perdure_cli("resume", run_path, *FASTER).code, executed) == (4, [])


def test_a_script_s_run_whose_lineage_is_gone_is_started_as_at_first(perdure_cli, run_path: Path, executed):
    (run_path / "lineage.jsonl").unlink()
    result = perdure_cli("resume", run_path)

    assert (result.code, len(executed)) == (0, 1)
    assert result.err.splitlines()[0] == (
        f"perdure: {run_path}: lineage.jsonl is missing or empty. The checkpoints do not depend on it; acceptances in "
        "it do not count. A command is that of the first launch; options are those of the newest checkpoint."
    )


def test_a_damaged_lineage_is_said_before_the_first_command_is_used(perdure_cli, run_path: Path, executed):
    lines = (run_path / "lineage.jsonl").read_bytes().splitlines(keepends=True)
    (run_path / "lineage.jsonl").write_bytes(b"".join(lines[:1] + lines[2:]))
    result = perdure_cli("resume", run_path)

    assert (result.code, len(executed)) == (0, 1)
    assert result.err.splitlines()[0] == (
        f"perdure: {run_path}: lineage.jsonl:2: does not follow from the line before it. The checkpoints do not depend "
        "on it; acceptances in it do not count. A command is that of the first launch; options are those of the newest "
        "checkpoint."
    )
