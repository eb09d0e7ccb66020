"""`perdure ls` finds every run below a folder and says where each stands, also when something is damaged."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.cli.targets import size_of


def test_runs_at_and_below_the_folder(perdure_cli, toy: ModuleType, run_path: Path):
    toy.train(run_path.parent / "deep" / "er" / "done", updates=2)
    result = perdure_cli("ls", run_path.parent)
    lines = [re.split(r"  +", line) for line in result.out.splitlines()]

    assert result.code == 0
    exact = "checkpoint (resumable: exact-snapshot)"
    assert lines[0] == ["RUN", "AGENT", "ENV", "STEPS", "OF", "RETURN", "STATE", "CLASS", "SIZE", "AGE"]
    assert [lines[1][0], *lines[1][2:8]] == ["deep/er/done", "Toy-v0", "20", "20", "–", "finished", exact]
    assert [lines[2][0], *lines[2][2:8]] == ["run", "Toy-v0", "30", "60", "–", "stopped", exact]
    assert perdure_cli("ls", run_path).out.splitlines()[1].startswith(".  ")


def test_json(perdure_cli, run_path: Path):
    [row] = json.loads(perdure_cli("ls", run_path.parent, "--json").out)

    assert row.pop("age_s") >= 0
    assert isinstance(row.pop("agent"), str | None)  # the program that runs the tests
    assert row == {
        "run": "run",
        "env": "Toy-v0",
        "env_steps": 30,
        "total_steps": 60,
        "checkpoint": "step_0000000030",
        "continuation_class": "exact-snapshot",
        "size_bytes": size_of(run_path),
        "amended": False,
        "problem": None,
        "kind": "run",
        "state": "stopped",
        "metric": None,
        "last_return": None,
    }


def test_an_amended_run_is_marked(perdure_cli, toy: ModuleType, amended_path: Path):
    toy.train(amended_path.parent / "straight", stop_after=1)
    rows = json.loads(perdure_cli("ls", amended_path.parent, "--json").out)
    text = perdure_cli("ls", amended_path.parent).out.splitlines()

    assert {row["run"]: row["amended"] for row in rows} == {"run": True, "straight": False}
    assert [("checkpoint (resumable: exact-snapshot), amended" in line) for line in text[1:]] == [True, False]


def test_a_damaged_manifest_and_a_damaged_record_are_named(perdure_cli, run_path: Path, step, flip: Callable):
    flip(step(30) / "MANIFEST.json")
    flip(run_path / "run.json")
    result = perdure_cli("ls", run_path.parent)

    assert result.code == 0
    assert re.search(r"^run .* 20 +60 +– +stopped ! ", result.out, re.MULTILINE)
    assert "! run: " in result.out
    assert "run.json: " in result.out
    assert "step_0000000030: MANIFEST.json: " in result.out


def test_a_run_that_never_committed(perdure_cli, run_path: Path, step):
    for env_steps in (0, 10, 20, 30):
        step(env_steps).rename(run_path / f"elsewhere-{env_steps}")

    [_, line] = perdure_cli("ls", run_path.parent).out.splitlines()
    assert re.search(r" Toy-v0 +– +60 +– +stopped +– ", line)


ROWS = [
    {"boundary": number, "env_steps": 100 * number, "updates": number, "eval/return_mean": value, "loss": -value}
    for number, value in enumerate([1.0, 5.0, 2.5], start=1)
]


def make_run(path: Path, rows: list[dict[str, Any]] = ROWS, **options: Any) -> Path:
    """A run with these rows, stopped."""
    config = {"env": "Maze-v0", "agent": "dqn", **options}
    with perdure.Run(path, config=config, horizon=1000, every=perdure.Every(updates=1)) as run:
        run.restore(x=0)
        for row in rows:
            metrics = {name: value for name, value in row.items() if name not in ("boundary", "env_steps", "updates")}
            run.boundary(env_steps=row["env_steps"], x=1, metrics=metrics)
    return path


def crash(path: Path) -> None:
    with perdure.Run(path, config={"env": "Maze-v0", "agent": "sac"}, every=perdure.Every(updates=1)) as run:
        run.restore(x=0)
        run.boundary(env_steps=100, x=1, metrics={"eval/return_mean": 9.0})
        raise ZeroDivisionError


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_listed(perdure_cli, toy: ModuleType, run_path: Path):
    toy.train(run_path.parent / "other", updates=2)
    (run_path / "metrics.jsonl").unlink()
    (run_path / "metrics.jsonl").mkdir()  # which root cannot read either
    result = perdure_cli("ls", run_path.parent)

    assert result.code == 0
    assert [re.split(r"  +", line)[0] for line in result.out.splitlines()[1:3]] == ["other", "run"]
    assert result.out.splitlines()[3] == f"! run: [Errno 21] Is a directory: '{run_path}/metrics.jsonl'"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`a` (dqn, 300 steps), `b` (sac, 100 steps, crashed), `c` (sac, in Cart-v0, without a return)."""
    make_run(tmp_path / "a")
    with pytest.raises(ZeroDivisionError):
        crash(tmp_path / "b")
    make_run(tmp_path / "c", [], env="Cart-v0", agent="sac")
    return tmp_path


@pytest.fixture
def running(folder: Path) -> Iterator[None]:
    """Another process holds the lock of `c`."""
    program = (
        "import sys; from pathlib import Path; from perdure.runs.lock import acquire\n"
        "lock = acquire(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(folder / "c" / ".writer.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.communicate()


def listed(perdure_cli, folder: Path, *words: str) -> list[str]:
    result = perdure_cli("ls", folder, "--json", *words)
    assert result.code == 0, result.err
    return [row["run"] for row in json.loads(result.out)]


@pytest.mark.usefixtures("running")
def test_agent_environment_return_and_state(perdure_cli, folder: Path):
    rows = json.loads(perdure_cli("ls", folder, "--json").out)
    columns = ("run", "agent", "env", "env_steps", "total_steps", "metric", "last_return", "state")

    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("a", "dqn", "Maze-v0", 300, 1000, "eval/return_mean", 2.5, "stopped"),
        ("b", "sac", "Maze-v0", 100, None, "eval/return_mean", 9.0, "crashed"),
        ("c", "sac", "Cart-v0", 0, 1000, None, None, "running"),
    ]
    assert re.search(r"^a +dqn +Maze-v0 +300 +1,000 +2\.5 +stopped ", perdure_cli("ls", folder).out, re.MULTILINE)


def test_another_metric_tells_the_return(perdure_cli, folder: Path):
    rows = json.loads(perdure_cli("ls", folder, "--json", "--metric", "loss").out)

    assert [(row["metric"], row["last_return"]) for row in rows] == [("loss", -2.5), (None, None), (None, None)]


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("steps", "cba"),
        ("-steps", "abc"),
        ("return", "abc"),
        ("-return", "bac"),
        ("of", "acb"),
        ("-run", "cba"),
        ("agent", "abc"),
        ("-state", "acb"),
    ],
)
@pytest.mark.usefixtures("running")
def test_sorting_and_what_has_no_value_comes_last(perdure_cli, folder: Path, sort: str, names: str):
    assert listed(perdure_cli, folder, f"--sort={sort}") == list(names)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--state", "running"), "c"),
        (("--state", "crashed", "--state", "stopped"), "ab"),
        (("--env", "Maze-*"), "ab"),
        (("--env", "Maze-*", "--agent", "sac"), "b"),
        (("--class", "exact-*"), "abc"),
        (("--class", "policy"), ""),
        (("--agent", "ppo"), ""),
    ],
)
@pytest.mark.usefixtures("running")
def test_filters(perdure_cli, folder: Path, words: tuple[str, ...], names: str):
    assert listed(perdure_cli, folder, *words) == list(names)


def test_policies_of_a_role_say_which_is_current(perdure_cli, folder: Path):
    for step in (200, 300):
        words = ("--as", "production", "--components", "x", "--to", folder / "roles")
        assert perdure_cli("promote", folder / "a", step, *words).code == 0
    rows = json.loads(perdure_cli("ls", folder / "roles", "--json").out)

    assert [(row["kind"], row["env_steps"], row["state"]) for row in rows] == [
        ("policy", 200, "superseded"),
        ("policy", 300, "current"),
    ]
    assert listed(perdure_cli, folder, "--state", "current") == [f"roles/{rows[1]['run']}"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sort", "speed"), "ls --sort speed: no such column; there are run, agent, env, steps, of, return, state"),
        (("--watch", "0"), "ls --watch 0.0: a number of seconds above 0."),
        (("--watch", "nan"), "ls --watch nan: a number of seconds above 0."),
        (("--watch", "--json"), "ls --watch: is for people; call `ls --json` as often as you need it."),
    ],
)
def test_words_that_cannot_be_meant(perdure_cli, folder: Path, words: tuple[str, ...], message: str):
    result = perdure_cli("ls", folder, *words)

    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_tensor_files_are_never_read(perdure_cli, folder: Path):
    before = perdure_cli("ls", folder, "--json").out
    with perdure.Run(folder / "arrays") as run:
        run.restore(weights=np.ones(1000))
    read = json.loads(perdure_cli("ls", folder, "--json").out)
    tensors = list((folder / "arrays").rglob("*.safetensors"))
    for file in tensors:
        file.write_bytes(bytes(file.stat().st_size))  # damage that only a reader would see

    assert tensors
    assert len(read) == len(json.loads(before)) + 1
    after = json.loads(perdure_cli("ls", folder, "--json").out)
    assert [row | {"age_s": 0} for row in after] == [row | {"age_s": 0} for row in read]


class Slept:
    """Stands in for `time.sleep`: what happens while `--watch` waits, and Ctrl-C after some rounds."""

    def __init__(self, *meanwhile: Callable[[], object]) -> None:
        self.meanwhile, self.seconds = list(meanwhile), []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if not self.meanwhile:
            raise KeyboardInterrupt
        self.meanwhile.pop(0)()


def test_watch_looks_again_and_leaves_on_ctrl_c(perdure_cli, folder: Path, monkeypatch: pytest.MonkeyPatch):
    slept = Slept(lambda: make_run(folder / "new"))
    monkeypatch.setattr("perdure.cli.ls.time.sleep", slept)
    result = perdure_cli("ls", folder, "--watch", "0.5")
    first, second = result.out.split("\n\n")[:2]

    assert (result.code, result.err, slept.seconds) == (0, "", [0.5, 0.5])
    assert "\x1b" not in result.out
    assert "\nnew " not in first
    assert "\nnew " in second
    assert re.match(r"\d\d:\d\d:\d\d  ", first)


def test_watch_on_a_terminal_redraws_what_fits(perdure_cli, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("perdure.cli.ls.time.sleep", Slept())
    monkeypatch.setattr("perdure.cli.ls.sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("perdure.cli.ls.shutil.get_terminal_size", lambda: os.terminal_size((40, 4)))
    result = perdure_cli("ls", folder, "--watch")
    lines = result.out.splitlines()

    assert result.out.startswith("\x1b[H\x1b[J")
    assert len(lines) == 3
    assert lines[-1] == "… 3 more lines"
    assert all(len(line.removeprefix("\x1b[H\x1b[J")) <= 40 for line in lines)


def test_no_runs(perdure_cli, tmp_path: Path):
    assert perdure_cli("ls", tmp_path).out == f"no runs below {tmp_path}\n"
    assert perdure_cli("ls", tmp_path, "--json").out == "[]\n"


def test_a_mistyped_folder(perdure_cli, tmp_path: Path):
    result = perdure_cli("ls", tmp_path / "nope")

    assert (result.code, result.err) == (4, f"perdure: {tmp_path}/nope: no such directory. Check the spelling.\n")


def test_a_file_with_two_names_counts_once(tmp_path: Path):
    (tmp_path / "a").write_bytes(bytes(100))
    (tmp_path / "b").hardlink_to(tmp_path / "a")

    assert size_of(tmp_path) == 100
