"""Trainings of the tool that a signal, a time limit or an error stops: the exit code tells, and nothing is lost."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from perdure import Preempted, UsageError
from perdure.cli.progress import ERASE_LINE, Progress
from perdure.cli.training import watch
from perdure.runs import boundaries
from perdure.runs.directory import RunDirectory, open_directory
from perdure.runs.lineage import read_lineage

pytestmark = [pytest.mark.usefixtures("global_generators")]

SCRIPT = Path(__file__).parents[1] / "examples" / "preempted_script.py"
SMALL = ("--n-envs", 2, "--n-steps", 8, "--n-minibatches", 2, "--hidden-sizes", 4, "--keep-last", 0)
TRAIN = ("train", "torch-ppo", "--env", "CartPole-v1", *SMALL)


def events(run: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in read_lineage(run / "lineage.jsonl") if event["event"] == name]


def rows(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [json.loads(line) for line in whole.splitlines()]


def checkpoints(run: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in (run / "checkpoints").glob("step_*"))


def told_to_stop(run: Path, is_time: Callable[[], bool], *words: object) -> tuple[int, str]:
    """`perdure …` in a process of its own, told to stop when it is time: its exit code and what it said on stderr."""
    command = [sys.executable, "-m", "perdure", *map(str, words), "--run", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not is_time():
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def assert_stopped(run: Path, code: int, errors: str, at: int) -> None:
    """It left with 75 and said how to go on; its last checkpoint is the one at `at` steps."""
    name = f"step_{at:010d}"
    last = f"perdure: {run}: stopped by SIGTERM, {name} is durable; go on with: perdure resume {run}"
    assert (code, errors.splitlines()[-1]) == (75, last), errors
    assert [(event["signal"], event["checkpoint"]) for event in events(run, "signalled")] == [("SIGTERM", name)]
    assert checkpoints(run)[-1] == at


# Signals.


@pytest.mark.full
def test_a_pytorch_training_that_is_told_to_stop_goes_on_exactly(perdure_cli, tmp_path: Path):
    pytest.importorskip("torch")
    run, words = tmp_path / "run", (*TRAIN, "--total-timesteps", 3200, "--checkpoint-every", 160)
    code, errors = told_to_stop(run, lambda: len(rows(run)) > 20, *words)
    stopped_at = len(rows(run)) * 16

    assert_stopped(run, code, errors, stopped_at)
    assert stopped_at < 3200
    log = perdure_cli("log", run).out.splitlines()
    assert f"told to stop by SIGTERM: step_{stopped_at:010d} was durable 0.0" in log[-3]
    assert log[-2].endswith(" of training: SIGTERM")
    assert perdure_cli("resume", run).code == 0
    assert perdure_cli(*words, "--run", tmp_path / "straight").code == 0
    assert perdure_cli("diff", run, tmp_path / "straight").code == 0
    assert rows(run) == rows(tmp_path / "straight")


@pytest.mark.full
@pytest.mark.jax
@pytest.mark.xdist_group("cli-ppo")
@pytest.mark.parametrize(("during", "boundary"), [("its first compilation", 0), ("its first evaluation", 2)])
def test_a_jax_training_that_is_told_to_stop_while_it_compiles_goes_on_exactly(
    perdure_cli, options, trained_once: Path, tmp_path: Path, during: str, boundary: int
):
    """Nothing is cached: the update, and the evaluation before the third boundary, take a second to compile."""
    run, begun = tmp_path / "run", float("inf")

    def is_time() -> bool:
        nonlocal begun
        if begun == float("inf") and 16 * boundary in checkpoints(run):
            begun = time.monotonic()
        return time.monotonic() - begun > 0.1

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")
        code, errors = told_to_stop(run, is_time, "train", "ppo", *options())

    came_to = len(rows(run))
    assert came_to == boundary or (boundary and came_to < 6)  # an evaluation may end while this process waits
    assert_stopped(run, code, errors, 16 * came_to)
    assert perdure_cli("resume", run).code == 0
    assert perdure_cli("diff", run, trained_once).code == 0
    assert rows(run) == rows(trained_once)


# Time limits.


@pytest.mark.full
def test_a_time_limit_of_a_trainer(perdure_cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It counts from the start of the process, which is older than that: the run is stopped as it opens."""
    pytest.importorskip("torch")
    monkeypatch.delenv("PERDURE_STOP_AFTER", raising=False)
    run, words = tmp_path / "run", (*TRAIN, "--total-timesteps", 96)
    first = perdure_cli(*words, "--run", run, "--stop-after", "0.1")
    second = perdure_cli("resume", run, "--stop-after", "0.1")

    for result in (first, second):
        assert result.code == 75
        assert f"{run}: stopped by its time limit, step_0000000000 is durable" in result.err
    assert [event["why"] for event in events(run, "stopped")] == ["its time limit"] * 2
    assert "told to stop by its time limit: step_0000000000 was durable" in perdure_cli("log", run).out
    assert "PERDURE_STOP_AFTER" not in os.environ
    assert (perdure_cli("resume", run, "--stop-after", "30d").code, len(rows(run))) == (0, 6)


@pytest.mark.full
def test_a_time_limit_of_a_script(tmp_path: Path):
    for name, words in (("straight", []), ("x", ["--strike", "SIGTERM:5"])):
        subprocess.run([sys.executable, SCRIPT, tmp_path / name, *words], check=False, capture_output=True)
    resume = [sys.executable, "-m", "perdure", "resume", str(tmp_path / "x")]
    limited = subprocess.run([*resume, "--stop-after", "0.2"], capture_output=True, text=True, check=False)
    finished = subprocess.run(resume, capture_output=True, text=True, check=False)

    assert (limited.returncode, "stopped by its time limit" in limited.stderr) == (75, True)
    assert finished.returncode == 0, finished.stderr
    assert [event["why"] for event in events(tmp_path / "x", "stopped")] == ["SIGTERM", "its time limit"]
    assert rows(tmp_path / "x") == rows(tmp_path / "straight")


def test_a_script_is_told_the_time_limit_and_to_retry(perdure_cli, run_path: Path, monkeypatch: pytest.MonkeyPatch):
    told: list[dict[str, str]] = []

    def note(_program: str, _argv: list[str], environment: dict[str, str]) -> None:
        told.append({name: environment[name] for name in environment if name.startswith("PERDURE_")})
        raise SystemExit(0)

    monkeypatch.chdir(run_path)
    monkeypatch.setattr(os, "execvpe", note)
    perdure_cli("resume", run_path, "--stop-after", "3h55m", "--retry")
    perdure_cli("resume", run_path)

    here = {"PERDURE_MODE": "resume", "PERDURE_RUN_DIR": str(run_path)}
    assert told == [{**here, "PERDURE_STOP_AFTER": "3h55m", "PERDURE_RETRY": "1"}, here]


def test_a_script_that_is_told_no_span_of_time_refuses(run_path: Path, toy, monkeypatch: pytest.MonkeyPatch, state_of):
    before = state_of(run_path)
    monkeypatch.setenv("PERDURE_STOP_AFTER", "soon")
    with pytest.raises(UsageError, match=r"^PERDURE_STOP_AFTER='soon': a span of time such as '3h55m'"):
        toy.train(run_path)

    assert state_of(run_path) == before


@pytest.mark.parametrize("span", ["soon", "0", "5m3h", ""])
def test_a_limit_that_is_no_span_of_time_is_refused_before_anything_is_touched(
    perdure_cli, run_path: Path, state_of, span: str
):
    before = state_of(run_path)
    result = perdure_cli("resume", run_path, "--stop-after", span)

    assert result.code == 2
    assert result.err == (
        f"perdure: --stop-after={span!r}: a span of time such as '3h55m', '90s' or '1d2h', or a number of seconds.\n"
    )
    assert state_of(run_path) == before


@pytest.mark.full
@pytest.mark.parametrize("trainer", ["torch-ppo", pytest.param("ppo", marks=pytest.mark.jax)])
def test_a_trainer_refuses_it_too(perdure_cli, options, tmp_path: Path, trainer: str):
    words = TRAIN if trainer == "torch-ppo" else ("train", "ppo", *options())
    result = perdure_cli(*words, "--run", tmp_path / "run", "--stop-after", "soon")

    assert (result.code, "--stop-after='soon': a span of time such as '3h55m'" in result.err) == (2, True)
    assert not (tmp_path / "run").exists()


# Errors.


@pytest.fixture
def striking(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says when the environments fail; every boundary is held, as if that cost nothing."""
    pytest.importorskip("torch")
    pytest.importorskip("gymnasium")
    monkeypatch.setattr(boundaries.Budget, "allows", lambda budget, _now: not budget.is_spent)
    return lambda when: monkeypatch.setenv("PERDURE_TESTS_STRIKE", when)


FAILING = ("train", "torch-ppo", "--env", "tests.cli.striking_env:Striking-v0", *SMALL, "--total-timesteps", 96)


@pytest.mark.full
@pytest.mark.parametrize(
    ("vectors", "what", "code", "message"),
    [
        ("async", "die", 7, "perdure: environment 0: its worker process died (signal 9 killed it)."),
        ("async", "raise", 70, "ValueError: step 20 of a simulator that fails"),
        ("sync", "raise", 70, "ValueError: step 20 of a simulator that fails"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*ERROR:UserWarning")  # Gymnasium's logger
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning")
def test_a_failing_environment_loses_nothing(
    perdure_cli, tmp_path: Path, striking, vectors: str, what: str, code: int, message: str
):
    run, words = tmp_path / "run", (*FAILING, "--vectorization", vectors)
    striking(f"{what}:20")  # in the third update
    failed = perdure_cli(*words, "--run", run)

    assert (failed.code, message in failed.err) == (code, True), failed.err
    assert checkpoints(run) == [0, 32]
    end = events(run, "stopped")[-1]
    assert end["why"].partition(":")[0] == ("WorkerDiedError" if what == "die" else "ValueError")
    assert "Traceback" in end["traceback"]
    striking("never")
    assert perdure_cli("resume", run).code == 0
    assert perdure_cli(*words, "--run", tmp_path / "straight").code == 0
    assert perdure_cli("diff", run, tmp_path / "straight").code == 0
    assert rows(run) == rows(tmp_path / "straight")


@pytest.mark.full
def test_a_crash_loop_is_told_and_tried_again_on_request(perdure_cli, tmp_path: Path, striking):
    run = tmp_path / "run"
    striking("raise:3")
    assert [perdure_cli(*FAILING, "--run", run).code for _ in range(4)] == [70] * 4
    refused, again = perdure_cli("resume", run), perdure_cli(*FAILING, "--run", run)
    retried = perdure_cli("resume", run, "--retry")

    assert (refused.code, again.code, retried.code) == (6, 6, 70)
    assert refused.err == again.err.partition("\n")[2]
    head, _, trace = refused.err.partition("The last error:\n\n")
    assert head.startswith(f"perdure: {run}: the last 3 resumes of step_0000000000 each ended in an error before")
    assert "resume once with --retry" in head
    assert trace.startswith("Traceback (most recent call last):\n")
    assert trace.endswith("ValueError: step 3 of a simulator that fails\n")
    striking("never")
    assert perdure_cli("resume", run).code == 6
    assert perdure_cli("resume", run, "--retry").code == 0
    assert "PERDURE_RETRY" not in os.environ


# The progress line.


@pytest.mark.parametrize(
    "error", [Preempted("SIGTERM", "x", "step_0000000010"), ValueError("mine"), KeyboardInterrupt()], ids=repr
)
def test_the_line_is_cleared_before_anything_is_said(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    directory: RunDirectory = open_directory(run_path)

    def launch(progress: Progress) -> NoReturn:
        progress({}, 10)
        logging.getLogger("perdure").warning("told")
        raise error

    with pytest.raises(type(error)):
        watch(directory, 60, launch)

    line, told, rest = capsys.readouterr().err.removeprefix(ERASE_LINE).split(ERASE_LINE)
    assert line.startswith("10 of 60 steps (16 %), ")
    assert (told, rest) == ("perdure: told\n", "")


def test_a_stop_in_the_log(perdure_cli, toy: ModuleType, run_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERDURE_STOP_AFTER", "0.1")  # the process is older
    with pytest.raises(Preempted):
        toy.train(run_path)

    told = [line[21:] for line in perdure_cli("log", run_path).out.splitlines()[-3:-1]]
    assert told[0].startswith("told to stop by its time limit: step_0000000030 was durable 0.")
    assert told[1].startswith("stopped after ")
    assert told[1].endswith(" of training: its time limit")
