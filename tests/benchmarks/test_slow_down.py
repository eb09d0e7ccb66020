"""The slow-down is what the updates after a due boundary took longer than the quiet ones of the same cycle."""

import pytest

pytest.importorskip("jax")

from benchmarks.parts.slow_down import slow_downs


def test_a_cycle_whose_first_update_takes_half_as_long_again_is_five_percent_slower():
    even, slower = [2.0] * 10, [3.0] + [2.0] * 9

    assert slow_downs([*even, *slower, 2.0]) == [0.0, 0.05]
