"""Cadence: decided purely, in multiples, the same in an interrupted run as in an uninterrupted one."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.checkpoint.capture import Counters
from perdure.errors import UsageError
from perdure.runs.cadence import Every


def due(every: Every, *points: tuple[int, int], seconds: float = 0.0) -> list[bool]:
    """Which of the boundaries after the first is due; a point is (env_steps, updates)."""
    counters = [Counters(*point, at) for at, point in enumerate(points)]
    return [every.is_due(before, now, seconds) for before, now in pairwise(counters)]


def test_steps_are_due_at_the_first_boundary_at_or_past_each_multiple():
    points = [(steps, 0) for steps in (0, 60, 100, 199, 230, 460, 499, 500)]

    assert due(Every(env_steps=100), *points) == [False, True, False, True, True, False, True]


def test_updates_are_due_in_multiples():
    assert due(Every(updates=3), *[(10 * at, at) for at in range(8)]) == [False, False, True, False, False, True, False]


def test_a_boundary_is_due_once_however_many_multiples_it_passes():
    assert due(Every(env_steps=10), (0, 0), (95, 0), (99, 0), (100, 0)) == [True, False, True]


@pytest.mark.parametrize(("seconds", "expected"), [(0, False), (59.9, False), (60, True), (1e9, True)])
def test_minutes_count_since_the_last_commit(seconds: float, expected: bool):
    assert due(Every(minutes=1), (0, 0), (1, 1), seconds=seconds) == [expected]


@pytest.mark.parametrize(("minutes", "seconds", "expected"), [(0.5, 30, True), (0.5, 29, False), (1.5, 89.9, False)])
def test_minutes_may_be_fractions(minutes: float, seconds: float, expected: bool):
    assert due(Every(minutes=minutes), (0, 0), (1, 1), seconds=seconds) == [expected]


def test_any_of_the_intervals_is_enough():
    every = Every(env_steps=100, updates=3, minutes=10)

    assert due(every, (0, 0), (50, 1), (100, 2), (101, 3), (102, 4)) == [False, True, True, False]
    assert due(every, (0, 0), (50, 1), seconds=600) == [True]


def test_without_an_interval_nothing_is_ever_due():
    assert due(Every(), (0, 0), (10**9, 10**9), seconds=1e12) == [False]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 50),
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
    st.integers(0, 19),
)
def test_a_resume_changes_no_decision_about_steps(interval: int, gaps: list[int], stop: int):
    """The decision depends on two neighbouring boundaries only, not on when this process began or last saved."""
    steps = [0]
    for gap in gaps:
        steps.append(steps[-1] + gap)
    points = [(step, at) for at, step in enumerate(steps)]
    stop = min(stop, len(gaps))

    straight = due(Every(env_steps=interval), *points)
    stopped = due(Every(env_steps=interval), *points[: stop + 1]) + due(Every(env_steps=interval), *points[stop:])

    assert stopped == straight
    assert sum(straight) <= steps[-1] // interval


@pytest.mark.parametrize(
    ("every", "text"),
    [
        (Every(), "no checkpoint but the first and the last"),
        (Every(env_steps=1000), "a checkpoint every 1,000 env steps"),
        (Every(env_steps=1_234_567), "a checkpoint every 1,234,567 env steps"),
        (Every(updates=5, minutes=2.5), "a checkpoint every 5 updates or every 2.5 minutes"),
        (Every(minutes=10), "a checkpoint every 10 minutes"),
    ],
)
def test_a_cadence_prints_as_a_sentence(every: Every, text: str):
    assert str(every) == text


@pytest.mark.parametrize(
    ("name", "interval"),
    [("env_steps", 0), ("updates", -1), ("minutes", 0.0), ("minutes", float("nan")), ("minutes", float("inf"))],
)
def test_an_interval_is_a_positive_number(name: str, interval: Any):
    with pytest.raises(UsageError) as caught:
        Every(**{name: interval})

    assert str(caught.value) == f"Every({name}={interval}): an interval is a positive number."
