"""Numbers and tables as people read them, documents as programs do."""

import json

import pytest

from perdure.cli import output


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 * 2**29, "1.5 GiB"), (2**50, "1024.0 TiB")],
)
def test_size(size_bytes: int, text: str):
    assert output.size(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (10 * 86400, "10 d")]
)
def test_duration(seconds: float, text: str):
    assert output.duration(seconds) == text


def test_count():
    assert [output.count(1, "leaf"), output.count(2, "leaf"), output.count(1000, "row")] == [
        "1 leaf",
        "2 leaves",
        "1,000 rows",
    ]


def test_table(capsys: pytest.CaptureFixture[str]):
    output.print_table([("A", "B", "C"), ("long", "1", ""), ("x", "10", "z")], right=(1,), indent=" ")

    assert capsys.readouterr().out == " A      B  C\n long   1\n x     10  z\n"


def test_json_has_no_number_that_json_has_not(capsys: pytest.CaptureFixture[str]):
    output.print_json({"a": [float("nan"), float("-inf"), 1.5], 2: (1,)})

    assert json.loads(capsys.readouterr().out) == {"a": ["nan", "-inf", 1.5], "2": [1]}
