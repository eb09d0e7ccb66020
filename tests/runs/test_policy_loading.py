"""A policy loads into modules that fit, whole and exact; anything else is refused by name, and nothing is changed."""

from pathlib import Path

import numpy as np
import pytest
from tests.runs.toy_training import Learner, Training

import perdure
from perdure import DamagedError, NoCheckpointError, PolicyMismatchError, UsageError

pytestmark = pytest.mark.usefixtures("global_generators")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Of a toy training, stopped after three updates."""
    training = Training(tmp_path / "run", policy=["learner"]).restore().go(3)
    path = training.run.export_policy()
    training.stop()
    return path


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("file", ["learner.safetensors", "POLICY.json"])
def test_a_flipped_bit_is_found_and_nothing_is_changed(policy: Path, file: str):
    flip(policy / file)
    learner = Learner()

    with pytest.raises(DamagedError, match=f"step_0000000030.*{file[:7]}"):
        perdure.load_policy(policy, learner=learner)

    assert not learner.weights.any()


def test_a_missing_file_is_found(policy: Path):
    (policy / "learner.safetensors").unlink()

    with pytest.raises(DamagedError, match=r"learner\.safetensors: \d+ bytes were written, found missing"):
        perdure.Policy(policy)


def test_components_go_by_their_names_and_all_of_them(policy: Path):
    with pytest.raises(UsageError, match=r"\['lerner'\] are no components; the policy has \['learner'\]"):
        perdure.load_policy(policy, lerner=Learner())
    with pytest.raises(UsageError, match=r"\['learner'\] were not handed in; a policy is loaded whole \(learner=…\)"):
        perdure.load_policy(policy)


def test_a_policy_is_no_checkpoint_and_no_run(policy: Path):
    lacks = r"What a resume needs is missing in it: observation \(value\), process_rng \(process-rng\), rng \(numpy-gen"

    for call in (perdure.load, perdure.read, perdure.Checkpoint):
        with pytest.raises(UsageError, match=rf"a policy \(evaluation only\), not a checkpoint\. {lacks}"):
            call(policy)
    with pytest.raises(UsageError, match=rf"a policy \(evaluation only\), not a run\. {lacks}"):
        perdure.Run(policy).restore(learner=Learner())
    assert sorted(path.name for path in policy.iterdir()) == ["POLICY.json", "learner.safetensors"]


def test_a_run_and_a_checkpoint_are_no_policies(policy: Path, tmp_path: Path):
    run = tmp_path / "run"

    with pytest.raises(UsageError, match=r"run: a run, not a policy\. Make a policy of it: perdure export "):
        perdure.Policy(run)
    with pytest.raises(UsageError, match="step_0000000030: a checkpoint, not a policy"):
        perdure.load_policy(run / "checkpoints" / "step_0000000030", learner=Learner())
    with pytest.raises(NoCheckpointError, match="nowhere: no such directory"):
        perdure.Policy(tmp_path / "nowhere")
    with pytest.raises(NoCheckpointError, match=r"not a policy \(no POLICY.json in it\)"):
        perdure.Policy(run / "checkpoints")


def test_a_policy_may_be_loaded_again_and_values_are_not_shared(tmp_path: Path):
    training = Training(tmp_path / "run").restore().go(1)
    path = training.run.export_policy(components=["observation"], observation=training.observation)
    training.stop()
    policy, target = perdure.Policy(path), np.ones(2, np.float32)
    first = policy.load(observation=target)["observation"]
    first[...] = 7

    assert policy.load(observation=target)["observation"].tobytes() == training.observation.tobytes()


def test_what_a_policy_says_of_itself(policy: Path):
    opened = perdure.Policy(policy)

    assert (opened.components, opened.env_steps, opened.launch, opened.environment) == (("learner",), 30, None, {})
    assert opened.contract["algorithm"] == {"lr": 0.5, "track": False}
    assert "start" not in opened.contract
    assert repr(opened) == f"Policy({str(policy)!r}: learner, step 30)"


def test_declared_keys_are_compared_and_a_missing_one_is_a_difference(tmp_path: Path):
    declared = {"interface": {"actions": 3}, "env": {"map": "a"}, "reward": {"weight": 1.0}}
    training = Training(tmp_path / "run", contract=declared, policy=["learner"]).restore().go(1)
    policy = perdure.Policy(training.run.export_policy())
    training.stop()

    policy.check(contract={"interface": {"actions": 3}, "env": {"map": "a"}})
    with pytest.raises(PolicyMismatchError) as raised:
        policy.check(contract={"interface": {"actions": 4}, "env": {"other": "a"}})

    assert [(finding.key, finding.saved, finding.found) for finding in raised.value.findings] == [
        ("interface.actions", "3", "4"),
        ("env.map", "'a'", "nothing"),
        ("env.other", "nothing", "'a'"),
    ]
    assert "the policy was trained for something else: 3 differences; nothing was changed." in str(raised.value)
