"""`perdure export`, and what ls, show, verify and resume say of a policy."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import perdure


@pytest.fixture
def policy(perdure_cli, run_path: Path, tmp_path: Path) -> Path:
    """Of the toy run's newest checkpoint."""
    result = perdure_cli("export", run_path, "--to", tmp_path / "policy", "--components", "weights")
    place = tmp_path / "policy"
    assert (result.code, result.out) == (0, f"{place}: a policy (evaluation only) of weights, step 30\n")
    return place


def test_it_is_the_checkpoint_s_component(policy: Path, run_path: Path, step):
    weights = perdure.read(step(30))["weights"]

    assert perdure.load_policy(policy, weights=weights * 0)["weights"].tobytes() == weights.tobytes()


def test_an_earlier_step_and_a_checkpoint(perdure_cli, run_path: Path, step, tmp_path: Path):
    early = perdure_cli("export", run_path, "--to", tmp_path / "early", "--step", 10, "--components", "weights")
    same = perdure_cli("export", step(10), "--to", tmp_path / "same", "--components", "weights")

    assert (early.code, same.code) == (0, 0)
    assert perdure.Policy(tmp_path / "early").env_steps == perdure.Policy(tmp_path / "same").env_steps == 10


def test_components_are_those_of_the_run_s_newest_policy(perdure_cli, run_path: Path, policy: Path, tmp_path: Path):
    (run_path / "policies").mkdir()
    policy.rename(run_path / "policies" / "step_0000000030")

    assert perdure_cli("export", run_path, "--to", tmp_path / "again").code == 0
    assert perdure.Policy(tmp_path / "again").components == ("weights",)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            (),
            2,
            "say which components are the policy, --components A,B; the checkpoint has process_rng (process-rng), ",
        ),
        (("--components", "agent"), 2, "step_0000000030: ['agent'] are no components; the checkpoint has process_rng"),
        (("--components", "weights", "--step", "15"), 4, "no checkpoint at 15 env-steps; there are: 30, 20, 10, 0."),
    ],
)
def test_bad_words(perdure_cli, run_path: Path, tmp_path: Path, words: tuple[str, ...], code: int, message: str):
    result = perdure_cli("export", run_path, "--to", tmp_path / "policy", *words)

    assert result.code == code
    assert message in result.err
    assert not (tmp_path / "policy").exists()


def test_nothing_is_overwritten(perdure_cli, run_path: Path, policy: Path):
    result = perdure_cli("export", run_path, "--to", policy, "--components", "trace")

    assert result.code == 2
    assert "there is something already; give the policy a directory of its own." in result.err


def test_a_damaged_checkpoint_is_stepped_back_from_or_refused(perdure_cli, run_path: Path, step, flip, tmp_path: Path):
    flip(step(30) / "weights.safetensors")
    words = ("--to", tmp_path / "policy", "--components", "weights")

    refused = perdure_cli("export", run_path, *words, "--step", 30)
    stepped = perdure_cli("export", run_path, *words)

    assert refused.code == 4
    assert "step_0000000030/weights.safetensors: " in refused.err
    assert (stepped.code, perdure.Policy(tmp_path / "policy").env_steps) == (0, 20)


def test_resume_refuses_and_lists_what_is_missing(perdure_cli, policy: Path):
    result = perdure_cli("resume", policy)

    assert result.code == 2
    assert f"{policy}: a policy (evaluation only), not a run. What a resume needs is missing in it: " in result.err
    assert "process_rng (process-rng), rng (numpy-generator), trace (dict). Evaluate it with" in result.err


def test_verbs_for_runs_and_checkpoints_refuse_it(perdure_cli, policy: Path, run_path: Path):
    result = perdure_cli("diff", policy, run_path)

    assert result.code == 2
    assert "a policy (evaluation only), not a run or a checkpoint." in result.err


def test_show_says_what_it_is(perdure_cli, policy: Path, run_path: Path, step):
    shown = perdure_cli("show", policy).out
    document = json.loads(perdure_cli("show", policy, "--json").out)

    assert "class       policy (evaluation only)\n" in shown
    assert "left out    process_rng (process-rng), rng (numpy-generator), trace (dict)\n" in shown
    assert (document["kind"], document["checkpoint"]) == ("policy", "step_0000000030")
    assert re.search(
        r"^class +checkpoint \(resumable: exact-snapshot\)$", perdure_cli("show", step(30)).out, re.MULTILINE
    )
    assert "weights  float64 2×3" in perdure_cli("show", policy, "--leaves").out


def test_ls_lists_policies_beside_runs(perdure_cli, policy: Path, run_path: Path, tmp_path: Path):
    inside = run_path / "policies" / "step_0000000030"
    inside.parent.mkdir()
    perdure_cli("export", run_path, "--to", inside, "--components", "weights")

    lines = perdure_cli("ls", tmp_path).out.splitlines()[1:]
    rows = json.loads(perdure_cli("ls", tmp_path, "--json").out)

    assert [row["run"] for row in rows] == ["policy", "run", "run/policies/step_0000000030"]
    assert [row["kind"] for row in rows] == ["policy", "run", "policy"]
    assert ["policy (evaluation only)" in line for line in lines] == [True, False, True]
    assert "checkpoint (resumable: exact-snapshot)" in lines[1]
    assert re.search(
        r"^policies +step_0000000030: policy \(evaluation only\)$", perdure_cli("show", run_path).out, re.M
    )


def test_verify_reads_every_byte_of_it(perdure_cli, policy: Path, flip):
    sound = perdure_cli("verify", policy)
    flip(policy / "weights.safetensors")
    damaged = perdure_cli("verify", policy)

    assert (sound.code, sound.out.splitlines()[-1]) == (0, "intact: a policy (evaluation only).")
    assert (damaged.code, damaged.out.splitlines()[-1]) == (4, "nothing intact: the policy is damaged.")
    assert "policy/weights.safetensors: " in damaged.out


def test_verify_of_a_run_reads_its_policies(perdure_cli, policy: Path, run_path: Path, flip):
    (run_path / "policies").mkdir()
    policy.rename(run_path / "policies" / "step_0000000030")
    sound = perdure_cli("verify", run_path)
    flip(run_path / "policies" / "step_0000000030" / "weights.safetensors")
    damaged = perdure_cli("verify", run_path)

    assert (sound.code, damaged.code) == (0, 1)
    assert "damaged  policies/step_0000000030/weights.safetensors: " in damaged.out


def test_log_tells_of_exports(perdure_cli, tmp_path: Path):
    with perdure.Run(tmp_path / "run", policy=["weights"]) as run:
        run.restore(weights=np.zeros(2))
        run.export_policy(weights=np.ones(2))

    assert "exported 1 policy" in perdure_cli("log", tmp_path / "run").out


def test_a_component_that_shares_an_object_with_one_that_is_left_out(perdure_cli, tmp_path: Path):
    shared = np.zeros(2)
    with perdure.Run(tmp_path / "run", every=perdure.Every(updates=1)) as run:
        run.restore(envs={"space": shared}, policy={"space": shared})
        run.boundary(env_steps=1, envs={"space": shared}, policy={"space": shared})
    result = perdure_cli("export", tmp_path / "run", "--to", tmp_path / "policy", "--components", "policy")

    assert result.code == 2
    assert (
        "policy/space is the same object as envs/space: read both components. A policy that stands alone" in result.err
    )
    assert "is made in the script, which has the objects: run.export_policy(components=['policy'])." in result.err
    assert not (tmp_path / "policy").exists()
    assert perdure_cli("export", tmp_path / "run", "--to", tmp_path / "both", "--components", "envs,policy").code == 0
