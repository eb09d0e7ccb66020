"""Nothing secret gets into a run's directory: secrets are planted everywhere, and looked for in every file.

And what is no secret is there: the commit, the patch, the variables; a change of them is told at a resume.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.runs.test_code import git

import perdure
from perdure.errors import UsageError
from perdure.runs.lineage import read_lineage
from perdure.runs.record import RunRecord, launch_of, read_record, write_record
from perdure.runs.variables import KNOWN

SECRETS = {
    "in a variable": "variable-correct-horse",
    "in code, as in a variable": "other-battery-staple",
    "in a proxy": "proxy-pa55",
    "in the remote": "remote-pa55",
    "in a tracked .env": "dotenv-correct-horse",
    "in an untracked file": "untracked-correct-horse",
    "in code, by its shape": "ghp_0123456789abcdefghijklmnop",
    "in code, by its name": "name-correct-horse",
    "in an option": "option-correct-horse",
    "in an option with =": "equals-correct-horse",
    "in the configuration": "config-correct-horse",
    "in a URL of the configuration": "url-pa55",
    "in a word of the configuration": "hf_0123456789abcdefghijkl",
    "in what a sink raises": "sink-pa55",
    "in what a hook raises": "glpat-0123456789abcdefghij",
}

SCRIPT = """\
import argparse, perdure, perdure.sinks
parser = argparse.ArgumentParser()
for name in ("--api-key", "--token", "--run", "--lr"):
    parser.add_argument(name)
args = parser.parse_args()
config = {"lr": args.lr, "wandb": {"api_key": args.api_key}, "note": {"password": "config-correct-horse"}}
config["tracking"] = {"uri": "https://me:url-pa55@example.org", "words": ["push", "--to=hf_0123456789abcdefghijkl"]}

class Sink(perdure.sinks.Sink):
    def row(self, counters, metrics):
        raise OSError("https://me:sink-pa55@example.org/rows: 401")

def upload(checkpoint):
    raise OSError("403 for glpat-0123456789abcdefghij")

more = {"variables": ["HTTPS_PROXY", "NOT_SET"], "sinks": [Sink()], "after_commit": upload}
with perdure.Run(args.run, config=config, **more) as run:
    run.restore(x=0)
    run.boundary(env_steps=run.env_steps + 1, x=1, metrics={"loss": 0.5})
    run.finish(x=1)
for notice in run.notices:
    print("notice:", notice)
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A repository full of secrets, with a script."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / ".env").write_text("A=1\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "remote", "add", "origin", f"https://me:{SECRETS['in the remote']}@example.org/a.git")
    (folder / ".env").write_text(f"A={SECRETS['in a tracked .env']}\n")
    (folder / "draft").write_text(SECRETS["in an untracked file"])
    more = (
        f"# {SECRETS['in code, by its shape']}\nDB_PASSWORD = '{SECRETS['in code, by its name']}'\n"
        f"print('{SECRETS['in code, as in a variable']}'[:0], end='')\nvisible_change = 1\n"
    )
    (folder / "train.py").write_text(SCRIPT + more)
    return folder


def launch(folder: Path, run: Path, *words: str, **variables: str) -> str:
    environment = {
        **os.environ,
        "MY_TOKEN": SECRETS["in a variable"],
        "OTHER_API_KEY": SECRETS["in code, as in a variable"],
        "HTTPS_PROXY": f"http://me:{SECRETS['in a proxy']}@proxy:8080",
        "PYTHONHASHSEED": "7",
        **variables,
    }
    command = [sys.executable, "train.py", "--run", str(run), *words]
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


SECRET_WORDS = ("--api-key", SECRETS["in an option"], f"--token={SECRETS['in an option with =']}")


def leaks(run: Path) -> list[str]:
    """Which secrets stand in which file."""
    files = [path for path in run.rglob("*") if path.is_file()]
    assert len(files) > 5
    return [
        f"{path.name}: {what}" for path in files for what, text in SECRETS.items() if text.encode() in path.read_bytes()
    ]


def test_no_file_of_the_run_holds_a_secret(planted: Path, tmp_path: Path):
    launch(planted, tmp_path / "run", *SECRET_WORDS)
    launch(planted, tmp_path / "run", *SECRET_WORDS, PYTHONHASHSEED="8")

    assert leaks(tmp_path / "run") == []
    assert "visible_change = 1" in (tmp_path / "run" / "code.patch").read_text()


def test_the_search_finds_what_is_there(planted: Path, tmp_path: Path):
    """The twin: the same files with secrets put back."""
    launch(planted, tmp_path / "run")
    with (tmp_path / "run" / "timings.jsonl").open("a") as file:
        file.write("".join(SECRETS.values()))

    assert len(leaks(tmp_path / "run")) == len(SECRETS)


def test_what_the_record_holds(planted: Path, tmp_path: Path):
    launch(planted, tmp_path / "run", "--lr", "0.1")
    record = read_record(tmp_path / "run" / "run.json")

    assert record.code is not None
    assert record.code["commit"] == git(planted, "rev-parse", "HEAD")
    assert (record.code["branch"], record.code["dirty"]) == ("main", True)
    assert (record.code["untracked"], record.code["left_out"]) == (["draft"], [".env"])
    assert record.code["remote"] == "https://[withheld]@example.org/a.git"
    assert record.variables is not None
    assert record.variables.keys() == {*KNOWN, "HTTPS_PROXY", "NOT_SET"}
    assert record.variables["PYTHONHASHSEED"] == "7"
    assert record.variables["HTTPS_PROXY"] == "http://[withheld]@proxy:8080"
    assert record.variables["NOT_SET"] is None
    assert record.launch["argv"][1:] == ["train.py", "--run", str(tmp_path / "run"), "--lr", "0.1"]
    assert record.contract["algorithm"]["note.password"] == "[withheld]"


def test_a_command_with_a_secret_is_shown_without_it_and_never_executed(planted: Path, tmp_path: Path, capsys):
    from perdure.cli.main import main

    launch(planted, tmp_path / "run", *SECRET_WORDS)
    record = read_record(tmp_path / "run" / "run.json")
    main(["show", str(tmp_path / "run")])
    shown = capsys.readouterr().out

    assert record.launch["argv"] == []
    assert "train.py --run" in record.launch["withheld"]
    assert "--api-key '[withheld]' '--token=[withheld]'" in record.launch["withheld"]
    assert "--api-key '[withheld]' '--token=[withheld]' (in " in shown
    assert "code         commit " in shown
    assert main(["resume", str(tmp_path / "run")]) == 2
    refused = capsys.readouterr().err
    assert "its command held a secret, which was not written down: " in refused
    assert "Give the command yourself: perdure resume " in refused


def test_a_changed_commit_and_variable_are_told_at_each_resume_and_refuse_nothing(planted: Path, tmp_path: Path):
    run = tmp_path / "run"
    old = git(planted, "rev-parse", "HEAD")
    assert launch(planted, run) == ""
    assert launch(planted, run) == ""
    git(planted, "commit", "-q", "-a", "-m", "second")
    new = git(planted, "rev-parse", "HEAD")

    assert launch(planted, run, PYTHONHASHSEED="8", NOT_SET="now") == (
        f"notice: the code changed: commit {old[:12]} then, {new[:12]} now.\n"
        "notice: environment variable changed: NOT_SET: not set then, 'now' now.\n"
        "notice: environment variable changed: PYTHONHASHSEED: '7' then, '8' now.\n"
    )
    assert launch(planted, run, PYTHONHASHSEED="8", NOT_SET="now") == ""
    resumed = [event for event in read_lineage(run / "lineage.jsonl") if event["event"] == "resumed"]
    assert [event["code"] and event["code"]["commit"] for event in resumed] == [None, new, None]
    assert [event["variables"] for event in resumed] == [{}, {"NOT_SET": "now", "PYTHONHASHSEED": "8"}, {}]


def test_what_arithmetic_tells_is_not_told_twice(planted: Path, tmp_path: Path):
    launch(planted, tmp_path / "run", MKL_NUM_THREADS="1")
    told = launch(planted, tmp_path / "run", MKL_NUM_THREADS="2").splitlines()

    assert len(told) == 1
    assert "arithmetic changed: MKL_NUM_THREADS: 1 then, 2 now." in told[0]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (["MY_TOKEN"], "variables: 'MY_TOKEN': the name speaks of a secret, and values are written to disk."),
        (["WANDB_API_KEY"], "variables: 'WANDB_API_KEY': the name speaks of a secret"),
        (["aws_credentials"], "the name speaks of a secret"),
        (["A=B"], "variables: 'A=B' is no name of an environment variable."),
        ([""], "variables: '' is no name"),
        ("PATH", "variables='PATH': a list of names, such as variables=['CUDA_VISIBLE_DEVICES']."),
        ([1], "variables=[1]: a list of names"),
    ],
)
def test_variables_that_cannot_be_kept(tmp_path: Path, variables: Any, message: str):
    with pytest.raises(UsageError) as caught:
        perdure.Run(tmp_path / "run", variables=variables)

    assert message in str(caught.value)


def test_a_record_from_before_is_read_and_a_resume_of_it_tells_nothing(tmp_path: Path):
    from perdure.format import canonical
    from perdure.format.digests import digest_of

    with perdure.Run(tmp_path / "run") as run:
        run.restore(x=0)
    file = tmp_path / "run" / "run.json"
    document = json.loads(file.read_bytes())
    for name in ("code", "variables", "digest"):
        del document[name]
    file.write_bytes(canonical.encode({**document, "digest": digest_of(canonical.encode(document))}))

    assert (read_record(file).code, read_record(file).variables) == (None, None)
    with perdure.Run(tmp_path / "run") as run:
        run.restore(x=0)
    assert run.notices == []


def test_a_launch_that_a_script_states_itself_is_looked_at_too(tmp_path: Path):
    stated = {"kind": "script", "argv": ["python", "x.py", "--password", "abc"], "cwd": "/"}
    kept = launch_of(stated)
    record = RunRecord("a" * 32, "2026-01-01T00:00:00.000+00:00", kept, {}, {})
    write_record(tmp_path / "run.json", record)

    assert kept == {"kind": "script", "argv": [], "cwd": "/", "withheld": "python x.py --password '[withheld]'"}
    assert launch_of({**stated, "argv": ["python", "x.py"]}) == {**stated, "argv": ["python", "x.py"]}
    assert read_record(tmp_path / "run.json") == record
