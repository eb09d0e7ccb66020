"""How a fork is launched: as its parent was when the checkpoint was made, but aimed at the new directory."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure import Every, Run
from perdure.runs.fork import aimed_at, fork
from perdure.runs.record import RunRecord, read_record

RUN = "/srv/runs/a"


def train(
    run: Path,
    until: int,
    launch: Mapping[str, Any],
    *,
    rate: float = 0.5,
    total: int = 9,
    accept: tuple[str, ...] = (),
) -> None:
    """A step an update, all of them saved; leaves after so many steps."""
    config, saving = {"rate": rate, "total": total}, {"every": Every(updates=1), "keep": None}
    horizon = {"horizon": "total", "schedules": "none"}
    with Run(run, config=config, launch=launch, accept=accept, **horizon, **saving) as opened:
        opened.restore(x=0)
        for env_steps in range(opened.env_steps + 1, until + 1):
            opened.boundary(env_steps=env_steps, x=env_steps)


def trainer(**config: Any) -> dict[str, Any]:
    return {"kind": "trainer", "name": "toy", "config": config}


def record(run: Path) -> RunRecord:
    return read_record(run / "run.json")


def test_what_was_accepted_after_the_checkpoint_is_not_in_the_fork(tmp_path: Path):
    train(tmp_path / "parent", 2, trainer(rate=0.5))
    train(tmp_path / "parent", 4, trainer(rate=0.25), rate=0.25, accept=("algorithm.rate=0.5:0.25",))
    for env_steps in (1, 2, 3, 4):
        fork(tmp_path / "parent", env_steps, tmp_path / f"child-{env_steps}")

    forks = [record(tmp_path / f"child-{env_steps}") for env_steps in (1, 2, 3, 4)]
    assert [child.contract["algorithm"]["rate"] for child in forks] == [0.5, 0.5, 0.25, 0.25]
    assert [child.launch["config"]["rate"] for child in forks] == [0.5, 0.5, 0.25, 0.25]
    train(tmp_path / "child-2", 3, trainer(rate=0.5))


def test_a_total_that_grew_after_the_checkpoint_is_not_in_the_fork(tmp_path: Path):
    train(tmp_path / "parent", 2, trainer(total=9))
    train(tmp_path / "parent", 4, trainer(total=20), total=20)
    for env_steps in (2, 3):
        fork(tmp_path / "parent", env_steps, tmp_path / f"child-{env_steps}")

    forks = [record(tmp_path / f"child-{env_steps}") for env_steps in (2, 3)]
    assert [child.launch["config"]["total"] for child in forks] == [9, 20]
    assert [child.contract["horizon"]["total"] for child in forks] == [9, 20]


@pytest.mark.parametrize(
    ("words", "aimed"),
    [
        (["python", "train.py", RUN], ["python", "train.py", "/srv/runs/b"]),
        (["python", "train.py", f"{RUN}/"], ["python", "train.py", "/srv/runs/b"]),
        (["python", "train.py", "runs/a"], ["python", "train.py", "/srv/runs/b"]),
        (["python", "train.py", "./x/../runs/a"], ["python", "train.py", "/srv/runs/b"]),
        (["python", "train.py", f"--run={RUN}", "--seed=1"], ["python", "train.py", "--run=/srv/runs/b", "--seed=1"]),
        (["python", "train.py", "--run=runs/a"], ["python", "train.py", "--run=/srv/runs/b"]),
        (["python", "train.py", "--run", "runs/a", "runs/a"], ["python", "train.py", "--run", *2 * ["/srv/runs/b"]]),
        (["python", "train.py", "--set", "x=y=runs/a"], ["python", "train.py", "--set", "x=y=/srv/runs/b"]),
        (["python", "train.py"], []),
        (["python", "train.py", "--run="], []),
        (["python", "train.py", "--name", "a"], []),
        (["python", "train.py", "runs/a2"], []),
        ([], []),
    ],
)
def test_a_script_is_aimed_at_the_new_run(words: list[str], aimed: list[str]):
    launch = {"kind": "script", "argv": words, "cwd": "/srv"}

    assert aimed_at(launch, Path(RUN), Path("/srv/runs/b")) == {**launch, "argv": aimed}


def test_a_script_is_aimed_at_the_new_run_where_the_old_one_s_name_holds_an_equals_sign():
    for word, aimed in (("runs/lr=1e-4", "/srv/b"), ("--run=runs/lr=1e-4", "--run=/srv/b")):
        launch = {"kind": "script", "argv": ["python", word], "cwd": "/srv"}

        assert aimed_at(launch, Path("/srv/runs/lr=1e-4"), Path("/srv/b"))["argv"] == ["python", aimed]


def test_a_script_that_named_the_run_by_another_path_to_it(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    launch = {"kind": "script", "argv": ["python", "link"], "cwd": str(tmp_path)}

    assert aimed_at(launch, tmp_path / "real", Path("/srv/b"))["argv"] == ["python", "/srv/b"]


def test_a_trainer_s_launch_names_no_directory():
    launch = {"kind": "trainer", "name": "ppo", "config": {"run": RUN}}

    assert aimed_at(launch, Path(RUN), Path("/srv/runs/b")) == launch


def test_the_record_of_a_fork_holds_the_aimed_command(tmp_path: Path):
    launch = {"kind": "script", "argv": ["python", "train.py", "parent"], "cwd": str(tmp_path)}
    train(tmp_path / "parent", 1, launch)
    fork(tmp_path / "parent", 1, tmp_path / "child")

    assert record(tmp_path / "child").launch["argv"] == ["python", "train.py", str(tmp_path / "child")]


@pytest.mark.parametrize("kind", ["another user's", "everybody's"])
def test_a_command_that_somebody_else_may_have_written_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """In the fork, which is this user's, `perdure resume` would execute it."""
    train(tmp_path / "parent", 1, {"kind": "script", "argv": ["rm", "parent"], "cwd": str(tmp_path)})
    if kind == "everybody's":
        (tmp_path / "parent" / "run.json").chmod(0o666)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: (tmp_path / "parent").stat().st_uid + 1)
    fork(tmp_path / "parent", 1, tmp_path / "child")

    assert record(tmp_path / "child").launch["argv"] == []
    assert (tmp_path / "child" / "run.json").stat().st_mode & 0o002 == 0
