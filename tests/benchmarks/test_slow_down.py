"""The slow-down is what the updates after a due boundary took longer than the other ones of the same cycle."""

import pytest

pytest.importorskip("jax")

from benchmarks.parts.slow_down import typical_cycle


def test_a_first_update_that_takes_half_as_long_again_makes_a_cycle_of_ten_five_percent_slower():
    cycle = [3.0] + [2.0] * 9

    assert typical_cycle([*cycle, *cycle, 3.0]).slow_down == 0.05


def test_one_outlier_does_not_count():
    assert typical_cycle([*[2.0] * 10, *[2.0] * 10, *[9.0] + [2.0] * 9]).slow_down == 0.0
