"""Accepted differences of `perdure train` runs: taken, kept over resumes and kills, or refused with nothing changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.runs.lineage import read_lineage

pytest.importorskip("gymnax")

pytestmark = [
    pytest.mark.jax,
    pytest.mark.full,
    pytest.mark.xdist_group("cli-ppo"),
    pytest.mark.usefixtures("process_generators"),
]

RATE = "algorithm.ppo.learning_rate"
FASTER = ["--accept", f"{RATE}=0.0001:0.0003"]
AMENDED = [
    f"{RATE}=0.0001:0.0003",
    "optimizer/tx/update/update_fns/1/tx/1/step_size=-0.0001:-0.0003",
]


@pytest.fixture
def interrupt_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Ctrl-C in the iteration that leads to so many steps, before its boundary; None: no more."""
    stop: list[int | None] = [None]

    def watch(self: object, metrics: object, env_steps: int) -> None:
        if env_steps == stop[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr("perdure.cli.progress.Progress.__call__", watch)
    return lambda env_steps: stop.__setitem__(0, env_steps)


@pytest.fixture
def faster(perdure_cli, stopped: Path, tmp_path: Path) -> Path:
    """The stopped run with a faster learning rate from step 64 to the end, never interrupted."""
    result = perdure_cli("resume", stopped, *FASTER, "--reason", "it crept")
    assert result.code == 0, result.err
    return stopped.rename(tmp_path / "faster")


@pytest.fixture
def again(trained_once: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Another copy of the stopped run."""

    def copy(name: str) -> Path:
        run = Path(shutil.copytree(trained_once, tmp_path / name))
        for checkpoint in ("step_0000000080", "step_0000000096"):
            shutil.rmtree(run / "checkpoints" / checkpoint)
        return run

    return copy


def shown(perdure_cli, run: Path) -> dict:
    return json.loads(perdure_cli("show", run, "--json").out)


def forget_the_last_event(run: Path) -> None:
    """What a kill leaves: the line about how the process ended was never written."""
    lines = (run / "lineage.jsonl").read_bytes().splitlines(keepends=True)
    (run / "lineage.jsonl").write_bytes(b"".join(lines[:-1]))


def test_resume_takes_the_new_value_and_says_what_it_accepted(perdure_cli, stopped: Path):
    result = perdure_cli("resume", stopped, *FASTER, "--reason", "it crept")

    assert (result.code, result.out[: result.out.index(", ")]) == (0, f"{stopped}: finished at 96 steps")
    assert f"perdure: {stopped}: accepted: {AMENDED[0]}.\n" in result.err
    assert f"perdure: {stopped}: accepted: {AMENDED[1]}, as {RATE} was.\n" in result.err
    document = shown(perdure_cli, stopped)
    assert document["amended"] == AMENDED
    assert document["contract"]["algorithm"]["ppo.learning_rate"] == 3e-4
    assert document["launch"]["config"]["ppo"]["learning_rate"] == 3e-4
    [resumed] = [event for event in read_lineage(stopped / "lineage.jsonl") if event["event"] == "resumed"]
    assert [each["text"] for each in resumed["accepted"]] == AMENDED
    assert resumed["reason"] == "it crept"


def test_the_new_value_is_learned_with(perdure_cli, faster: Path, trained_once: Path):
    result = perdure_cli("diff", faster, trained_once)

    assert result.code == 1
    assert "networks/layers/1/action/layers/0/kernel" in result.out


def test_train_with_the_new_option_is_the_same_resume(perdure_cli, options, faster: Path, again):
    run = again("run")
    words = ["train", "ppo", "--run", run, *options(learning_rate=3e-4)]
    refused = perdure_cli(*words)

    assert refused.code == 3
    assert refused.err.endswith(f"  To go on all the same: --accept {AMENDED[0]}\n")
    accepted = perdure_cli(*words, "--accept", AMENDED[0], "--reason", "it crept")
    assert accepted.code == 0, accepted.err
    assert perdure_cli("diff", run, faster).code == 0
    assert shown(perdure_cli, run)["amended"] == AMENDED


def test_the_words_of_a_refusal_with_two_differences_do_what_they_say(perdure_cli, options, stopped: Path):
    words = ["train", "ppo", "--run", stopped, *options(learning_rate=3e-4, **{"eval.every_steps": 96})]
    last = perdure_cli(*words).err.splitlines()[-1]
    advice = last.removeprefix("  To go on all the same: ").split()

    assert advice == ["--accept", "algorithm.eval.every_steps=48:96", "--accept", AMENDED[0]]
    assert perdure_cli(*words, *advice).code == 0
    assert set(shown(perdure_cli, stopped)["amended"]) == {"algorithm.eval.every_steps=48:96", *AMENDED}


def test_a_second_resume_goes_on_with_the_changed_options(perdure_cli, faster: Path, again, interrupt_at):
    run = again("run")
    interrupt_at(96)  # step 80 was committed with the acceptance
    assert perdure_cli("resume", run, *FASTER).code == 130
    assert shown(perdure_cli, run)["env_steps"] == 80
    interrupt_at(None)
    result = perdure_cli("resume", run)

    assert (result.code, "accepted" in result.err) == (0, False)
    assert perdure_cli("diff", run, faster).code == 0
    assert shown(perdure_cli, run)["amended"] == AMENDED


def test_a_process_that_died_before_the_next_commit_had_accepted_all_the_same(
    perdure_cli, faster: Path, again, interrupt_at
):
    run = again("run")
    interrupt_at(80)
    assert perdure_cli("resume", run, *FASTER, "--reason", "it crept").code == 130
    forget_the_last_event(run)
    assert (shown(perdure_cli, run)["env_steps"], shown(perdure_cli, run)["amended"]) == (64, [])
    interrupt_at(None)
    result = perdure_cli("resume", run)

    assert result.code == 0, result.err
    assert f"accepted: {AMENDED[0]}." in result.err
    assert perdure_cli("diff", run, faster).code == 0
    assert shown(perdure_cli, run)["amended"] == AMENDED


def test_without_the_lineage_s_word_it_is_not_accepted(perdure_cli, options, again, interrupt_at):
    """The twin: the same, but what the lineage says of the acceptance is lost."""
    run = again("run")
    interrupt_at(80)
    assert perdure_cli("resume", run, *FASTER).code == 130
    forget_the_last_event(run)
    forget_the_last_event(run)
    interrupt_at(None)
    result = perdure_cli("train", "ppo", "--run", run, *options(learning_rate=3e-4))

    assert result.code == 3
    assert f"{RATE}: 0.0001 in the run, 0.0003 here." in result.err


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (Path.unlink, "lineage.jsonl is missing or empty"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'"finished"', b'"Finished"')), "its digest"),
    ],
    ids=["missing", "edited"],
)
def test_without_a_lineage_the_accepted_value_comes_from_the_checkpoint(
    perdure_cli, faster: Path, tmp_path: Path, harm: Callable[[Path], object], said: str
):
    run = Path(shutil.copytree(faster, tmp_path / "run"))
    harm(run / "lineage.jsonl")
    result = perdure_cli("resume", run, "--total-steps", 112)

    assert result.code == 0, result.err
    assert said in result.err.splitlines()[0]
    assert shown(perdure_cli, run)["env_steps"] == 112
    assert shown(perdure_cli, run)["amended"] == AMENDED


@pytest.mark.parametrize("typed", ["0.0001:0.0003", "1e-4:3e-4"])
def test_the_same_words_again_say_nothing_new_and_are_no_error(perdure_cli, stopped: Path, interrupt_at, typed: str):
    """What a supervisor does that starts the same command line each time."""
    words = ["resume", stopped, "--accept", f"{RATE}={typed}"]
    interrupt_at(96)
    assert perdure_cli(*words).code == 130
    interrupt_at(None)

    assert perdure_cli(*words).code == 0
    assert shown(perdure_cli, stopped)["amended"] == AMENDED


def test_a_finished_run_goes_for_more_without_an_acceptance(perdure_cli, options, trained: Path, tmp_path: Path):
    result = perdure_cli("resume", trained, "--total-steps", 112)
    straight = perdure_cli("train", "ppo", "--run", tmp_path / "straight", *options(total_steps=112))

    assert (result.code, straight.code) == (0, 0)
    assert f"perdure: {trained}: the total of steps changed from 96 to 112.\n" in result.err
    assert perdure_cli("diff", trained, tmp_path / "straight").code == 0
    assert perdure_cli("resume", trained).out.startswith(f"{trained}: finished already, at 112 of 112 steps")
    assert shown(perdure_cli, trained)["amended"] == []


def test_an_acceptance_for_a_finished_run_waits_for_the_next_step(perdure_cli, trained: Path, again):
    first = perdure_cli("resume", trained, *FASTER)

    assert first.out == f"{trained}: finished already, at 96 steps (step_0000000096).\n"
    assert (first.code, shown(perdure_cli, trained)["amended"]) == (0, [])
    assert perdure_cli("resume", trained, "--total-steps", 112).code == 0
    assert shown(perdure_cli, trained)["amended"] == AMENDED
    assert shown(perdure_cli, trained)["contract"]["algorithm"]["ppo.learning_rate"] == 3e-4


def test_both_at_once_are_the_same_as_one_after_the_other(perdure_cli, trained: Path, trained_once: Path, tmp_path):
    at_once = Path(shutil.copytree(trained_once, tmp_path / "at-once"))
    assert perdure_cli("resume", trained, *FASTER).code == 0
    assert perdure_cli("resume", trained, "--total-steps", 112).code == 0
    assert perdure_cli("resume", at_once, *FASTER, "--total-steps", 112).code == 0

    assert perdure_cli("diff", trained, at_once).code == 0


def test_a_reason_without_an_acceptance_is_refused(perdure_cli, trained: Path):
    result = perdure_cli("resume", trained, "--reason", "why not")

    assert (result.code, result.out) == (2, "")
    assert result.err == "perdure: --reason says why something is accepted; give --accept too.\n"


@pytest.mark.parametrize("words", [[], ["--total-steps", "96"]])
def test_a_finished_run_is_left_alone(perdure_cli, trained: Path, state_of, words: list[str]):
    before = state_of(trained)
    result = perdure_cli("resume", trained, *words)

    assert (result.code, result.err) == (0, "")
    assert result.out == f"{trained}: finished already, at 96 of 96 steps (step_0000000096).\n"
    assert state_of(trained) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--accept", f"{RATE}=0.7:0.0003"],
            f"--accept {RATE}=0.7:0.0003: 0.0001 in the run, 0.0003 here. The two values are others: "
            f"write --accept {RATE}=0.0001:0.0003, if that is what you want.",
        ),
        (["--accept", "seed.seed=3:4"], "seed.seed: 3 in the run, 4 here. A resume goes on with the run's own"),
        (["--accept", "seed.seed=3:4"], "--accept seed.seed=3:4: 3 in the run, 4 here. Section seed takes no acc"),
        (
            ["--accept", "env.gymnax=1:2"],
            "--accept env.gymnax=1:2: No such difference: leave it out, or correct the key.",
        ),
        (["--accept", "algorithm.ppo.n_envs=4:8"], "env_states/done: bool 4 in the run, bool 8 here."),
        (
            ["--total-steps", "48"],
            "horizon.ppo.total_steps: 96 in the run, 48 here. The run has taken 64 steps already",
        ),
    ],
    ids=["another old value", "seed", "seed, the override", "nothing differs", "structure", "total too small"],
)
def test_what_would_not_be_the_same_run_is_refused(perdure_cli, stopped: Path, state_of, words, message: str):
    before = state_of(stopped)
    result = perdure_cli("resume", stopped, *words)

    assert (result.code, result.out) == (3, "")
    assert message in result.err
    assert "nothing was changed." in result.err
    assert state_of(stopped) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--accept", "faster"], "--accept faster: write KEY=OLD:NEW, as the refusal says it."),
        (["--accept", f"{RATE}=0.0001:-1"], "PPOConfig.learning_rate must be positive, got -1."),
        (["--accept", f"{RATE}=0.0001:x"], f"--accept {RATE}=0.0001:x: 'x' cannot take the place of 0.0001."),
        (["--accept", "horizon.ppo.total_steps=96:128"], "another total needs no acceptance; write --total-steps 128."),
        (["--total-steps", "0"], "PPOConfig.total_steps must be a positive integer, got 0."),
        (["--total-steps", "many"], "argument --total-steps: invalid int value: 'many'"),
    ],
)
def test_impossible_words_are_usage(perdure_cli, stopped: Path, state_of, words: list[str], message: str):
    before = state_of(stopped)
    result = perdure_cli("resume", stopped, *words)

    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert state_of(stopped) == before


def test_nothing_intact_to_accept_for(perdure_cli, stopped: Path, flip: Callable):
    for manifest in stopped.glob("checkpoints/*/MANIFEST.json"):
        flip(manifest)

    assert perdure_cli("resume", stopped, *FASTER).code == 4


def test_an_acceptance_without_a_run(perdure_cli, options, tmp_path: Path):
    result = perdure_cli("train", "ppo", "--run", tmp_path / "run", *options(learning_rate=3e-4), *FASTER)

    assert (result.code, result.out) == (2, "")
    assert result.err.endswith("nothing to accept: there is no run yet that could differ. Check the spelling.\n")
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_total_that_was_cut_and_taken_back(perdure_cli, stopped: Path, interrupt_at):
    assert perdure_cli("resume", stopped, "--total-steps", 64).code == 0
    interrupt_at(96)
    assert perdure_cli("resume", stopped, "--total-steps", 96).code == 130
    interrupt_at(None)

    result = perdure_cli("resume", stopped)
    assert (result.code, result.out) == (0, f"{stopped}: finished already, at 96 steps (step_0000000096).\n")
