"""`perdure train torch-ppo` and `perdure resume` of its runs, on networks as small as they come."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

import perdure.torch
from perdure.runs.metrics import read_metrics
from perdure.torch.launch import resume_ppo

OPTIONS = ("--total-timesteps", 96, "--n-envs", 2, "--n-steps", 8, "--n-minibatches", 2, "--hidden-sizes", 4)
TRAIN = ("train", "torch-ppo", "--env", "CartPole-v1", *OPTIONS, "--checkpoint-every", 16, "--keep-last", 0)

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("global_generators")]


@pytest.fixture
def stopped(perdure_cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was interrupted in its fifth update of six."""
    from perdure.cli.progress import Progress

    def interrupt(_self, _metrics, env_steps: int) -> None:
        if env_steps == 80:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", interrupt)
        result = perdure_cli(*TRAIN, "--run", tmp_path / "stopped")
    assert (result.code, f"go on with: perdure resume {tmp_path}/stopped" in result.err) == (130, True)
    return tmp_path / "stopped"


def test_train_to_the_horizon_and_once_more(perdure_cli, tmp_path: Path):
    first, again = (perdure_cli(*TRAIN, "--run", tmp_path / "run") for _ in range(2))

    assert (first.code, again.code) == (0, 0)
    assert f"{tmp_path}/run: finished at 96 steps, " in first.out
    assert first.err.startswith(f"perdure: CartPole-v1, 96 steps, in {tmp_path}/run\n")
    assert again.out == f"{tmp_path}/run: finished already, at 96 steps (step_0000000096).\n"


def test_a_resume_is_identical_to_a_straight_run(perdure_cli, stopped: Path, tmp_path: Path):
    resumed = perdure_cli("resume", stopped)
    straight = perdure_cli(*TRAIN, "--run", tmp_path / "straight")

    assert (resumed.code, straight.code) == (0, 0)
    assert f"{stopped}: finished at 96 steps" in resumed.out
    assert perdure_cli("diff", stopped, tmp_path / "straight").code == 0
    assert perdure_cli("resume", stopped).out.startswith(f"{stopped}: finished already, at 96 of 96 steps")
    assert (stopped / "metrics.jsonl").read_bytes() == (tmp_path / "straight" / "metrics.jsonl").read_bytes()


def test_twin_another_seed_is_another_run(perdure_cli, stopped: Path, tmp_path: Path):
    perdure_cli("resume", stopped)
    perdure_cli(*TRAIN, "--seed", 2, "--run", tmp_path / "other")

    assert perdure_cli("diff", stopped, tmp_path / "other").code == 1


def test_other_options_are_refused_and_can_be_accepted(perdure_cli, stopped: Path):
    refused = perdure_cli(*TRAIN, "--run", stopped, "--gamma", 0.5)
    accepted = perdure_cli("resume", stopped, "--accept", "algorithm.gamma=0.99:0.5", "--reason", "shorter")

    assert refused.code == 3
    assert "algorithm.gamma: 0.99 in the run, 0.5 here." in refused.err
    assert accepted.code == 0


def test_another_environment_is_refused(perdure_cli, stopped: Path):
    words = ["Acrobot-v1" if word == "CartPole-v1" else word for word in TRAIN]
    refused = perdure_cli(*words, "--run", stopped)

    assert refused.code == 3
    assert "env.env_id: 'CartPole-v1' in the run, 'Acrobot-v1' here." in refused.err


def interrupted_at(perdure_cli, monkeypatch: pytest.MonkeyPatch, env_steps: int, *words: object) -> None:
    """The command, until Ctrl-C in the update that leads to so many steps."""
    from perdure.cli.progress import Progress

    def interrupt(_self, _metrics, at: int) -> None:
        if at == env_steps:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "__call__", interrupt)
        assert perdure_cli(*words).code == 130


def rates(run: Path) -> list[float]:
    """The learning rate of each update."""
    return [row["learning_rate"] for row in read_metrics(run / "metrics.jsonl")]


RATE = 2.5e-4


def test_what_is_left_of_the_learning_rate_is_stretched_to_another_total(
    perdure_cli, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also after a kill, by a command that says nothing about schedules any more."""
    twin = Path(shutil.copytree(stopped, tmp_path / "twin"))
    stretched = perdure_cli("resume", stopped, "--total-steps", 128, "--schedules", "restretch")
    interrupted_at(perdure_cli, monkeypatch, 112, "resume", twin, "--total-steps", 128, "--schedules", "restretch")
    again = perdure_cli("resume", twin)

    assert (stretched.code, again.code) == (0, 0)
    assert f"{stopped}: finished at 128 steps" in stretched.out
    before = [1 - start / 96 for start in (0, 16, 32, 48)]
    since = [(1 - 64 / 96) * (1 - (start - 64) / 64) for start in (64, 80, 96, 112)]
    assert rates(stopped) == pytest.approx([RATE * left for left in before + since])
    assert perdure_cli("diff", stopped, twin).code == 0
    assert (stopped / "metrics.jsonl").read_bytes() == (twin / "metrics.jsonl").read_bytes()


def test_the_train_command_stretches_it_as_a_resume_does(perdure_cli, stopped: Path, tmp_path: Path):
    twin = Path(shutil.copytree(stopped, tmp_path / "twin"))
    perdure_cli("resume", stopped, "--total-steps", 128, "--schedules", "restretch")
    trained = perdure_cli(*TRAIN, "--total-timesteps", 128, "--schedules", "restretch", "--run", twin)
    once_more = perdure_cli(*TRAIN, "--total-timesteps", 128, "--run", twin)

    assert (trained.code, once_more.code) == (0, 0)
    assert "finished already" in once_more.out
    assert perdure_cli("diff", stopped, twin).code == 0


def test_the_old_line_is_kept_and_zero_stays(perdure_cli, stopped: Path):
    kept = perdure_cli("resume", stopped, "--total-steps", 112, "--schedules", "keep")
    later = perdure_cli("resume", stopped, "--total-steps", 128, "--schedules", "restretch")

    assert (kept.code, later.code) == (0, 0)
    assert rates(stopped) == pytest.approx([RATE * (1 - start / 96) for start in range(0, 96, 16)] + [0, 0])
    assert "the learning rate has fallen to 0 by 112 env-steps and stays there: nothing more is learned." in later.err
    assert "fallen to 0" not in kept.err


def test_twin_keep_and_restretch_learn_otherwise(perdure_cli, stopped: Path, tmp_path: Path):
    twin = Path(shutil.copytree(stopped, tmp_path / "twin"))
    perdure_cli("resume", stopped, "--total-steps", 128, "--schedules", "restretch")
    perdure_cli("resume", twin, "--total-steps", 128, "--schedules", "keep")

    assert perdure_cli("diff", stopped, twin).code == 1


def test_schedules_where_they_say_nothing_are_refused(perdure_cli, stopped: Path, tmp_path: Path):
    alone = perdure_cli("resume", stopped, "--schedules", "keep")
    constant = perdure_cli(*TRAIN, "--no-anneal-lr", "--schedules", "keep", "--run", tmp_path / "constant")

    assert (alone.code, "--schedules says what another total does; give --total-steps too." in alone.err) == (2, True)
    assert (constant.code, "the learning rate is constant (anneal_lr=False)" in constant.err) == (2, True)
    assert not (tmp_path / "constant").exists()


def test_policies_are_exported_on_their_own_cadence_and_after_a_resume(
    perdure_cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    words = [*TRAIN, "--policy-every", 32]
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert perdure_cli(*words, "--run", straight).code == 0
    interrupted_at(perdure_cli, monkeypatch, 80, *words, "--run", stopped)
    assert sorted(path.name for path in (stopped / "policies").iterdir()) == ["step_0000000032", "step_0000000064"]
    assert perdure_cli("resume", stopped).code == 0

    names = ["step_0000000032", "step_0000000064", "step_0000000096"]
    for run in (straight, stopped):
        assert sorted(path.name for path in (run / "policies").iterdir()) == names
    for name in names:
        digests = {perdure.Policy(run / "policies" / name)._opened.manifest.state_digest for run in (straight, stopped)}
        assert len(digests) == 1
    assert perdure.Policy(straight / "policies" / names[-1]).components == ("networks",)
    played = perdure_cli("eval", straight / "policies" / names[-1], "--episodes", 2)
    assert (played.code, "episodes of CartPole-v1" in played.out) == (0, True)


def test_policies_do_not_change_the_training(perdure_cli, tmp_path: Path):
    perdure_cli(*TRAIN, "--policy-every", 16, "--run", tmp_path / "with")
    perdure_cli(*TRAIN, "--run", tmp_path / "without")

    assert perdure_cli("diff", tmp_path / "with", tmp_path / "without").code == 0
    assert not list((tmp_path / "without").glob("policies/*"))


def test_another_total_needs_a_learning_rate_that_does_not_depend_on_it(perdure_cli, stopped: Path, tmp_path: Path):
    perdure_cli(*TRAIN, "--no-anneal-lr", "--run", tmp_path / "constant")
    refused = perdure_cli("resume", stopped, "--total-steps", 128)
    goes_on = perdure_cli("resume", tmp_path / "constant", "--total-steps", 128)

    assert refused.code == 3
    assert "horizon.total_timesteps: 96 in the run, 128 here. The run would end at another step." in refused.err
    assert (goes_on.code, "finished at 128 steps" in goes_on.out) == (0, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--n-minibatches", 3), "n_minibatches=3: a divisor of n_envs"),
        (("--policy-every", 0), "--policy-every 0: a positive number of env-steps."),
        (("--checkpoint-every", 0), "--checkpoint-every 0: a positive number of env-steps."),
        (("--env", "CartPoll-v1"), "environment 'CartPoll-v1' cannot be made"),
        (("--env", "Taxi-v4"), "observation space Discrete(500): the networks see a Box."),
        (("--reason", "none"), "--reason says why something is accepted; give --accept too."),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_run_is_touched(perdure_cli, tmp_path: Path, words, message: str):
    result = perdure_cli(*TRAIN, "--run", tmp_path / "run", *words)

    assert (result.code, message in " ".join(result.err.replace("│", "").split())) == (2, True)
    assert not (tmp_path / "run").exists()


def test_a_record_of_another_trainer_is_refused(tmp_path: Path):
    with pytest.raises(perdure.UsageError, match="not a launch record of the trainer torch-ppo: its kind is 'script'"):
        resume_ppo({"kind": "script"}, tmp_path)
