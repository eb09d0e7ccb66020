"""The scripts of `examples/` resume exactly, wherever they were stopped; each part that is lost is seen."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

import perdure
from perdure.errors import ContractError, ForgottenValueError

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("global_generators")]

TOTAL = {"ppo": 1152, "dqn": 960, "sac": 960}
EVERY = 96
BOUNDARY = {"ppo": 6, "dqn": 6 * EVERY, "sac": 6 * EVERY}
"""The last one of the twins."""
LEARNED = {"ppo": "agent", "dqn": "net", "sac": "actor"}
COMPONENTS = {
    "ppo": ("agent", "optimizer", "schedule", "envs", "observation", "returns"),
    "dqn": ("env", "net", "target", "optimizer", "replay", "rng", "observation"),
    "sac": (
        *("actor", "critics", "targets", "log_alpha", "actor_optimizer", "critic_optimizer", "alpha_optimizer"),
        *("env", "replay", "rng", "observation"),
    ),
}
PARTS = {
    "ppo": ("process_rng",),
    "dqn": (
        *(f"replay.{part}" for part in ("ring", "tree", "added", "max_priority", "queue")),
        *(f"replay.ring.{column}" for column in ("observations", "actions", "rewards", "discounts")),
    ),
    "sac": ("process_rng", *(f"replay.ring{part}" for part in ("", ".observations", ".actions", ".rewards"))),
}
"""Beside the components: what they hold, and PyTorch's global generator. Pendulum never ends, so `goes_on` is all 1."""


@pytest.fixture(scope="module")
def scripts() -> ModuleType:
    from tests.conftest import load_beside

    return load_beside("examples/scripts")


@pytest.fixture(scope="module")
def straight(scripts: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each script that was never stopped."""
    made: dict[str, Path] = {}

    class OnDemand(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            self[name] = tmp_path_factory.mktemp(name) / "run"
            scripts.train(name, self[name], total_steps=TOTAL[name])
            return self[name]

    return OnDemand(made)


def stopped(run: Path, steps: int, directory: Path) -> Path:
    """A copy of the run as a kill some time after the checkpoint at `steps` leaves it: with rows after it."""
    shutil.copytree(run, directory)
    for checkpoint in (directory / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step_")) > steps:
            shutil.rmtree(checkpoint)
    return directory


AT = [
    pytest.param(name, steps, marks=pytest.mark.slow if name == "sac" and steps < 4 * EVERY else [])
    for name in TOTAL
    for steps in (0, EVERY, 3 * EVERY, 4 * EVERY)
]


@pytest.mark.parametrize(("name", "at"), AT)
def test_a_script_stopped_anywhere_and_started_again_equals_the_run_never_stopped(
    name: str, at: int, scripts: ModuleType, straight: dict[str, Path], comparing: ModuleType, tmp_path: Path
):
    """At least 570 steps after the resume, every leaf of every later checkpoint and every row of metrics."""
    run = stopped(straight[name], at, tmp_path / "run")

    scripts.train(name, run, total_steps=TOTAL[name])

    assert comparing.differences(straight[name], run) == []
    assert len(comparing.checkpoints(run)) == TOTAL[name] // EVERY + 1


def _held(last: dict[str, Any]) -> int:
    return len(last["replay"]["state"]["ring"]["rows"]["columns"]["actions"])


@pytest.mark.parametrize("name", TOTAL)
def test_the_runs_exercise_what_they_claim(name: str, scripts: ModuleType, straight: dict[str, Path]):
    """Episodes end after the stops; the ring has begun anew; a queue is half full; the target network lags behind."""
    rows = [json.loads(line) for line in (straight[name] / "metrics.jsonl").read_text().splitlines()]
    last = perdure.read(straight[name] / "checkpoints" / f"step_{TOTAL[name]:010d}")

    assert sum(row["env_steps"] > 4 * EVERY and row["return"] is not None for row in rows) >= 2
    if name == "dqn":
        assert last["replay"]["state"]["added"] > 2 * _held(last)
        assert len(last["replay"]["state"]["queue"]["items"]) == 2
        assert last["replay"]["state"]["max_priority"] != 1.0
        assert (last["net"]["0.weight"] != last["target"]["0.weight"]).any()
    if name == "sac":
        assert last["replay"]["state"]["ring"]["rows"]["stop"] > 2 * _held(last)
        assert last["log_alpha"] != 0
    if name == "ppo":
        assert last["optimizer"]["groups"][0]["lr"] < 2.5e-3 / 10


@pytest.mark.parametrize(("name", "part"), [(name, part) for name in TOTAL for part in COMPONENTS[name] + PARTS[name]])
def test_twin_each_part_that_a_resume_forgets_is_seen(
    name: str, part: str, scripts: ModuleType, straight: dict[str, Path], comparing: ModuleType, tmp_path: Path
):
    """Left as a fresh start has it, it changes what is learned or what is reported."""
    run = stopped(straight[name], 4 * EVERY, tmp_path / "run")

    forgetful = scripts.forgetful(part, tmp_path, until=6 * EVERY)
    with pytest.raises(scripts.Stopped):
        scripts.train(name, run, total_steps=TOTAL[name], run=forgetful)

    found = comparing.differences(straight[name], run)
    learned = f"boundary {BOUNDARY[name]}: {LEARNED[name]}/"
    assert any(line.startswith((learned, "metrics.jsonl: row")) for line in found), found[:9]


def test_twin_what_forgets_nothing_sees_nothing(
    scripts: ModuleType, straight: dict[str, Path], comparing: ModuleType, tmp_path: Path
):
    """The way in which the twins above forget changes nothing by itself."""
    run = stopped(straight["dqn"], 4 * EVERY, tmp_path / "run")
    with pytest.raises(scripts.Stopped):
        scripts.train("dqn", run, total_steps=TOTAL["dqn"], run=scripts.forgetful("none", tmp_path, until=6 * EVERY))

    found = comparing.differences(straight["dqn"], run)
    assert [line for line in found if not line.endswith("rows")] == []


@pytest.mark.parametrize(("name", "component"), [(name, part) for name in TOTAL for part in COMPONENTS[name]])
def test_twin_a_script_that_no_longer_hands_in_a_component_is_refused(
    name: str, component: str, scripts: ModuleType, straight: dict[str, Path], tmp_path: Path
):
    run = stopped(straight[name], 2 * EVERY, tmp_path / "run")
    before = sorted(run.rglob("*"))

    with pytest.raises(ContractError, match=rf"(?m)^  {component}[:/]"):
        scripts.train(name, run, total_steps=TOTAL[name], run=scripts.without(component))
    assert [path for path in sorted(run.rglob("*")) if path.name != ".writer.lock"] == [
        path for path in before if path.name != ".writer.lock"
    ]


@pytest.mark.parametrize("name", TOTAL)
def test_a_value_that_is_handed_in_once_only_is_refused_at_the_first_boundary(
    name: str, scripts: ModuleType, tmp_path: Path
):
    """`observation` at `restore`, and never again: nothing stale is ever saved."""

    class Forgets(perdure.Run):
        def boundary(self, **given: Any) -> None:
            given.pop("observation")
            super().boundary(**given)

    with pytest.raises(ForgottenValueError, match=r"^boundary: \['observation'\] were given to restore"):
        scripts.train(name, tmp_path / "run", total_steps=TOTAL[name], run=Forgets)


@pytest.mark.parametrize("name", TOTAL)
def test_without_the_marked_lines_it_is_a_complete_script_that_learns_the_same(
    name: str, scripts: ModuleType, straight: dict[str, Path], capsys: pytest.CaptureFixture[str]
):
    source = scripts.without_perdure(name)
    assert "import perdure" not in source
    assert "run." not in source
    module: dict[str, Any] = {"__name__": f"{name} without perdure"}
    exec(compile(source, name, "exec"), module)
    parse = module["parse"]
    module["parse"] = lambda argv: scripts.Namespace(**{**vars(parse(argv)), **scripts.SMALL[name]})

    net = module["main"](["--total-steps", str(TOTAL[name])])

    saved = perdure.read(straight[name] / "checkpoints" / f"step_{TOTAL[name]:010d}")[LEARNED[name]]
    for key, tensor in net.state_dict().items():
        assert tensor.numpy().tobytes() == saved[key].tobytes(), key
    assert "step " in capsys.readouterr().out


UNSEEDED = re.compile(r": (process_rng/(python|numpy)|envs?/.*_space/_np_random)/")
"""Generators that the scripts neither seed nor draw from, so that two starts differ in them, not two ends of one."""


def start(*words: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, words)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def newest(run: Path) -> int:
    return max((int(path.name.removeprefix("step_")) for path in run.glob("checkpoints/step_*")), default=-1)


def kill_after(process: subprocess.Popen[bytes], run: Path, steps: int, delay_s: float) -> None:
    """Kills the process some time after it has committed a checkpoint at `steps` or later."""
    with process:
        while newest(run) < steps and process.poll() is None:
            time.sleep(0.001)
        time.sleep(delay_s)
        process.kill()
        error = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, error.decode()


PROCESSES = {"ppo": (24 * 512, 512), "dqn": (2400, 100), "sac": (1500, 100)}
"""Total steps, and steps between checkpoints, of runs with the scripts' own sizes."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "dqn" else pytest.mark.slow) for name in PROCESSES]
)
def test_a_process_killed_at_any_instant_and_resumed_in_new_ones_equals_the_run_never_stopped(
    name: str, scripts: ModuleType, comparing: ModuleType, tmp_path: Path
):
    """Two SIGKILLs; then once the same command again, and in the end `perdure resume`."""
    total, every = PROCESSES[name]
    scripts.train(name, tmp_path / "straight", total_steps=total, checkpoint_every=every, small=False)
    run, draws = tmp_path / "run", random.Random(f"{name} 6")
    words = ("--run", run, "--total-steps", total, "--checkpoint-every", every)

    kill_after(start(scripts.path_of(name), *words), run, 2 * every, draws.uniform(0, 0.1))
    first = newest(run)
    kill_after(start(scripts.path_of(name), *words), run, first + every, draws.uniform(0, 0.1))
    second = newest(run)
    with start("-m", "perdure", "resume", run) as process:
        error = process.communicate()[1]
    assert process.returncode == 0, error.decode()

    assert 0 < first < second <= total - 500
    assert newest(run) == newest(tmp_path / "straight") >= total
    found = comparing.differences(tmp_path / "straight", run)
    assert [line for line in found if not UNSEEDED.search(line)] == []
