"""Learning-rate traces over a total that changes: each policy against its formula, stops in between or not."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import perdure

RATE, EVERY = 3e-4, 10


def trace(run: perdure.Run, until: int) -> list[float]:
    """The learning rates that a script with a linear schedule uses, one an update."""
    step = run.restore(step=0).step
    rates = []
    while step < until:
        rates.append(RATE * (1 - run.progress(step)))
        step += EVERY
        run.boundary(env_steps=step, step=step)
    run.close()
    return rates


def run_of(path: Path, total: Any, schedules: Any = "keep", **options: Any) -> perdure.Run:
    given = {"every": perdure.Every(updates=1), "horizon": "total", "schedules": schedules, **options}
    return perdure.Run(path, config={"total": total}, **given)


def line(start: tuple[int, Fraction], end: tuple[int, Fraction], steps: Sequence[int]) -> list[float]:
    """Rates along a straight line of progress, in exact fractions."""
    (first, low), (last, high) = start, end
    return [float(Fraction(RATE) * (1 - low - (high - low) * Fraction(step - first, last - first))) for step in steps]


def steps(start: int, stop: int) -> range:
    return range(start, stop, EVERY)


ZERO, ONE, HALF = Fraction(0), Fraction(1), Fraction(1, 2)
EXACT: dict[str, Any] = {"rel": 1e-12, "abs": 1e-18}


def test_a_straight_run_goes_down_in_a_straight_line(tmp_path: Path):
    rates = trace(run_of(tmp_path / "x", 200), 200)

    assert rates == pytest.approx(line((0, ZERO), (200, ONE), steps(0, 200)), **EXACT)
    assert rates == [RATE * (1 - step / 200) for step in steps(0, 200)]  # what people write, to the last bit


def test_keep_finishes_the_old_schedule_and_stays_at_its_last_value(tmp_path: Path):
    first = trace(run_of(tmp_path / "x", 200), 100)
    second = trace(run_of(tmp_path / "x", 300), 300)

    assert first + second[:10] == trace(run_of(tmp_path / "straight", 200), 200)
    assert second[10:] == [0.0] * 10


def test_keep_may_end_the_run_before_its_schedule(tmp_path: Path):
    first = trace(run_of(tmp_path / "x", 200), 100)
    shorter = run_of(tmp_path / "x", 150)

    second = trace(shorter, 150)

    assert first + second == trace(run_of(tmp_path / "straight", 200), 150)
    assert shorter.notices == ["the total of steps changed from 200 to 150."]
    assert shorter.is_finished


def test_keep_twice_with_stops_in_between_is_one_schedule(tmp_path: Path):
    pieces = trace(run_of(tmp_path / "x", 200), 50)
    pieces += trace(run_of(tmp_path / "x", 300), 100)
    pieces += trace(run_of(tmp_path / "x", 300), 150)
    pieces += trace(run_of(tmp_path / "x", 400), 250)

    assert pieces == trace(run_of(tmp_path / "straight", 200), 200) + [0.0] * 5


def test_restretch_may_shorten_what_is_left(tmp_path: Path):
    trace(run_of(tmp_path / "x", 200, "restretch"), 100)

    second = trace(run_of(tmp_path / "x", 150, "restretch"), 150)

    assert second == pytest.approx(line((100, HALF), (150, ONE), steps(100, 150)), **EXACT)
    assert second != trace(run_of(tmp_path / "straight", 200), 150)[10:]


def test_a_run_that_was_cut_where_it_stood_goes_on_from_there(tmp_path: Path):
    """Total 100 at step 100, half of the schedule done; then 300: the other half is left for 200 steps."""
    trace(run_of(tmp_path / "x", 200, "restretch"), 100)
    cut = run_of(tmp_path / "x", 100, "restretch")
    assert trace(cut, 100) == []
    assert cut.is_finished

    again = trace(run_of(tmp_path / "x", 300, "restretch"), 300)

    assert again == pytest.approx(line((100, HALF), (300, ONE), steps(100, 300)), **EXACT)


@pytest.mark.parametrize("schedules", ["none", "keep", "restretch"])
def test_a_total_below_the_present_step_is_refused_and_nothing_changes(schedules: str, tmp_path: Path):
    trace(run_of(tmp_path / "x", 200, schedules if schedules != "none" else "keep"), 100)
    before = {path: path.read_bytes() for path in (tmp_path / "x").rglob("*.jsonl")}

    with pytest.raises(perdure.ContractError) as caught:
        run_of(tmp_path / "x", 90, schedules).restore(step=0)

    assert str(caught.value).splitlines()[1:] == [
        "  horizon.total: 200 in the run, 90 here. The run has taken 100 steps already: pass a total of at least that."
    ]
    assert {path: path.read_bytes() for path in before} == before
    with run_of(tmp_path / "x", 100, schedules) as run:  # the twin: at the present step it is taken
        run.restore(step=0)
        assert run.is_finished


def test_restretch_goes_on_from_where_it_stood_to_the_new_end(tmp_path: Path):
    first = trace(run_of(tmp_path / "x", 200, "restretch"), 100)
    second = trace(run_of(tmp_path / "x", 500, "restretch"), 500)

    assert first == trace(run_of(tmp_path / "straight", 200), 100)
    assert second == pytest.approx(line((100, HALF), (500, ONE), steps(100, 500)), **EXACT)
    assert second[0] == RATE * (1 - 100 / 200)  # no jump
    assert second != trace(run_of(tmp_path / "other", 500), 500)[10:]  # and not the schedule of a longer run


def test_restretch_twice_with_stops_in_between(tmp_path: Path):
    trace(run_of(tmp_path / "x", 200, "restretch"), 100)
    pieces = trace(run_of(tmp_path / "x", 500, "restretch"), 200)
    pieces += trace(run_of(tmp_path / "x", 500, "restretch"), 300)
    again = trace(run_of(tmp_path / "x", 400, "restretch"), 350)
    again += trace(run_of(tmp_path / "x", 400, "restretch"), 400)

    assert pieces == pytest.approx(line((100, HALF), (500, ONE), steps(100, 300)), **EXACT)
    assert again == pytest.approx(line((300, Fraction(3, 4)), (400, ONE), steps(300, 400)), **EXACT)


def test_a_restretch_that_was_stopped_before_the_next_commit_gives_the_same_trace(tmp_path: Path):
    trace(run_of(tmp_path / "x", 200, "restretch"), 100)
    assert trace(run_of(tmp_path / "x", 500, "restretch"), 100) == []

    resumed = trace(run_of(tmp_path / "x", 500, "restretch"), 500)

    trace(run_of(tmp_path / "y", 200, "restretch"), 100)
    assert resumed == trace(run_of(tmp_path / "y", 500, "restretch"), 500)


def test_the_policy_may_be_another_one_at_the_next_change(tmp_path: Path):
    trace(run_of(tmp_path / "x", 200, "restretch"), 100)
    trace(run_of(tmp_path / "x", 500, "restretch"), 300)

    kept = trace(run_of(tmp_path / "x", 600, "keep"), 600)

    assert kept == pytest.approx(line((300, Fraction(3, 4)), (500, ONE), steps(300, 500)) + [0.0] * 10, **EXACT)


def test_a_finished_schedule_has_nothing_left_to_stretch(tmp_path: Path):
    trace(run_of(tmp_path / "x", 100, "restretch"), 100)

    assert trace(run_of(tmp_path / "x", 200, "restretch"), 200) == [0.0] * 10


def test_none_grows_freely_and_has_no_progress(tmp_path: Path):
    def go(total: int) -> perdure.Run:
        run = run_of(tmp_path / "x", total, "none")
        run.restore(step=0)
        return run

    with go(100) as run:
        run.boundary(env_steps=100, step=100)
        assert run.is_finished
    with go(200) as run:
        assert not run.is_finished
        assert run.notices == ["the total of steps changed from 100 to 200."]
        with pytest.raises(perdure.UsageError, match=r'^progress: give the Run a horizon and schedules="keep" or'):
            run.progress()
    with pytest.raises(perdure.ContractError, match=r"The run has taken 100 steps already: pass a total of at least"):
        go(50)


def test_nobody_said_what_schedules_do(tmp_path: Path):
    trace(run_of(tmp_path / "x", 200), 100)

    with pytest.raises(perdure.ContractError) as caught:
        run_of(tmp_path / "x", 300, None).restore(step=0)

    assert str(caught.value).splitlines()[1:] == [
        "  horizon.total: 200 in the run, 300 here. The run would end at another step. Say what schedules do: "
        'Run(schedules="none"), "keep" or "restretch" (docs/contract.md; a trainer: --schedules); or pass the saved '
        "total, accept the change, or start a new run.",
        "  To go on all the same: --accept horizon.total=200:300",
    ]
    with run_of(tmp_path / "x", 300, None, accept={"horizon.total": (200, 300)}) as run:
        run.restore(step=0)
        assert run.amended == ("horizon.total=200:300",)


def test_a_total_that_was_accepted_is_the_one_that_later_changes_start_from(tmp_path: Path):
    trace(run_of(tmp_path / "x", 200), 100)
    with run_of(tmp_path / "x", 400, None, accept={"horizon.total": (200, 400)}) as run:
        run.restore(step=0)
        run.boundary(env_steps=110, step=110)

    with run_of(tmp_path / "x", 500, "none") as run:
        run.restore(step=0)

    assert run.notices == ["the total of steps changed from 400 to 500."]


def test_a_finished_run_has_nothing_to_do_and_may_be_given_more(tmp_path: Path):
    trace(run_of(tmp_path / "x", 100, "none"), 0)
    with run_of(tmp_path / "x", 100, "none") as run:
        run.restore(step=0)
        run.boundary(env_steps=100, step=100)
        run.finish()

    with run_of(tmp_path / "x", 100, "none") as run:
        run.restore(step=0)
        assert (run.is_finished, run.notices) == (True, [])
    with run_of(tmp_path / "x", 150, "none") as run:
        run.restore(step=0)
        assert (run.is_finished, run.horizon) == (False, 150)


def test_1e6_and_1000000_are_one_total(tmp_path: Path):
    with run_of(tmp_path / "x", 1e6, None) as run:
        run.restore(step=0)
        assert run.horizon == 1_000_000

    with run_of(tmp_path / "x", 1_000_000, None) as run:
        run.restore(step=0)
        assert run.resumed
