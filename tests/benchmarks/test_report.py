"""The report says what was found, and the limit only of what was missed."""

import pytest
from benchmarks.common.report import Part, Target, number, render, time_table
from benchmarks.common.timing import Sample


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0123, "0.012"), (0.5, "0.500"), (1.234, "1.23"), (12.34, "12.3"), (1234.5, "1,234")],
)
def test_three_significant_digits(value: float, text: str):
    assert number(value) == text


def test_a_ratio_is_taken_of_the_row_that_is_named():
    lines = time_table({"ours": Sample((0.002,)), "theirs": Sample((0.01,))}, ratio_to="ours").splitlines()

    assert lines[0] == "| work | median, ms | first quartile | third quartile | of ours |"
    assert lines[2:] == ["| ours | 2.00 | 2.00 | 2.00 | 1.00 × |", "| theirs | 10.0 | 10.0 | 10.0 | 5.00 × |"]


def test_only_a_missed_target_names_its_limit():
    met = Target("saving", "≤ 1 s", "0.5 s", is_met=True, limit="no limit")
    missed = Target("loading", "≤ 1 s", "2 s", is_met=False, limit="the disk.")

    text = render("It", {"date": "today"}, [Part("One", "Words.", [], [met, missed])])

    assert "| saving | ≤ 1 s | 0.5 s | met |" in text
    assert "| loading | ≤ 1 s | 2 s | **not met** |" in text
    assert "- **loading, ≤ 1 s**: the disk." in text
    assert "no limit" not in text
