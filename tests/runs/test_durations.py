"""Spans of time as people write them."""

import subprocess
import sys

import pytest

from perdure.errors import UsageError
from perdure.runs.durations import process_age_s, seconds


@pytest.mark.parametrize(
    ("text", "span_s"),
    [
        *[("3h55m", 14100), ("90s", 90), ("1d2h", 93600), ("1h1m1s", 3661), ("45m", 2700), (" 2h ", 7200)],
        *[("120", 120), ("0.5", 0.5), (30, 30), (2.5, 2.5)],
    ],
)
def test_spans(text: str | float, span_s: float):
    assert seconds("x", text) == span_s


@pytest.mark.parametrize("text", ["", "h", "3 hours", "5m3h", "-1", "0", 0, -2.0, True, "nan", "inf", "3h55", None])
def test_anything_else_is_refused(text: str | float):
    with pytest.raises(UsageError, match=r"^--stop-after=.*: a span of time such as '3h55m', '90s' or '1d2h'"):
        seconds("--stop-after", text)


def test_a_process_is_as_old_as_its_parent_says():
    code = "import time; time.sleep(0.3); from perdure.runs.durations import process_age_s; print(process_age_s())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert 0.25 < float(result.stdout) < process_age_s()
