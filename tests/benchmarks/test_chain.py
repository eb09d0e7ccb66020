"""A link costs what boundaries with one take longer than those that do nothing, in terms of updates without a chain."""

import pytest

pytest.importorskip("jax")
pytest.importorskip("torch")

from benchmarks.parts.chain import Span, cost_of


def training(update: float, *boundaries: float) -> list[Span]:
    """Boundaries of such lengths, with updates between."""
    spans, now = [], 0.0
    for length in boundaries:
        spans.append((now, now + length))
        now += length + update
    return spans


def test_a_link_is_measured_against_boundaries_that_are_not_held():
    plain = [training(100.0, 0.0, 4.0, 0.0, 4.0, 0.0, 4.0)] * 2  # every other one is held
    linked = [training(103.0, 5.0, 5.0, 5.0, 50.0, 5.0)]

    cost = cost_of(linked, plain)

    assert (cost.update, cost.link, cost.between, cost.share) == (100.0, 5.0, 3.0, 0.05)
    assert cost.row == ("100,000", "5,000", "+5.00 %", "+3.00 %", "500,000")


def test_a_training_without_links_costs_nothing():
    plain = [training(100.0, 1.0, 1.0, 1.0)]

    assert cost_of(plain, plain).share == 0.0
