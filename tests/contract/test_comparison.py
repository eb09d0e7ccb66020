"""Comparing contracts: typed, complete, nothing forgotten."""

from typing import Any

import pytest

from perdure.contract.comparison import compare


def algorithm(**keys: Any) -> dict[str, dict[str, Any]]:
    return {"algorithm": keys}


@pytest.mark.parametrize("value", [None, True, 1, 1.0, "1", float("nan"), float("inf"), 2**70, ""])
def test_an_equal_value_is_no_finding(value: Any):
    assert compare(algorithm(x=value), algorithm(x=value)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [(1, 1.0), (1, True), (0, False), (1, "1"), (None, "None"), (None, 0), (0.1, 0.2), (float("nan"), 1.0), ("a", "A")],
)
def test_values_are_compared_with_their_types(old: Any, new: Any):
    for saved, found in ((old, new), (new, old)):
        findings = compare(algorithm(x=saved), algorithm(x=found))
        assert [(finding.key, finding.saved, finding.found) for finding in findings] == [
            ("algorithm.x", repr(saved), repr(found))
        ]


def test_missing_and_new_keys_are_findings():
    findings = compare(algorithm(a=1, b=2), algorithm(b=2, c=3))
    advice = "Pass the saved value, accept the change, or start a new run with the new value."

    assert [str(finding) for finding in findings] == [
        f"algorithm.a: 1 in the run, nothing here. From here on another learner would train. {advice}",
        f"algorithm.c: nothing in the run, 3 here. From here on another learner would train. {advice}",
    ]


def test_a_key_whose_value_is_none_is_not_a_missing_key():
    assert [finding.key for finding in compare(algorithm(a=None), algorithm())] == ["algorithm.a"]


def test_all_findings_come_sorted_by_section_and_key():
    saved = {"seed": {"seed": 1}, "algorithm": {"b": 1, "a": 1}, "horizon": {"steps": 10}}
    found = {"seed": {"seed": 2}, "algorithm": {"b": 2, "a": 2}, "horizon": {"steps": 20}}

    findings = compare(saved, found)

    assert [finding.key for finding in findings] == ["algorithm.a", "algorithm.b", "horizon.steps", "seed.seed"]
    assert findings[2].advice == "Pass the saved total, accept the change, or start a new run."
    assert findings[3].advice == "Pass the saved seed, or start a new run."


def test_a_section_that_only_one_side_has_is_compared_key_by_key():
    assert [finding.key for finding in compare({"env": {"id": "A"}}, {})] == ["env.id"]
    assert [finding.key for finding in compare({}, {"env": {"id": "A"}})] == ["env.id"]


def test_operational_keys_are_free():
    assert compare({"operational": {"a": 1, "b": 2}}, {"operational": {"a": 9}}) == []


def test_a_key_cannot_be_freed_by_moving_it_at_the_resume():
    assert [f.key for f in compare({"algorithm": {"lr": 1}}, {"operational": {"lr": 2}})] == ["algorithm.lr"]
    assert [f.key for f in compare({"operational": {"lr": 1}}, {"algorithm": {"lr": 2}})] == ["algorithm.lr"]
