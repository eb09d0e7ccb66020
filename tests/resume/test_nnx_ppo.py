"""Save at k, load, go on: the same as never stopped, for PPO with JAX and Flax NNX on CartPole."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.resume.comparing import stopped_at

import perdure
from perdure import ContractError, UsageError
from perdure.tree.leaves import Array, PRNGKey, leaves

pytest.importorskip("gymnax")

pytestmark = [pytest.mark.jax, pytest.mark.xdist_group("nnx_ppo")]

SCRIPT = Path(__file__).with_name("nnx_ppo.py")
ROOT = SCRIPT.parent.parent.parent
UPDATES = 8
MANY_UPDATES = 40
KILLS = 3
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    **os.environ,
}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, nnx_ppo: ModuleType) -> Path:
    """The run that was never stopped, saved at every boundary; tests work on copies."""
    directory = tmp_path_factory.mktemp("straight") / "run"
    nnx_ppo.train(directory)
    return directory


@pytest.mark.parametrize("k", range(1, UPDATES))
def test_a_run_resumed_from_k_equals_the_run_never_stopped(
    k: int, straight: Path, tmp_path: Path, comparing: ModuleType, nnx_ppo: ModuleType
) -> None:
    """Every leaf and digest of every later boundary, and every metric row; the objects were built from other seeds."""
    run = stopped_at(straight, k, tmp_path / "run")
    assert sorted(comparing.checkpoints(run)) == list(range(k + 1))

    result = nnx_ppo.train(run, networks_seed=100 + k)

    assert comparing.differences(straight, run) == []
    assert comparing.state_digests(run) == comparing.state_digests(straight)
    assert (run / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
    assert (result.total_steps, result.total_iterations) == (UPDATES * nnx_ppo.STEPS_PER_UPDATE, UPDATES)


def test_a_fresh_run_from_another_seed_is_another_run(
    straight: Path, tmp_path: Path, comparing: ModuleType, nnx_ppo: ModuleType
) -> None:
    """The seeds that a resume must not notice do matter: what the test above restores was different before."""
    nnx_ppo.train(tmp_path / "run", networks_seed=101)

    found = comparing.differences(straight, tmp_path / "run")

    for path in ("networks/layers/1/action/layers/0/kernel", "networks/layers/1/action/layers/2/stream/key"):
        assert comparing.starting_with(found, path), path


def test_three_stops_in_one_run_leave_no_trace(
    straight: Path, tmp_path: Path, comparing: ModuleType, nnx_ppo: ModuleType
) -> None:
    """Stopping again and again is as good as stopping once: each life is cut back to a later boundary."""
    run = straight
    for k in (1, 4, 6):
        run = stopped_at(run, k, tmp_path / f"stopped at {k}")
        nnx_ppo.train(run, networks_seed=200 + k)

    assert comparing.differences(straight, run) == []
    assert comparing.state_digests(run) == comparing.state_digests(straight)


def test_the_training_reaches_what_its_twins_lose(straight: Path, comparing: ModuleType, nnx_ppo: ModuleType) -> None:
    """Boundaries fall into episodes, statistics and streams move, and no number is lost to overflow."""
    for boundary, opened in comparing.checkpoints(straight).items():
        at = opened.snapshot.at
        assert sum(at(("networks", "layers", 0, "counter")).value) == boundary * nnx_ppo.STEPS_PER_UPDATE
        assert at(("optimizer", "step")).value == 4 * boundary
        assert at(("steps_taken",)) == opened.manifest.env_steps == boundary * nnx_ppo.STEPS_PER_UPDATE
        if boundary > 0:
            elapsed = at(("env_states", "data", "state", "time")).value
            assert elapsed.any(), "no environment is in mid-episode"
            assert (elapsed < nnx_ppo.EPISODE_LIMIT).all()
        kinds = {type(leaf) for part in opened.snapshot.components.values() for _, leaf in leaves(part.tree)}
        assert {Array, PRNGKey, int, float, str} <= kinds


RESETS = {
    "parameters": "networks/layers/1/action/layers/0/kernel",
    "normalizer": "networks/layers/0/mean",
    "normalizer-count": "networks/layers/0/counter",
    "action-key": "networks/layers/1/action/layers/2/stream/key",
    "action-count": "networks/layers/1/action/layers/2/stream/count",
    "optimizer": "optimizer/opt_state",
    "first-moment": "optimizer/opt_state/1/0/mu",
    "second-moment": "optimizer/opt_state/1/0/nu",
    "bias-correction": "optimizer/opt_state/1/0/count",
    "optimizer-step": "optimizer/step",
    "environments": "env_states/data/state/x",
    "environment-time": "env_states/data/state/time",
    "environment-keys": "env_states/data/key",
    "environment-observation": "networks/layers/0/mean",
    "rng-key": "rng_key",
}
"""What goes wrong after the restore -> the path at which the comparison must see it."""

WITHOUT_CONSEQUENCE = {"optimizer-step", "environment-keys"}
"""Flax counts updates for its users only, and CartPole draws nothing in mid-episode: found where they stand."""


def test_every_reset_of_the_script_is_tried(nnx_ppo: ModuleType) -> None:
    """No twin is forgotten."""
    assert RESETS.keys() | {"steps-taken"} == nnx_ppo.RESETS.keys()


@pytest.mark.parametrize("what", RESETS)
def test_twin_a_part_that_is_reset_after_the_restore_is_found(
    what: str, straight: Path, tmp_path: Path, comparing: ModuleType, nnx_ppo: ModuleType
) -> None:
    """Each component, and each hidden part of one, matters: the comparison names it, and what it led to."""
    run = stopped_at(straight, 3, tmp_path / "run")
    nnx_ppo.train(run, networks_seed=103, reset=what)

    found = comparing.differences(straight, run)

    assert comparing.starting_with(found, RESETS[what]), f"not found at {RESETS[what]}: {found[:10]}"
    learned = [line for line in found if line.startswith("boundary 8: networks/layers/1/action/layers/0/kernel")]
    assert bool(learned) == (what not in WITHOUT_CONSEQUENCE), found[:10]
    assert not [line for line in found if line.startswith(("boundary 0", "boundary 1", "boundary 2", "boundary 3"))]


def test_twin_a_step_counter_that_starts_again_is_refused_at_the_next_boundary(
    straight: Path, tmp_path: Path, nnx_ppo: ModuleType
) -> None:
    """The run counts on its own: a training that lost its counter cannot write over what is there."""
    run = stopped_at(straight, 3, tmp_path / "run")

    with pytest.raises(UsageError, match=r"boundary 4: env_steps=40, updates=4 after env_steps=120, updates=3\. "):
        nnx_ppo.train(run, reset="steps-taken")

    assert len(list((run / "checkpoints").iterdir())) == 4


def test_saving_has_no_side_effect(straight: Path, tmp_path: Path, comparing: ModuleType, nnx_ppo: ModuleType) -> None:
    """A run that saves at its ends only is the run that saves at every boundary."""
    nnx_ppo.train(tmp_path / "run", every_updates=None)

    saved = comparing.state_digests(tmp_path / "run")
    assert sorted(saved) == [0, UPDATES]
    assert saved == {boundary: comparing.state_digests(straight)[boundary] for boundary in saved}
    assert comparing.differences(straight, tmp_path / "run") == []


def test_training_without_a_run_is_the_same_training(
    straight: Path, tmp_path: Path, comparing: ModuleType, nnx_ppo: ModuleType
) -> None:
    """The run observes: the state that a training without one ends in is the last checkpoint's."""
    env, networks = nnx_ppo.build("CartPole-v1", 0)
    state = nnx_ppo.train_ppo(env, networks, nnx_ppo.config(UPDATES)).training_state
    beside = {"contract", "eval_history"}  # which a run keeps elsewhere
    perdure.save(tmp_path / "final", **{name: part for name, part in vars(state).items() if name not in beside})

    expected = perdure.read(straight / "checkpoints" / "step_0000000320")
    del expected["process_rng"]
    assert dict(comparing.flat(perdure.read(tmp_path / "final"))) == dict(comparing.flat(expected))


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory, nnx_ppo: ModuleType) -> Path:
    """The same run with an evaluation after every update."""
    directory = tmp_path_factory.mktemp("evaluated") / "run"
    nnx_ppo.train(directory, evaluates=True)
    return directory


def without_evaluation(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("eval/")}


def test_evaluating_after_every_update_does_not_touch_the_training(
    straight: Path, evaluated: Path, comparing: ModuleType
) -> None:
    """Each state digest is that of the run without evaluation, and so is every metric but the evaluation's own."""
    with_eval, without = perdure.Run(evaluated).metrics_rows(), perdure.Run(straight).metrics_rows()

    assert comparing.state_digests(evaluated) == comparing.state_digests(straight)
    assert [without_evaluation(row) for row in with_eval] == without
    assert all(row["eval/lifespan_mean"] > 0 for row in with_eval)


def test_a_resumed_run_with_evaluation_equals_the_run_never_stopped(
    evaluated: Path, tmp_path: Path, comparing: ModuleType, nnx_ppo: ModuleType
) -> None:
    """Evaluations after the resume are those of the uninterrupted run, and the history holds those before it."""
    run = stopped_at(evaluated, 5, tmp_path / "run")

    result = nnx_ppo.train(run, networks_seed=105, evaluates=True)

    assert comparing.differences(evaluated, run) == []
    assert (run / "metrics.jsonl").read_bytes() == (evaluated / "metrics.jsonl").read_bytes()
    assert [entry["step"] for entry in result.eval_history] == [40 * update for update in range(1, UPDATES + 1)]


def test_turning_evaluation_on_at_a_resume_is_refused(
    straight: Path, tmp_path: Path, comparing: ModuleType, nnx_ppo: ModuleType
) -> None:
    """Until there are explicit acceptances, the configuration is the run's, all of it."""
    run = stopped_at(straight, 3, tmp_path / "run")

    with pytest.raises(ContractError, match=r"algorithm\.eval\.enabled: False in the run, True here"):
        nnx_ppo.train(run, evaluates=True)

    assert sorted(comparing.checkpoints(run)) == [0, 1, 2, 3]


@pytest.mark.full
def test_pendulum_trains_and_resumes_exactly(tmp_path: Path, comparing: ModuleType, nnx_ppo: ModuleType) -> None:
    """The tanh-normal sampler: continuous actions, an environment that draws, truncations only."""
    straight = tmp_path / "straight"
    nnx_ppo.train(straight, env_id="Pendulum-v1", updates=5)
    run = stopped_at(straight, 2, tmp_path / "run")

    nnx_ppo.train(run, env_id="Pendulum-v1", updates=5, networks_seed=102)

    assert comparing.differences(straight, run) == []
    assert comparing.state_digests(run) == comparing.state_digests(straight)
    assert comparing.starting_with(_learned(straight, comparing), "networks/layers/1/action/layers/0/kernel")


def _learned(run: Path, comparing: ModuleType) -> list[str]:
    """What changed between the first boundary and the last, as lines of `differences`."""
    opened = comparing.checkpoints(run)
    first, last = opened[0].snapshot, opened[max(opened)].snapshot
    return [f"boundary {max(opened)}: {line}" for line in comparing.diff_snapshots(first, last)]


def command(directory: Path, *flags: str) -> list[str]:
    return [sys.executable, str(SCRIPT), str(directory), *flags]


@pytest.mark.full
def test_a_second_process_that_resumes_from_4_equals_the_run_never_stopped(
    straight: Path, tmp_path: Path, comparing: ModuleType
) -> None:
    """Two processes, the first of which killed itself right after boundary 4, make the run of this one."""
    run = tmp_path / "run"
    killed = subprocess.run(command(run, "--kill-at-boundary", "4"), env=ENVIRONMENT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(comparing.checkpoints(run)) == [0, 1, 2, 3, 4]

    subprocess.run(command(run, "--networks-seed", "104"), env=ENVIRONMENT, check=True)

    assert comparing.differences(straight, run) == []
    assert comparing.state_digests(run) == comparing.state_digests(straight)
    assert (run / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()


def live_through(directory: Path, draw: random.Random, kills: int) -> int:
    """Starts the run again and again, kills it so often at random instants, and lets it end; returns the kills."""
    killed = 0
    while True:
        many = command(directory, "--updates", str(MANY_UPDATES))
        with subprocess.Popen(many, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            if killed < kills:
                for _ in range(draw.randint(1, 10)):
                    process.stdout.readline()
                time.sleep(draw.uniform(0.0, 0.03))
                process.send_signal(signal.SIGKILL)
            process.communicate()
        if process.returncode == 0:
            return killed
        assert process.returncode == -signal.SIGKILL
        killed += 1


@pytest.mark.full
def test_killed_at_random_instants_a_run_ends_exactly(
    tmp_path: Path, comparing: ModuleType, nnx_ppo: ModuleType
) -> None:
    """Three SIGKILLs: the same checkpoints and the same metrics file as never killed, and nothing left over."""
    straight, seed, kills = tmp_path / "straight", 3_000, 0
    nnx_ppo.train(straight, updates=MANY_UPDATES)
    print(f"seed {seed}")
    draw = random.Random(seed)
    while kills < KILLS:  # another run, should one have ended before its kill came
        run = tmp_path / f"run after {kills} kills"
        kills += live_through(run, draw, KILLS - kills)

        assert not list((run / "checkpoints").glob(".*"))
        assert comparing.differences(straight, run) == []
        assert comparing.state_digests(run) == comparing.state_digests(straight)
        assert (run / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
