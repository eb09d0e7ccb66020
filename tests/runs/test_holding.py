"""Holding a boundary in memory costs at most a hundredth of the time."""

from perdure.runs.holding import SHARE, Budget


def held(iteration_s: float, cost_s: float, iterations: int) -> list[int]:
    """The iterations whose boundary is held, of a training whose captures take `cost_s`."""
    budget, now, found = Budget(), 1000.0, []
    for at in range(iterations):
        now += iteration_s
        if budget.allows(now):
            budget.spend(now, now + cost_s)
            now += cost_s
            found.append(at)
    return found


def test_slow_iterations_are_all_held():
    assert held(iteration_s=2.0, cost_s=0.01, iterations=5) == [0, 1, 2, 3, 4]


def test_of_fast_ones_as_many_as_a_hundredth_of_the_time_pays_for():
    cost_s, iteration_s = 0.002, 0.01
    found = held(iteration_s, cost_s, 10_000)

    share = len(found) * cost_s / (10_000 * iteration_s)
    assert 0.9 * SHARE < share <= SHARE


def test_a_capture_that_became_slow_is_paid_for_before_the_next():
    budget = Budget()
    budget.spend(0.0, 0.001)
    assert budget.allows(0.2)
    budget.spend(0.2, 1.2)
    assert not budget.allows(100.0)
    assert budget.allows(102.0)


def test_a_spent_budget_allows_nothing():
    assert not Budget(is_spent=True).allows(1e9)
