"""The recipes of `examples/preemption/` start a training again on 75 and on 128 or more only, and it goes on exactly.

The scripts run as they are; `srun` and `scontrol` are stand-ins that note their calls.
"""

import configparser
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import ROOT
from tests.runs.toy_training import rows, states

from perdure.cli.exit_codes import ExitCode
from perdure.runs.lineage import read_lineage
from perdure.runs.stopping import PATIENCE_S

pytestmark = pytest.mark.full

RECIPES = ROOT / "examples" / "preemption"
TRAIN = [sys.executable, str(Path(__file__).with_name("preempted_script.py"))]
ENDS = sorted({*map(int, ExitCode)} - {ExitCode.PREEMPTED} - {code for code in ExitCode if code >= 128})
AGAIN = [ExitCode.PREEMPTED, 128, 137, 143]


class Started:
    """A recipe in a process and a group of its own."""

    def __init__(self, directory: Path, recipe: list[str], *command: object, **environment: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [*recipe, *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PAUSE_S": "0", "PATH": f"{directory}/bin:{os.environ['PATH']}", **environment},
        )

    def wait_for(self, line: str) -> "Started":
        """Until the training, or what stands for it, has said that."""
        assert self.process.stdout is not None
        for said in self.process.stdout:
            if said.strip() == line:
                return self
        raise AssertionError(f"it ended before it said {line!r}: {self.process.communicate()}")

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    directory = tmp_path_factory.mktemp("straight") / "x"
    subprocess.run([*TRAIN, directory], check=True, stdout=subprocess.DEVNULL)
    return directory


@pytest.fixture
def supervise(tmp_path: Path) -> Callable[..., Started]:
    """`supervise.sh COMMAND`, without a pause unless PAUSE_S says otherwise."""
    return lambda *command, **environment: Started(tmp_path, [f"{RECIPES}/supervise.sh"], *command, **environment)


@pytest.fixture
def batch(tmp_path: Path) -> Callable[..., Started]:
    """The batch script as Slurm would start it; the stand-in of `srun` becomes the training."""
    for name, body in {
        "srun": 'exec "$@"',
        "scontrol": '[ "$1" != show ] || echo "   JobState=${JOB_STATE:-RUNNING} Reason=None"',
    }.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n{body}\n')
        path.chmod(0o755)
    shutil.copy(RECIPES / "slurm.sbatch", tmp_path)  # Slurm runs a copy, too
    recipe = ["bash", f"{tmp_path}/slurm.sbatch"]
    return lambda *command, **words: Started(tmp_path, recipe, *command, **{"SLURM_JOB_ID": "7", **words})


def calls(directory: Path) -> list[str]:
    return [line for line in (directory / "calls").read_text().splitlines() if line.startswith("scontrol")]


def ends(directory: Path) -> list[Any]:
    events = read_lineage(directory / "lineage.jsonl")
    return [event.get("why", event["event"]) for event in events if event["event"] in ("stopped", "finished")]


def starts(directory: Path) -> int:
    return directory.with_suffix(".starts").read_text().count("started")


def assert_equal(directory: Path, straight: Path) -> None:
    assert list(states(directory).values())[-1] == list(states(straight).values())[-1]
    assert rows(directory) == rows(straight)


# The supervisor.


def test_a_training_is_started_until_it_is_done(supervise, straight: Path, tmp_path: Path):
    code, errors = supervise(*TRAIN, tmp_path / "x", "--strike", "SIGTERM:5", "SIGKILL:9", "SIGUSR1:17").end()

    assert code == 0, errors
    assert [line for line in errors.splitlines() if line.startswith("supervise: ")] == [
        f"supervise: ended with {code}; again in 0 s" for code in (75, 137, 75)
    ]
    assert ends(tmp_path / "x") == ["SIGTERM", "SIGUSR1", "finished"]
    assert_equal(tmp_path / "x", straight)


def test_twin_a_training_that_forgets_its_generator_is_seen(supervise, straight: Path, tmp_path: Path):
    code, _ = supervise(*TRAIN, tmp_path / "x", "--strike", "SIGTERM:5", "--forget").end()

    assert code == 0
    assert rows(tmp_path / "x")[:5] == rows(straight)[:5]
    assert rows(tmp_path / "x")[5:] != rows(straight)[5:]


THIRD_TIME = 'echo x >> "$1"; [ "$(wc -l < "$1")" -lt 3 ] || exit 0; exit "$2"'


@pytest.mark.parametrize("code", [*ENDS, 127])
def test_what_would_come_again_is_not_tried_again(supervise, tmp_path: Path, code: int):
    ended, errors = supervise("sh", "-c", THIRD_TIME, "-", tmp_path / "tries", int(code)).end()

    assert (ended, errors) == (code, "")
    assert (tmp_path / "tries").read_text() == "x\n"


@pytest.mark.parametrize("code", AGAIN)
def test_what_a_signal_ended_is_tried_again(supervise, tmp_path: Path, code: int):
    ended, errors = supervise("sh", "-c", THIRD_TIME, "-", tmp_path / "tries", int(code)).end()

    assert (ended, errors) == (0, f"supervise: ended with {int(code)}; again in 0 s\n" * 2)


def test_an_error_in_the_training_is_not_tried_again(supervise, straight: Path, tmp_path: Path):
    code, errors = supervise(*TRAIN, tmp_path / "x", "--strike", "ERROR:5").end()

    assert (code, errors.endswith("ValueError: mine\n"), starts(tmp_path / "x")) == (1, True, 1)
    assert ends(tmp_path / "x") == ["ValueError: mine"]
    assert supervise(*TRAIN, tmp_path / "x").end()[0] == 0
    assert_equal(tmp_path / "x", straight)


@pytest.mark.parametrize(("number", "shell"), [(signal.SIGTERM, "sh"), (signal.SIGINT, "sh"), (signal.SIGTERM, "bash")])
def test_a_supervisor_that_is_stopped_stops_the_training_and_ends(
    supervise, straight: Path, tmp_path: Path, number: signal.Signals, shell: str
):
    supervisor = Started(tmp_path, [shell, f"{RECIPES}/supervise.sh"], *TRAIN, tmp_path / "x").wait_for("5")
    supervisor.process.send_signal(number)
    code, errors = supervisor.end()

    assert (code, "again in" in errors) == (75, False)
    assert (ends(tmp_path / "x"), starts(tmp_path / "x")) == (["SIGTERM"], 1)
    assert supervise(*TRAIN, tmp_path / "x").end()[0] == 0
    assert_equal(tmp_path / "x", straight)


def test_a_signal_to_the_whole_group_is_the_training_s(supervise, straight: Path, tmp_path: Path):
    supervisor = supervise(*TRAIN, tmp_path / "x").wait_for("5")
    os.killpg(supervisor.process.pid, signal.SIGUSR1)
    code, errors = supervisor.end()

    assert (code, "supervise: ended with 75; again in 0 s" in errors) == (0, True)
    assert ends(tmp_path / "x") == ["SIGUSR1", "finished"]
    assert_equal(tmp_path / "x", straight)


def test_the_pause_ends_by_a_signal(supervise):
    supervisor = supervise("sh", "-c", "echo started; exit 75", PAUSE_S="600").wait_for("started")
    assert supervisor.process.stderr is not None
    assert supervisor.process.stderr.readline() == "supervise: ended with 75; again in 600 s\n"
    supervisor.process.send_signal(signal.SIGTERM)

    assert supervisor.end()[0] == 75


# Slurm.


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_job_that_is_told_to_stop_is_requeued_and_goes_on(
    batch, straight: Path, tmp_path: Path, number: signal.Signals
):
    job = batch(*TRAIN, tmp_path / "x").wait_for("5")
    job.process.send_signal(number)  # to the batch shell alone

    assert job.end()[0] == 75
    assert calls(tmp_path) == ["scontrol show job 7", "scontrol requeue 7"]
    assert ends(tmp_path / "x") == [number.name]
    assert batch(*TRAIN, tmp_path / "x").end()[0] == 0
    assert len(calls(tmp_path)) == 2  # a finished job is not requeued
    assert_equal(tmp_path / "x", straight)


def test_a_training_that_is_killed_is_requeued(batch, straight: Path, tmp_path: Path):
    assert batch(*TRAIN, tmp_path / "x", "--strike", "SIGKILL:5").end()[0] == 137
    assert calls(tmp_path) == ["scontrol show job 7", "scontrol requeue 7"]
    assert batch(*TRAIN, tmp_path / "x").end()[0] == 0
    assert_equal(tmp_path / "x", straight)


@pytest.mark.parametrize("code", ENDS)
def test_any_other_code_is_the_job_s(batch, tmp_path: Path, code: int):
    assert batch("sh", "-c", f"exit {int(code)}").end() == (code, "")
    assert not (tmp_path / "calls").read_text().count("scontrol")


def test_a_job_that_was_cancelled_stays_so(batch, tmp_path: Path):
    code, errors = batch("sh", "-c", "exit 75", JOB_STATE="COMPLETING").end()

    assert (code, errors.startswith("not requeued: the job was cancelled")) == (75, True)
    assert calls(tmp_path) == ["scontrol show job 7"]


def test_what_slurm_is_asked_for():
    asked = [line for line in (RECIPES / "slurm.sbatch").read_text().splitlines() if line.startswith("#SBATCH ")]

    assert {"#SBATCH --signal=B:USR1@300", "#SBATCH --requeue", "#SBATCH --open-mode=append"} < set(asked)


# systemd.


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    """The service's file."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(RECIPES / "perdure@.service")
    return parser


def test_the_service_is_started_again_as_the_exit_codes_say(unit: configparser.ConfigParser):
    service = unit["Service"]
    forced = service["RestartForceExitStatus"].split()

    assert [int(word) for word in forced if word.isdecimal()] == [ExitCode.PREEMPTED]
    assert [word for word in forced if not word.isdecimal()] == ["SIGTERM", "SIGINT", "SIGHUP"]
    assert service["Restart"] == "on-abnormal"  # by a signal; never by a code
    assert int(service["SuccessExitStatus"]) == ExitCode.PREEMPTED
    assert service["KillMode"] == "mixed"
    assert float(service["TimeoutStopSec"]) > 10 * PATIENCE_S
    assert service["ExecStart"].endswith("perdure resume %h/runs/%i")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_understands_every_line(tmp_path: Path):
    for name in ("home/.venv/bin", "runtime"):
        (tmp_path / name).mkdir(parents=True)
    program = tmp_path / "home/.venv/bin/perdure"
    program.touch(mode=0o755)
    shutil.copy(RECIPES / "perdure@.service", tmp_path / "perdure@x.service")
    where = {"HOME": f"{tmp_path}/home", "XDG_RUNTIME_DIR": f"{tmp_path}/runtime"}
    command = ["systemd-analyze", "--user", "verify", str(tmp_path / "perdure@x.service")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **where})

    assert (result.returncode, result.stderr) == (0, "")
