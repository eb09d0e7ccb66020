"""Policies of a run: exactly the components as they are, when they are due, and without a trace in the training."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.runs.toy_training import Learner, Training, events, names, rows, states

import perdure
from perdure import CommitError, Every, ForgottenValueError, Keep, UsageError
from perdure.checkpoint.opening import read_manifest
from perdure.runs.directory import RunDirectory
from perdure.runs.policies import Policies, PolicyTerms

pytestmark = pytest.mark.usefixtures("global_generators")


def loaded(path: Path) -> Learner:
    learner = Learner()
    perdure.load_policy(path, learner=learner)
    return learner


def manifest_of(path: Path) -> dict[str, object]:
    from perdure.checkpoint.policy import read_policy_manifest
    from perdure.runs.policies import store_of

    return vars(read_policy_manifest(*store_of(path))[0])


def test_a_policy_holds_the_components_as_they_are(tmp_path: Path):
    training = Training(tmp_path / "run", policy=["learner"]).restore().go(3)

    path = training.run.export_policy()
    learner = loaded(path)

    assert path == tmp_path / "run" / "policies" / "step_0000000030"
    assert learner.weights.tobytes() == training.learner.weights.tobytes()
    assert learner.momentum.tobytes() == training.learner.momentum.tobytes()
    assert names(path) == ["POLICY.json", "learner.safetensors"]
    training.stop()


def test_twin_a_later_policy_holds_other_weights(tmp_path: Path):
    training = Training(tmp_path / "run", policy=["learner"]).restore().go(3)
    first = training.run.export_policy()
    second = training.go(1).run.export_policy()

    assert loaded(first).weights.tobytes() != loaded(second).weights.tobytes()
    training.stop()


def test_it_names_the_checkpoint_that_holds_the_same(tmp_path: Path):
    training = Training(tmp_path / "run", policy=["learner"]).restore().go(2)
    same = manifest_of(training.run.export_policy(tmp_path / "same"))
    training.update()
    trained_on = manifest_of(training.run.export_policy(tmp_path / "later"))
    digest = read_manifest(RunDirectory(tmp_path / "run").store(), "step_0000000020")[1]

    assert (same["checkpoint"], same["checkpoint_digest"]) == ("step_0000000020", digest)
    assert (trained_on["checkpoint"], trained_on["checkpoint_digest"]) == (None, None)
    assert same["left_out"] == {"observation": "value", "process_rng": "process-rng", "rng": "numpy-generator"}
    training.stop()


def test_the_cadence_exports_and_so_does_the_horizon(tmp_path: Path):
    Training(tmp_path / "run", policy=["learner"], policy_every=Every(updates=3)).restore().go(8).run.finish()

    assert names(tmp_path / "run" / "policies") == ["step_0000000030", "step_0000000060", "step_0000000080"]
    assert events(tmp_path / "run").count("exported") == 3


def test_without_a_cadence_nothing_is_exported(tmp_path: Path):
    Training(tmp_path / "run", policy=["learner"]).restore().go(8).run.finish()

    assert not (tmp_path / "run" / "policies").exists()


def test_exporting_leaves_no_trace_in_the_training(straight: Path, tmp_path: Path):
    Training(tmp_path / "run", policy=["learner"], policy_every=Every(updates=1)).restore().go(8).run.finish()

    assert states(tmp_path / "run") == states(straight)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()


def test_a_resumed_run_exports_the_same_policies(tmp_path: Path):
    options = {"policy": ["learner"], "policy_every": Every(updates=2)}
    Training(tmp_path / "straight", **options).restore().go(8).run.finish()
    Training(tmp_path / "run", **options).restore().go(5).stop()
    Training(tmp_path / "run", seed=9, **options).restore().go(3).run.finish()

    for name in names(tmp_path / "straight" / "policies"):
        one, other = (manifest_of(tmp_path / run / "policies" / name) for run in ("straight", "run"))
        assert one["state_digest"] == other["state_digest"]


def test_retention_of_policies_is_their_own(tmp_path: Path):
    keep = Keep(last=1) | Keep(best=1, metric="norm", mode="min")
    options = {"policy": ["learner"], "policy_every": Every(updates=1), "keep_policies": keep}
    Training(tmp_path / "run", **options).restore().go(8).run.finish()
    lowest = min(rows(tmp_path / "run"), key=lambda row: row["norm"])

    kept = names(tmp_path / "run" / "policies")
    assert len(states(tmp_path / "run")) == 9
    assert kept == [f"step_{lowest['env_steps']:010d}", "step_0000000080"]


def test_the_best_policy_outlives_a_resume(tmp_path: Path):
    keep = Keep(last=1) | Keep(best=1, metric="norm", mode="min")
    options = {"policy": ["learner"], "policy_every": Every(updates=1), "keep_policies": keep}
    Training(tmp_path / "run", **options).restore().go(4).stop()
    before = names(tmp_path / "run" / "policies")[0]
    training = Training(tmp_path / "run", **options).restore()
    training.learner.weights = training.learner.weights + 1000
    training.go(2).stop()

    assert before != "step_0000000040"
    assert names(tmp_path / "run" / "policies") == [before, "step_0000000060"]


def test_a_policy_of_a_history_that_was_given_up_makes_room(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    options = {"policy": ["learner"], "policy_every": Every(updates=2)}
    training = Training(tmp_path / "run", **options).restore().go(3)
    training.learner.weights = training.learner.weights + 1  # what no resume will repeat
    training.go(1).stop()
    for name in ("step_0000000030", "step_0000000040"):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / name)
    before = manifest_of(tmp_path / "run/policies/step_0000000040")["state_digest"]

    Training(tmp_path / "run", **options).restore().go(2).stop()

    assert manifest_of(tmp_path / "run/policies/step_0000000040")["state_digest"] != before
    assert "another policy of the same step stood there, from before a resume; it is replaced." in caplog.text


def test_a_damaged_policy_of_the_same_step_is_moved_and_written_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    training = Training(tmp_path / "run", policy=["learner"]).restore().go(1)
    path = training.run.export_policy()
    data = bytearray((path / "learner.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "learner.safetensors").write_bytes(data)

    training.run.export_policy()

    assert loaded(path).weights.tobytes() == training.learner.weights.tobytes()
    assert "step_0000000010 is damaged" in caplog.text
    assert names(tmp_path / "run" / "damaged") == ["step_0000000010"]
    training.stop()


def test_a_failed_export_at_a_boundary_is_told_and_not_fatal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(*_: object) -> None:
        raise CommitError("the disk is full")

    monkeypatch.setattr("perdure.runs.policies.save_policy", fail)
    Training(tmp_path / "run", policy=["learner"], policy_every=Every(updates=4)).restore().go(8).run.finish()

    assert "the policy of step_0000000040 was not exported: CommitError: the disk is full" in caplog.text
    assert events(tmp_path / "run").count("policy_failed") == 2
    assert len(states(tmp_path / "run")) == 9


def test_an_export_does_not_swallow_the_error_of_a_commit_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    training = Training(tmp_path / "run", policy=["learner"], policy_every=Every(updates=1)).restore().go(1)

    def fail(*_: object) -> None:
        raise CommitError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("perdure.runs.committer.save", fail)
        training.go(1)
        exported = manifest_of(tmp_path / "run" / "policies" / "step_0000000020")
        training.update()
        with pytest.raises(CommitError, match="the disk is full"):
            training.boundary()
    training.boundary()
    training.stop()

    assert exported["checkpoint"] is None
    assert sorted(states(tmp_path / "run")) == ["step_0000000000", "step_0000000010", "step_0000000030"]


def test_what_a_killed_export_left_is_removed_by_the_next_resume(tmp_path: Path):
    Training(tmp_path / "run", policy=["learner"]).restore().go(1).stop()
    (tmp_path / "run" / "policies" / ".staging.0123").mkdir(parents=True)

    training = Training(tmp_path / "run", policy=["learner"]).restore()

    assert names(tmp_path / "run" / "policies") == []
    assert any("removed .staging.0123" in notice for notice in training.run.notices)
    training.stop()


def test_values_are_handed_in(tmp_path: Path):
    training = Training(tmp_path / "run").restore().go(1)

    with pytest.raises(ForgottenValueError, match=r"\['observation'\] are values: hand them in \(observation=obs"):
        training.run.export_policy(components=["learner", "observation"])
    path = training.run.export_policy(components=["observation"], observation=training.observation)

    assert perdure.load_policy(path, observation=np.ones(2, np.float32))["observation"].tobytes() == (
        training.observation.tobytes()
    )
    training.stop()


def test_bad_names_and_places_are_refused(tmp_path: Path):
    training = Training(tmp_path / "run").restore().go(1)
    export = training.run.export_policy

    with pytest.raises(UsageError, match="say which components are the policy, as a list; the run's components are"):
        export()
    with pytest.raises(UsageError, match=r"\['agent'\] are no components; the run's components are \['learner', "):
        export(components=["agent"])
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(CommitError, match="policy there was not written"):
        export(tmp_path / "there", components=["learner"])
    training.stop()
    with pytest.raises(UsageError, match="export_policy: the run is not open"):
        export(components=["learner"])


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"every": Every(updates=1)}, "policy_every: say which components are the policy"),
        ({"components": "agent"}, "policy='agent': a list of component names"),
        ({"components": ["agent"], "every": 10}, "policy_every=10: an Every"),
        ({"components": ["agent"], "keep": 2}, "keep_policies=2: a Keep"),
    ],
)
def test_terms_that_cannot_be_right_are_refused(terms: dict[str, object], message: str):
    with pytest.raises(UsageError, match=message):
        PolicyTerms(**terms)  # pyright: ignore[reportArgumentType] - that is the point


def test_a_boundary_without_policies_asks_no_clock(monkeypatch: pytest.MonkeyPatch):
    policies = Policies(PolicyTerms())
    monkeypatch.setattr("perdure.runs.policies.time.monotonic", lambda: os.abort())

    assert not policies.is_due(None, None, at_horizon=True)  # pyright: ignore[reportArgumentType] - never looked at
