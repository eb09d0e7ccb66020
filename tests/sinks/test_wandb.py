"""Weights & Biases gets each step once, under one id, and only what a durable checkpoint counts."""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.driving import Driver
from tests.sinks.killed_loop import WandBAtOnce
from tests.sinks.killing import live_through
from tests.sinks.wandb_double import Server

import perdure
from perdure.errors import UsageError
from perdure.runs.lineage import read_lineage
from perdure.sinks import WandB

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setitem(sys.modules, "wandb", server)
    monkeypatch.setattr("perdure.sinks.wandb.find_spec", lambda name: server)
    return server


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path / "run", lambda: WandB("project"))


def go(driver: Driver, boundaries: int) -> None:
    with driver.open() as run:
        for _ in range(boundaries):
            driver.step(run, loss=(run.env_steps + 10) / 3)


def killed(driver: Driver, server: Server, boundaries: int) -> None:
    """The same, and then the process is gone: no `finish`, nothing sent any more."""
    run = driver.open()
    for _ in range(boundaries):
        driver.step(run, loss=(run.env_steps + 10) / 3)
    server.kill()
    run._sinks._all.clear()  # the process that would close them is gone
    run.close()


def test_a_row_bears_its_metrics_the_counters_and_the_attempt(driver: Driver, server: Server):
    go(driver, 2)
    run_id = read_lineage(driver.directory / "lineage.jsonl")[0]["run_id"]

    assert server.rows == {
        run_id: [
            {"loss": 10 / 3, "env_steps": 10, "updates": 1, "boundary": 1, "attempt": 1, "_step": 10},
            {"loss": 20 / 3, "env_steps": 20, "updates": 2, "boundary": 2, "attempt": 1, "_step": 20},
        ]
    }
    assert server.runs[0].is_finished
    options = {"project": "project", "name": None, "config": None, "dir": str(driver.directory)}
    assert server.inits == [{**options, "id": run_id, "resume": "allow"}]


def test_rows_that_no_checkpoint_counts_are_not_handed_in(driver: Driver, server: Server):
    with driver.open() as run:
        driver.step(run, loss=1.0)
        assert server.rows[server.runs[0].id] == []
        driver.step(run, loss=1.0)
        assert server.steps() == [10, 20]
        driver.step(run, loss=1.0)

    assert server.steps() == [10, 20]


def test_over_resumes_it_is_one_run_and_each_step_is_there_once(driver: Driver, server: Server):
    for boundaries in (3, 1, 5):
        go(driver, boundaries)

    assert server.steps() == [10, 20, 30, 40, 50, 60]
    assert [row["attempt"] for row in server.rows[server.runs[0].id]] == [1, 1, 3, 3, 3, 3]
    assert len({options["id"] for options in server.inits}) == 1
    assert server.refused == []


@pytest.mark.parametrize("late", [0, 1, 3, 100])
def test_what_a_kill_lost_on_the_way_is_handed_in_again(late: int, driver: Driver, server: Server):
    server.late = late
    killed(driver, server, 5)
    assert server.steps() == [10, 20, 30, 40][: max(0, 4 - late)]
    killed(driver, server, 2)
    go(driver, 2)

    assert server.steps() == [10, 20, 30, 40, 50, 60, 70, 80][: len(server.steps())]
    assert server.steps()[-1] == perdure.Run(driver.directory).metrics_rows()[-1]["env_steps"] // 20 * 20
    assert server.refused == []


def test_the_twin_that_hands_rows_in_at_once_is_refused_steps(driver: Driver, server: Server):
    driver.make = lambda: WandBAtOnce("project")
    go(driver, 3)
    go(driver, 3)

    assert server.refused != []


def test_after_a_step_back_rows_that_w_and_b_has_are_not_handed_in_again(driver: Driver, server: Server):
    go(driver, 6)
    last = max((driver.directory / "checkpoints").iterdir())
    (last / "MANIFEST.json").write_bytes(b"damaged")
    go(driver, 4)

    assert server.steps() == [10, 20, 30, 40, 50, 60, 70, 80]
    assert server.refused == []


def test_a_run_that_was_deleted_there_gets_every_row_again(driver: Driver, server: Server):
    go(driver, 4)
    server.rows.clear()
    go(driver, 2)

    assert server.steps() == [10, 20, 30, 40, 50, 60]


def test_the_id_that_was_given_once_is_kept(driver: Driver, server: Server):
    driver.make = lambda: WandB(id="mine")
    go(driver, 2)
    driver.make = WandB
    go(driver, 2)

    assert json.loads((driver.directory / "wandb.json").read_bytes()) == {"env_steps": 40, "id": "mine"}
    assert [options["id"] for options in server.inits] == ["mine", "mine"]


def test_another_id_begins_another_run_with_all_rows(driver: Driver, server: Server):
    go(driver, 2)
    driver.make = lambda: WandB(id="other")
    go(driver, 2)

    assert [row["_step"] for row in server.rows["other"]] == [10, 20, 30, 40]


@pytest.mark.parametrize("option", ["id", "resume", "fork_from"])
def test_options_that_would_break_the_run_in_two_are_refused(option: str, server: Server):
    with pytest.raises(UsageError) as caught:
        WandB(options={option: "x", "mode": "offline"})

    assert str(caught.value) == f"WandB(options=…): {option} would break the run in two; leave it out."


def test_without_wandb_it_is_said_what_to_install():
    if "wandb" in sys.modules:
        pytest.skip("wandb is installed")
    with pytest.raises(UsageError, match=r"^WandB: wandb is not installed: pip install 'perdure\[wandb\]'$"):
        WandB()


def test_closed_twice_and_not_begun(server: Server):
    sink = WandB()
    sink.close()
    sink.close()

    assert server.inits == []


def python() -> Path:
    """An interpreter that has wandb."""
    python = ROOT / ".cache" / "wandb" / "bin" / "python"
    if not python.exists():
        pytest.skip("no .cache/wandb: ./dev test slow makes it")
    return python


READ = """
import json, sys
from pathlib import Path
from perdure.sinks.wandb_run import records_in
from wandb.proto.wandb_internal_pb2 import Record

rows = []
for file in sorted(Path(sys.argv[1]).glob("wandb/offline-run-*/run-*.wandb")):
    for record in map(Record.FromString, records_in(file.read_bytes())):
        if record.HasField("history"):
            rows.append({"step": record.history.step.num})
            for item in record.history.item:
                rows[-1][item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
print(json.dumps(rows))
"""


def offline_rows(directory: Path) -> list[dict[str, Any]]:
    """Every row in the offline files of a run, those of the first attempt first."""
    import os
    import subprocess

    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [str(python()), "-c", READ, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", [0, 1])
def test_offline_files_of_a_run_killed_ten_times_hold_each_step_once(seed: int, tmp_path: Path):
    kills = live_through(tmp_path / "run", ["wandb"], kills=10, seed=seed, python=python())
    rows, stream = offline_rows(tmp_path / "run"), perdure.Run(tmp_path / "run").metrics_rows()

    assert kills == 10
    assert [row["step"] for row in rows] == [row["env_steps"] for row in stream] == list(range(10, 610, 10))
    for row, expected in zip(rows, stream, strict=True):
        assert {name: row[name] for name in ("norm", "env_steps", "updates", "boundary")} == {
            name: expected[name] for name in ("norm", "env_steps", "updates", "boundary")
        }
    assert [row["attempt"] for row in rows] == sorted(row["attempt"] for row in rows)
    assert json.loads((tmp_path / "run" / "wandb.json").read_bytes())["env_steps"] == 600


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_offline_files_that_were_synced_and_removed_are_not_written_again(tmp_path: Path):
    live_through(tmp_path / "run", ["wandb"], kills=0, seed=0, python=python())
    shutil.rmtree(tmp_path / "run" / "wandb")
    live_through(tmp_path / "run", ["wandb"], kills=0, seed=0, python=python())

    assert offline_rows(tmp_path / "run") == []


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_the_twin_that_hands_rows_in_at_once_leaves_steps_twice(tmp_path: Path):
    live_through(tmp_path / "run", ["wandb-at-once"], kills=5, seed=0, python=python())

    counts = Counter(row["step"] for row in offline_rows(tmp_path / "run"))
    assert max(counts.values()) > 1
