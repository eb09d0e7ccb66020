"""Retention policies: values that decide purely, over candidates without a disk."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.runs.retention import Candidate, Keep, KeepAny, Ranking


def candidates(*steps: int, **scores: list[float | None]) -> list[Candidate]:
    """One a step; a score of None is missing."""
    return [
        Candidate(
            f"step_{step:010d}",
            step,
            {name: value for name, values in scores.items() if (value := values[at]) is not None},
        )
        for at, step in enumerate(steps)
    ]


def kept(keep: Keep | KeepAny, given: list[Candidate]) -> list[int]:
    """The steps of what stays, sorted."""
    return sorted(int(name.removeprefix("step_")) for name in keep.reasons(given))


def test_by_default_only_the_newest_stays() -> None:
    assert kept(Keep(), candidates(1, 2, 3)) == [3]


def test_nothing_is_kept_of_nothing() -> None:
    assert Keep(last=3, every=2, best=1, metric="x").reasons([]) == {}


@pytest.mark.parametrize(("last", "steps"), [(1, [3]), (2, [2, 3]), (3, [1, 2, 3]), (9, [1, 2, 3])])
def test_the_last_so_many(last: int, steps: list[int]) -> None:
    assert kept(Keep(last=last), candidates(1, 2, 3)) == steps


def test_the_order_in_which_candidates_come_is_no_matter() -> None:
    assert kept(Keep(last=2), candidates(3, 1, 2)) == [2, 3]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([0, 50, 100, 150, 200, 250], [0, 100, 200, 250]),
        ([30, 60, 90, 120, 150, 180, 210], [30, 120, 210]),
        ([99, 100, 101, 199, 200], [99, 100, 200]),
        ([5, 1_000_000], [5, 1_000_000]),
    ],
)
def test_the_first_at_or_past_each_multiple(steps: list[int], expected: list[int]) -> None:
    """And the newest, as always."""
    assert kept(Keep(every=100), candidates(*steps)) == expected


def test_spacing_decides_the_same_after_each_commit_as_at_the_end() -> None:
    """What was removed on the way does not change what counts as first."""
    steps, there = [7 * number for number in range(60)], []
    for step in steps:
        there = [*there, *candidates(step)]
        reasons = Keep(every=50).reasons(there)
        there = [candidate for candidate in there if candidate.name in reasons]

    assert [candidate.env_steps for candidate in there] == kept(Keep(every=50), candidates(*steps))


@pytest.mark.parametrize(("mode", "expected"), [("max", [2, 4, 5]), ("min", [1, 3, 5])])
def test_the_best_so_many(mode: str, expected: list[int]) -> None:
    keep = Keep(best=2, metric="r", mode=mode)  # type: ignore[arg-type]

    assert kept(keep, candidates(1, 2, 3, 4, 5, r=[-1.0, 9.0, 0.0, 7.0, 3.0])) == expected


@pytest.mark.parametrize("mode", ["max", "min"])
def test_of_equal_ones_the_newer_is_the_better(mode: str) -> None:
    keep = Keep(best=1, metric="r", mode=mode)  # type: ignore[arg-type]

    assert kept(keep, candidates(1, 2, 3, 4, r=[5, 5.0, 5, None])) == [3, 4]


@pytest.mark.parametrize("mode", ["max", "min"])
def test_nan_and_missing_scores_are_never_the_best(mode: str) -> None:
    keep = Keep(best=2, metric="r", mode=mode)  # type: ignore[arg-type]
    scored = candidates(1, 2, 3, 4, 5, r=[math.nan, 1.0, None, 2.0, math.nan], other=[9.0] * 5)

    assert kept(keep, scored) == [2, 4, 5]


def test_without_any_score_the_newest_stays() -> None:
    assert kept(Keep(best=3, metric="r"), candidates(1, 2, 3)) == [3]
    assert kept(Keep(best=3, metric="r"), candidates(1, 2, r=[math.nan, math.nan])) == [2]


def test_infinities_and_large_integers_are_compared_exactly() -> None:
    """Whatever a manifest holds, retention does not fail."""
    scores = [math.inf, 2**53 + 1, 2**53, 10**400, -math.inf]

    assert kept(Keep(best=2, metric="r"), candidates(1, 2, 3, 4, 5, r=scores)) == [1, 4, 5]
    assert kept(Keep(best=1, metric="r", mode="min"), candidates(1, 2, 3, 4, 5, 6, r=[*scores, None])) == [5, 6]
    assert kept(Keep(best=1, metric="r"), candidates(1, 2, 3, r=[2**53 + 1, 2**53, None])) == [1, 3]


def test_pinned_ones_stay_and_take_no_place_of_others() -> None:
    scored = candidates(1, 2, 3, 4, r=[1.0, 2.0, 3.0, 4.0])
    scored[0] = replace(scored[0], pinned=True)

    assert Keep(last=2).reasons(scored) == {
        "step_0000000001": "pinned",
        "step_0000000003": "one of the last 2",
        "step_0000000004": "one of the last 2",
    }


def test_reasons_are_said() -> None:
    reasons = Keep(last=1, every=10, best=1, metric="r").reasons(candidates(3, 12, 14, 17, r=[0.0, 1.0, 5.0, 2.0]))

    assert reasons == {
        "step_0000000003": "the first at or past a multiple of 10 env-steps",
        "step_0000000012": "the first at or past a multiple of 10 env-steps",
        "step_0000000014": "one of the best 1 by r",
        "step_0000000017": "one of the last 1",
    }
    assert Keep(every=10).reasons(candidates(3, 4))["step_0000000004"] == "the newest"


def test_policies_are_joined() -> None:
    scored = candidates(1, 2, 3, 4, 5, r=[5.0, 1.0, 3.0, 2.0, 4.0], loss=[5.0, 1.0, 3.0, 2.0, 4.0])
    best, least = Keep(best=1, metric="r"), Keep(best=1, metric="loss", mode="min")
    joined = best | least | Keep(last=2)

    assert kept(joined, scored) == [1, 2, 4, 5]
    assert kept(best | (least | Keep(last=2)), scored) == [1, 2, 4, 5]
    assert joined.policies == (best, least, Keep(last=2))
    assert joined.reasons(scored)["step_0000000001"] == "one of the best 1 by r"


def test_what_policies_call_best_is_told_once() -> None:
    best, least = Keep(best=1, metric="r"), Keep(best=2, metric="loss", mode="min")

    assert Keep(last=2).rankings == ()
    assert (best | least | Keep(best=3, metric="r")).rankings == (Ranking("r", "max"), Ranking("loss", "min"))


def test_a_joined_policy_shares_no_file_as_often_as_its_strictest_part_says() -> None:
    assert (Keep(last=1) | Keep(last=2)).full_every is None
    assert (Keep(last=1, full_every=6) | Keep(full_every=4)).full_every == 4


@pytest.mark.parametrize(
    ("keep", "sentence"),
    [
        (Keep(), "keep only the newest"),
        (Keep(last=2), "keep the last 2"),
        (Keep(every=50_000), "keep one every 50,000 env-steps"),
        (Keep(best=1, metric="return"), "keep the best 1 by return (max)"),
        (
            Keep(last=2, every=10, best=3, metric="loss", mode="min"),
            "keep the last 2 and one every 10 env-steps and the best 3 by loss (min)",
        ),
        (Keep(last=1, full_every=5), "keep the last 1; every 5. shares no file"),
        (Keep(last=1) | Keep(every=5), "keep the last 1; keep one every 5 env-steps"),
    ],
)
def test_a_policy_reads_as_a_sentence(keep: Keep | KeepAny, sentence: str) -> None:
    assert str(keep) == sentence


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"last": 0}, r"Keep\(last=0\): a whole number from 1"),
        ({"last": True}, r"Keep\(last=True\): a whole number from 1"),
        ({"every": -5}, r"Keep\(every=-5\)"),
        ({"every": 1.5}, r"Keep\(every=1\.5\)"),
        ({"best": 1}, r"best=… and metric=… go together"),
        ({"metric": "return"}, r"best=… and metric=… go together"),
        ({"best": 0, "metric": "return"}, r"Keep\(best=0\)"),
        ({"mode": "most"}, r"Keep\(mode='most'\): 'max' or 'min'"),
        ({"full_every": 0}, r"Keep\(full_every=0\)"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Keep(**arguments)


SCORES = st.none() | st.floats() | st.integers(-(10**30), 10**30)
POLICIES = st.builds(
    lambda last, every, best, mode: Keep(last, every, best, None if best is None else "r", mode),
    st.none() | st.integers(1, 5),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 4),
    st.sampled_from(["max", "min"]),
)


@given(
    st.lists(st.tuples(st.integers(0, 200), SCORES, st.booleans()), min_size=1, unique_by=lambda entry: entry[0]),
    POLICIES,
    POLICIES,
)
def test_whatever_the_policy_the_newest_and_the_pinned_stay_and_nothing_is_made_up(
    entries: list, first: Keep, second: Keep
) -> None:
    """A joined policy keeps what either keeps."""
    given_ = [
        Candidate(f"step_{step:010d}", step, {} if score is None else {"r": score}, pinned)
        for step, score, pinned in entries
    ]
    newest = max(given_, key=lambda candidate: candidate.env_steps)
    for keep in (first, second, first | second):
        reasons = keep.reasons(given_)
        assert newest.name in reasons
        assert {candidate.name for candidate in given_ if candidate.pinned} <= reasons.keys()
        assert reasons.keys() <= {candidate.name for candidate in given_}
        assert keep.reasons([candidate for candidate in given_ if candidate.name in reasons]).keys() == reasons.keys()
    assert (first | second).reasons(given_).keys() == first.reasons(given_).keys() | second.reasons(given_).keys()
