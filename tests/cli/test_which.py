"""`best`, `latest`, a step, and `RUN@…`: the verbs mean the same checkpoint by the same words."""

import json
from pathlib import Path

import pytest

import perdure

RETURNS = (1.0, 9.0, 3.0)


@pytest.fixture
def ranked(tmp_path: Path) -> Path:
    """Checkpoints at 0, 10, 20 and 30; by `return` the best is at 20, by `loss` (min) at 10."""
    keep = perdure.Keep(last=9, best=1, metric="return")
    with perdure.Run(tmp_path / "ranked", every=perdure.Every(updates=1), keep=keep, policy=["x"]) as run:
        run.restore(x=0)
        for number, value in enumerate(RETURNS, start=1):
            run.boundary(env_steps=10 * number, x=number, metrics={"return": value, "loss:a": float(number)})
    return tmp_path / "ranked"


@pytest.mark.parametrize(
    ("which", "steps"),
    [
        ("best", 20),
        ("latest", 30),
        ("10", 10),
        ("best:return", 20),
        ("best:return:min", 10),
        ("best:loss:a", 30),
        ("best:loss:a:min", 10),
    ],
)
def test_show_verify_and_diff_take_a_run_s_checkpoint(perdure_cli, ranked: Path, which: str, steps: int):
    place = ranked / "checkpoints" / f"step_{steps:010d}"

    assert json.loads(perdure_cli("show", f"{ranked}@{which}", "--json").out)["path"] == str(place)
    assert perdure_cli("verify", f"{ranked}@{which}").out.splitlines()[0] == str(place)
    assert perdure_cli("diff", f"{ranked}@{which}", place).code == 0


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        ((), 30),
        (("latest",), 30),
        (("best",), 20),
        (("best", "--mode", "min"), 10),
        (("best", "--metric", "loss:a"), 30),
        (("10",), 10),
        (("--step", "10"), 10),
    ],
)
def test_export_takes_the_same_words_and_knows_the_script_s_policy(perdure_cli, ranked: Path, words, steps: int):
    result = perdure_cli("export", ranked, *words, "--to", ranked.parent / "policy")

    assert (result.code, result.err) == (0, "")
    assert perdure.Policy(ranked.parent / "policy").env_steps == steps


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("best", "--metric", "retrun"),
            2,
            "no checkpoint has the score 'retrun'; its checkpoints have loss:a, return",
        ),
        (("15",), 4, "no checkpoint at 15 env-steps; there are: 30, 20, 10, 0."),
        (("newest",), 2, "which='newest': 'best', 'latest', or the checkpoint's env-steps."),
        (("--metric", "return"), 2, "--metric and --mode say what the best checkpoint is: RUN best --metric NAME."),
        (("best", "--step", "10"), 2, "export --step 10: best says another checkpoint; say one."),
    ],
)
def test_words_that_cannot_be_meant(perdure_cli, ranked: Path, words: tuple[str, ...], code: int, message: str):
    result = perdure_cli("export", ranked, *words, "--to", ranked.parent / "policy")

    assert (result.code, result.out) == (code, "")
    assert message in result.err


def test_a_checkpoint_is_one_step_already(perdure_cli, ranked: Path):
    result = perdure_cli("export", f"{ranked}@10", "latest", "--to", ranked.parent / "policy")

    assert (result.code, result.err) == (2, "perdure: latest: is for a run; a checkpoint is itself one step.\n")


def test_a_folder_with_an_at_in_its_name_is_itself(perdure_cli, ranked: Path):
    there = ranked.rename(ranked.with_name("x@best"))

    assert json.loads(perdure_cli("show", there, "--json").out)["env_steps"] == 30
    assert json.loads(perdure_cli("show", f"{there}@best", "--json").out)["env_steps"] == 20


def test_a_mistyped_run(perdure_cli, ranked: Path):
    result = perdure_cli("show", f"{ranked}x@best")

    assert result.code == 4
    assert f"{ranked}x: no such directory. Check the spelling" in result.err
