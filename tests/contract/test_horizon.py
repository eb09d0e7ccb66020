"""The horizon: progress along knots, and what another total does under each policy."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.contract.horizon import PROGRESS, Progress, compare_horizon, read_progress, straight, total_of
from perdure.errors import DamagedError


def total(value: Any, **more: Any) -> dict[str, Any]:
    return {"steps": value, **more}


def test_a_straight_run_s_progress_is_steps_by_total():
    progress = straight(300)

    assert [progress.at(steps) for steps in (0, 1, 150, 299, 300, 400)] == [0.0, 1 / 300, 0.5, 299 / 300, 1.0, 1.0]


@given(st.integers(1, 10**9), st.data())
def test_restretched_progress_is_a_straight_line_from_where_it_stood(old: int, data: st.DataObject):
    """p + (1 - p) (s - c) / (H - c), in exact fractions."""
    here = data.draw(st.integers(0, old - 1))
    new = data.draw(st.integers(here + 1, 2 * 10**9))
    steps = data.draw(st.integers(here, new))

    progress = straight(old).restretched(here, new)

    stood = Fraction(here, old)
    expected = stood + (1 - stood) * Fraction(steps - here, new - here)
    assert progress.at(steps) == pytest.approx(float(expected), rel=1e-12)
    assert progress.at(new) == 1.0
    assert progress.at(here) == straight(old).at(here)  # what comes before is past


def test_what_is_finished_cannot_be_stretched():
    assert straight(100).restretched(100, 200) == straight(100)


def test_knots_come_back_from_their_text():
    progress = straight(300).restretched(100, 1000).restretched(700, 800)

    assert read_progress(progress.text()) == progress
    assert straight(10).text() == "0:0.0 10:1.0"


@pytest.mark.parametrize("text", ["", "x", "1", "0:0.0 a:1", "0:0.0,1:1.0"])
def test_what_is_no_list_of_knots_is_damage(text: str):
    with pytest.raises(DamagedError, match="is no list of knots"):
        read_progress(text)


@pytest.mark.parametrize("policy", [None, "none", "keep", "restretch"])
@pytest.mark.parametrize("new", [100, 100.0])
def test_the_same_total_is_no_difference(policy: Any, new: Any):
    change = compare_horizon(total(100), total(new), policy, 50)

    assert (change.findings, change.progress, change.totals) == ([], straight(100), None)


@pytest.mark.parametrize("new", [50, 200])
def test_another_total_without_a_policy_is_a_finding(new: int):
    [finding] = compare_horizon(total(100), total(new), None, 20).findings

    assert finding.acceptance == f"horizon.steps=100:{new}"
    assert 'Run(schedules="none")' in finding.advice


def test_policies():
    kept = compare_horizon(total(100), total(200), "keep", 50)
    none = compare_horizon(total(100), total(200), "none", 50)
    stretched = compare_horizon(total(100), total(200), "restretch", 50)

    assert kept.progress == none.progress == straight(100)
    assert stretched.progress == Progress(((0, 0.0), (50, 0.5), (200, 1.0)))
    assert {change.totals for change in (kept, none, stretched)} == {(100, 200)}
    assert kept.notice == "the total of steps changed from 100 to 200."


def test_knots_of_earlier_changes_go_on():
    saved = total(200, **{PROGRESS: "0:0.0 50:0.5 200:1.0"})

    change = compare_horizon(saved, total(300), "restretch", 125)

    assert change.progress == Progress(((0, 0.0), (50, 0.5), (125, 0.75), (300, 1.0)))
    assert compare_horizon(saved, total(200), "keep", 125).progress == read_progress(saved[PROGRESS])


@pytest.mark.parametrize("policy", [None, "none", "keep", "restretch"])
def test_a_total_below_the_present_step_is_refused_for_good(policy: Any):
    [finding] = compare_horizon(total(100), total(49), policy, 50).findings

    assert finding.acceptance is None
    assert str(finding) == (
        "horizon.steps: 100 in the run, 49 here. The run has taken 50 steps already: pass a total of at least that."
    )
    assert compare_horizon(total(100), total(50), policy or "none", 50).findings == []


@pytest.mark.parametrize(("saved", "found"), [({}, total(100)), (total(100), {}), (total(100), {"total": 100})])
@pytest.mark.parametrize("policy", [None, "none", "keep"])
def test_a_total_that_one_side_lacks_or_calls_otherwise_is_a_finding(saved: Any, found: Any, policy: Any):
    keys = sorted(saved.keys() | found.keys())

    assert [finding.key for finding in compare_horizon(saved, found, policy, 0).findings] == [
        f"horizon.{key}" for key in keys
    ]


@pytest.mark.parametrize(("section", "steps"), [({}, None), (total(5), 5), (total(5.0), 5), (total("x"), None)])
def test_total_of(section: Any, steps: int | None):
    assert total_of(section) == steps
