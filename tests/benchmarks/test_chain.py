"""The share of a link is all of its boundary, as a part of an update without a chain."""

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


def test_a_link_counts_with_all_of_its_boundary_as_a_part_of_updates_without_a_chain():
    plain = [training(100.0, 0.0, 4.0, 0.0, 4.0, 0.0, 4.0, 0.0)] * 2  # every other one is held
    linked = [training(103.0, 5.0, 5.0, 5.0, 50.0, 5.0)]

    cost = cost_of(linked, plain)

    assert (cost.update, cost.link, cost.plain, cost.between, cost.share) == (100.0, 5.0, 0.0, 3.0, 0.05)
    assert cost.row == ("100,000", "5,000", "0", "+5.00 %", "+3.00 %", "500,000")
