"""What a run notes beside its checkpoints: lineage, notices, the user's hook, timings."""

import json
from pathlib import Path

import pytest
from tests.runs.toy_training import Training, checkpoint_names, states

from perdure import Every, Keep
from perdure.checkpoint.opening import read_manifest
from perdure.runs import committer as committer_module
from perdure.runs import contract_terms as contract_terms_module
from perdure.runs.directory import RunDirectory, step_name
from perdure.runs.lineage import read_lineage

pytestmark = pytest.mark.usefixtures("global_generators")


def test_the_lineage_tells_what_happened(tmp_path: Path):
    Training(tmp_path / "x", every=Every(updates=2)).restore().go(3).stop()
    training = Training(tmp_path / "x", every=Every(updates=2)).restore().go(2)
    training.run.finish()

    history = read_lineage(tmp_path / "x" / "lineage.jsonl")
    assert [(event["event"], event.get("checkpoint")) for event in history] == [
        ("started", None),
        ("committed", step_name(0)),
        ("committed", step_name(20)),
        ("stopped", None),
        ("resumed", step_name(20)),
        ("committed", step_name(40)),
        ("finished", step_name(40)),
    ]
    manifests = [read_manifest(RunDirectory(tmp_path / "x").store(), name) for name in checkpoint_names(tmp_path / "x")]
    assert [manifest.parent for manifest, _ in manifests] == [None, manifests[0][1], manifests[1][1]]
    assert history[4]["digest"] == manifests[1][1]


def test_the_lineage_tells_what_retention_removed(tmp_path: Path):
    training = Training(tmp_path / "x", keep=Keep(last=2)).restore().go(3)
    training.run.finish()

    history = read_lineage(tmp_path / "x" / "lineage.jsonl")
    assert [(event["event"], event.get("checkpoint", event.get("checkpoints"))) for event in history] == [
        ("started", None),
        ("committed", step_name(0)),
        ("committed", step_name(10)),
        ("committed", step_name(20)),
        ("removed", [step_name(0)]),
        ("committed", step_name(30)),
        ("removed", [step_name(10)]),
        ("finished", step_name(30)),
    ]
    assert checkpoint_names(tmp_path / "x") == [step_name(20), step_name(30)]


def test_a_hook_that_fails_is_told_in_the_lineage_and_the_run_goes_on(tmp_path: Path, straight: Path):
    seen: list[str] = []

    def upload(committed: Path) -> None:
        seen.append(committed.name)
        assert (committed / "MANIFEST.json").exists()
        if len(seen) == 2:
            raise ZeroDivisionError("no network")

    training = Training(tmp_path / "x", after_commit=upload).restore().go(8)
    training.run.finish()

    assert seen == [step_name(10 * boundary) for boundary in range(9)]
    failed = [event for event in read_lineage(tmp_path / "x" / "lineage.jsonl") if "failed" in event["event"]]
    assert [(event["event"], event["checkpoint"], event["problem"]) for event in failed] == [
        ("after_commit_failed", step_name(10), "ZeroDivisionError: no network")
    ]
    assert states(tmp_path / "x") == states(straight)


def test_changed_arithmetic_is_told_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(committer_module, "arithmetic", lambda: {"numpy": "1.0"})
    Training(tmp_path / "x").restore().stop()
    monkeypatch.setattr(contract_terms_module, "arithmetic", lambda: {"numpy": "2.0"})

    training = Training(tmp_path / "x").restore()

    assert training.run.notices == [
        "arithmetic changed: numpy: 1.0 then, 2.0 now. The last bits of results may differ from here on."
    ]
    training.stop()


def test_notices_are_logged_too(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    Training(tmp_path / "x").restore().stop()
    (tmp_path / "x" / "checkpoints" / ".staging.aa").mkdir()

    Training(tmp_path / "x").restore().stop()

    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'x'}: removed .staging.aa, an unfinished checkpoint that a stopped process left behind."
    ]


def test_timings_are_kept_apart_from_what_is_compared(tmp_path: Path):
    Training(tmp_path / "x").restore().go(2).stop()

    lines = [json.loads(line) for line in (tmp_path / "x" / "timings.jsonl").read_text().splitlines()]
    assert [line["checkpoint"] for line in lines] == [step_name(0), step_name(10), step_name(20)]
    assert all(line["size_bytes"] > 0 and line["blocked_s"] >= 0 for line in lines)
