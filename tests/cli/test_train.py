"""`perdure train ppo` and `perdure resume` of its runs, with JAX, on networks as small as they come."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("gymnax")

pytestmark = [
    pytest.mark.jax,
    pytest.mark.xdist_group("cli-ppo"),
    pytest.mark.usefixtures("process_generators"),
]


@pytest.mark.full
def test_train_to_the_horizon_and_once_more(perdure_cli, options, tmp_path: Path):
    words = ["train", "ppo", "--run", tmp_path / "run", *options()]
    first, again = perdure_cli(*words), perdure_cli(*words)

    assert (first.code, again.code) == (0, 0)
    assert f"{tmp_path}/run: finished at 96 steps, return " in first.out
    head, *progress = first.err.splitlines()
    assert head == f"perdure: CartPole-v1, 96 steps, in {tmp_path}/run"
    assert all(" of 96 steps (" in line for line in progress)  # one every ten seconds, on a machine that slow
    assert again.out == f"{tmp_path}/run: finished already, at 96 steps (step_0000000096).\n"


@pytest.mark.full
def test_a_resume_is_identical_to_a_straight_run(perdure_cli, options, stopped: Path, tmp_path: Path):
    resumed = perdure_cli("resume", stopped, "--keep-last", 0)
    straight = perdure_cli("train", "ppo", "--run", tmp_path / "straight", *options())

    assert (resumed.code, straight.code) == (0, 0)
    assert f"perdure: {stopped}: metrics.jsonl: " in resumed.err  # rows after the checkpoint were cut
    assert f"{stopped}: finished at 96 steps, return " in resumed.out
    assert perdure_cli("diff", stopped, tmp_path / "straight").code == 0
    assert perdure_cli("resume", stopped).out.startswith(f"{stopped}: finished already, at 96 of 96 steps")


@pytest.mark.full
def test_train_on_an_existing_run_resumes_it_and_steps_back_over_damage(
    perdure_cli, options, stopped: Path, flip: Callable
):
    flip(stopped / "checkpoints" / "step_0000000064" / "networks.safetensors")
    result = perdure_cli("train", "ppo", "--run", stopped, *options())

    assert result.code == 0
    assert f"perdure: {stopped}: stepped back over a damaged checkpoint: step_0000000064/networks" in result.err
    assert "finished at 96 steps" in result.out


@pytest.mark.full
def test_other_options_are_refused_all_at_once(perdure_cli, options, stopped: Path):
    before = {path: path.read_bytes() for path in stopped.rglob("*.json*")}
    result = perdure_cli("train", "ppo", "--run", stopped, *options(seed=4, gae_lambda=0.5, total_steps=16))

    assert (result.code, result.out) == (3, "")
    assert "3 differences; nothing was changed." in result.err
    assert "seed.seed: 3 in the run, 4 here." in result.err
    assert "algorithm.ppo.gae_lambda: 0.95 in the run, 0.5 here." in result.err
    assert "horizon.ppo.total_steps: 96 in the run, 16 here. The run has taken" in result.err
    assert (
        "2 of them cannot be accepted; the others could be, by: --accept algorithm.ppo.gae_lambda=0.95:0.5\n"
        in result.err
    )
    assert {path: path.read_bytes() for path in stopped.rglob("*.json*")} == before


@pytest.mark.full
def test_another_cadence_is_accepted(perdure_cli, options, stopped: Path):
    assert perdure_cli("train", "ppo", "--run", stopped, *options(checkpoint_every_steps=32)).code == 0


def checkpoints(run: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in (run / "checkpoints").iterdir())


@pytest.mark.full
def test_two_checkpoints_stay_unless_it_is_told_how_many(perdure_cli, options, tmp_path: Path):
    default = [word for word in options() if word not in ("--keep-last", "0")]
    for directory, words in (("two", default), ("all", options()), ("three", options(keep_last=3))):
        assert perdure_cli("train", "ppo", "--run", tmp_path / directory, *words).code == 0

    assert checkpoints(tmp_path / "two") == [80, 96]
    assert checkpoints(tmp_path / "all") == [0, 16, 32, 48, 64, 80, 96]
    assert checkpoints(tmp_path / "three") == [64, 80, 96]


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "kept"),
    [([], [0, 16, 32, 48, 64, 80, 96]), (["--keep-last", "1"], [96]), (["--keep-last", "2"], [80, 96])],
)
def test_a_resume_keeps_as_many_as_the_launch_unless_told(
    perdure_cli, stopped: Path, words: list[str], kept: list[int]
):
    """A run that was launched to keep everything does not lose it to a plain `perdure resume`."""
    assert checkpoints(stopped) == [0, 16, 32, 48, 64]

    assert perdure_cli("resume", stopped, *words).code == 0

    assert checkpoints(stopped) == kept


@pytest.mark.full
def test_another_process_is_training_there(perdure_cli, options, stopped: Path):
    program = (
        "import sys; from pathlib import Path; from perdure.runs.lock import acquire\n"
        "lock = acquire(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(stopped / ".writer.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        results = [perdure_cli("resume", stopped), perdure_cli("train", "ppo", "--run", stopped, *options())]
        holder.communicate()

    assert [result.code for result in results] == [5, 5]
    assert all(f"another process is training this run: pid {holder.pid} on " in result.err for result in results)


@pytest.mark.full
def test_ctrl_c_says_how_to_go_on(perdure_cli, stopped: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(self: object, metrics: object, env_steps: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perdure.cli.progress.Progress.__call__", interrupt)
    result = perdure_cli("resume", stopped)
    monkeypatch.undo()

    assert result.code == 130
    assert result.err.endswith(f"perdure: interrupted; go on with: perdure resume {stopped}\n")
    assert perdure_cli("resume", stopped).code == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"env": "CartPole"}, "perdure: gymnax has no environment 'CartPole'. It has: "),
        ({"seed": -1}, "perdure: TrainConfig.seed must be an integer in [0, 2**32), got -1."),
        ({"n_envs": 5}, "PPOConfig.n_minibatches=2 does not divide n_envs=5"),
        ({"n_envs": "many"}, "invalid literal for int()"),
        ({"keep_last": -1}, "perdure: --keep-last -1: how many checkpoints stay; 0 for all."),
        ({"learning_speed": 1}, "Unrecognized options: --learning-speed"),
    ],
)
def test_impossible_options_create_nothing(perdure_cli, options, tmp_path: Path, monkeypatch, changed, message: str):
    monkeypatch.setenv("COLUMNS", "200")
    result = perdure_cli("train", "ppo", "--run", tmp_path / "run", *options(**changed))

    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_run_should_be(perdure_cli, options, tmp_path: Path):
    (tmp_path / "run").touch()
    result = perdure_cli("train", "ppo", "--run", tmp_path / "run", *options())

    assert (result.code, result.err) == (
        2,
        f"perdure: --run {tmp_path}/run: a file stands there; a run is a directory.\n",
    )


def test_the_options_of_the_algorithm_are_flags(perdure_cli):
    result = perdure_cli("train", "ppo", "--help")

    assert result.code == 0
    for flag in (
        "--env",
        "--run",
        "--seed",
        "--keep-last",
        "--n-envs",
        "--gae-lambda",
        "--eval.every-steps",
        "--networks.activation",
    ):
        assert f"{flag} " in result.out


def test_an_unknown_trainer(perdure_cli):
    result = perdure_cli("train", "sac")

    assert result.code == 2
    assert "invalid choice: 'sac' (choose from " in result.err


def test_without_the_extra_it_says_what_to_install(perdure_cli, monkeypatch: pytest.MonkeyPatch):
    def fail(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="jax")

    monkeypatch.setattr("perdure.cli.training.import_module", fail)
    result = perdure_cli("train", "ppo", "--env", "CartPole-v1", "--run", "x")

    assert result.code == 2
    assert result.err.endswith("need jax, which is not installed: pip install 'perdure[gymnax]'\n")
