"""`metrics.csv` is the exact image of the metric stream, whatever stood there before."""

import csv
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.driving import Driver

import perdure
from perdure.errors import UsageError
from perdure.sinks import Csv, read_csv

pytestmark = pytest.mark.usefixtures("global_generators")


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path / "run", lambda: Csv())


def lines(driver: Driver) -> list[str]:
    return (driver.directory / "metrics.csv").read_text().splitlines()


def same(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    """Whether rows are the same but for the order of names."""
    return repr([sorted(row.items()) for row in rows]) == repr([sorted(row.items()) for row in others])


def test_rows_are_there_when_the_boundary_returns(driver: Driver):
    with driver.open() as run:
        driver.step(run, loss=0.1, text="a,b")
        assert lines(driver) == ["env_steps,updates,boundary,loss,text", '10,1,1,0.1,"a,b"']
        driver.step(run, loss=float("nan"), text=None)
        assert lines(driver)[2:] == ["20,2,2,nan,None"]


def test_a_new_metric_adds_a_column_at_the_right_and_rows_without_it_are_empty_there(driver: Driver):
    with driver.open() as run:
        driver.step(run, loss=0.5)
        driver.step(run, loss=0.25, a=[1, 2.0], b="x")
        driver.step(run, b="y")

    assert lines(driver) == [
        "env_steps,updates,boundary,loss,a,b",
        "10,1,1,0.5,,",
        '20,2,2,0.25,"[""1"", ""2.0""]",x',
        "30,3,3,,,y",
    ]
    assert same(read_csv(driver.directory / "metrics.csv"), perdure.Run(driver.directory).metrics_rows())
    assert not list(driver.directory.glob(".metrics.csv*"))


@pytest.mark.parametrize("name", ["a,b", 'q"', "new\nline", "\r", "", " ", "=x", "[x", "\u2028", "a\0b"])
def test_any_name_of_a_column_comes_back(driver: Driver, name: str):
    with driver.open() as run:
        driver.step(run, **{name: 1.5})
        driver.step(run, **{name: "\r\n", "other": 1})
        driver.step(run, last=1)

    assert same(read_csv(driver.directory / "metrics.csv"), perdure.Run(driver.directory).metrics_rows())
    assert "sink_failed" not in (driver.directory / "lineage.jsonl").read_text()


def test_a_text_of_any_length_comes_back(driver: Driver):
    limit = csv.field_size_limit()
    with driver.open() as run:
        driver.step(run, text="x" * (limit + 1))
        driver.step(run, loss=0.5)

    assert same(read_csv(driver.directory / "metrics.csv"), perdure.Run(driver.directory).metrics_rows())
    assert len(read_csv(driver.directory / "metrics.csv")) == 2
    assert csv.field_size_limit() == limit


def test_rows_and_columns_that_a_resume_cuts_off_are_gone(driver: Driver):
    with driver.open() as run:
        driver.step(run, loss=0.5)
        driver.step(run, loss=0.5, saved=True)
        driver.step(run, loss=0.5, late=1)
        assert len(lines(driver)) == 4
    with driver.open():
        pass

    assert lines(driver) == ["env_steps,updates,boundary,loss,saved", "10,1,1,0.5,", "20,2,2,0.5,True"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"0.5", b"0.7", 1),
        lambda data: data[:-3],
        lambda data: data + b"30,3,3,9.0\n",
        lambda data: b"",
        None,
    ],
    ids=["edited", "torn", "longer", "emptied", "deleted"],
)
def test_what_is_not_the_exact_image_is_rebuilt(driver: Driver, change: Any):
    with driver.open() as run:
        for _ in range(2):
            driver.step(run, loss=0.5)
    path = driver.directory / "metrics.csv"
    before = path.read_bytes()
    path.unlink() if change is None else path.write_bytes(change(before))
    with driver.open():
        pass

    assert path.read_bytes() == before


def test_the_exact_image_is_left_as_it_is(driver: Driver):
    with driver.open() as run:
        for _ in range(2):
            driver.step(run, loss=0.5)
    before = (driver.directory / "metrics.csv").stat()
    with driver.open():
        after = (driver.directory / "metrics.csv").stat()

    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_sink_that_comes_later_gets_the_rows_from_before(driver: Driver):
    driver.make = None
    with driver.open() as run:
        for _ in range(2):
            driver.step(run, loss=0.5)
    driver.make = Csv
    with driver.open() as run:
        driver.step(run, loss=0.25)

    assert same(read_csv(driver.directory / "metrics.csv"), perdure.Run(driver.directory).metrics_rows())
    assert len(lines(driver)) == 4


def test_a_torn_last_line_is_no_row(driver: Driver):
    with driver.open() as run:
        driver.step(run, loss=0.5)
    with (driver.directory / "metrics.csv").open("a") as file:
        file.write("20,2")

    assert [row["env_steps"] for row in read_csv(driver.directory / "metrics.csv")] == [10]


def test_closed_twice_and_not_begun(tmp_path: Path):
    sink = Csv(tmp_path / "x.csv")
    sink.close()
    sink.close()

    with pytest.raises(UsageError, match=r"^Csv\.row: the sink is not open; `begin` comes first\.$"):
        sink.row(perdure_counters(), {})


def perdure_counters() -> Any:
    from perdure.checkpoint.capture import Counters

    return Counters(1, 1, 1)


def test_another_place(tmp_path: Path):
    driver = Driver(tmp_path / "run", lambda: Csv(tmp_path / "elsewhere.csv"))
    with driver.open() as run:
        driver.step(run, loss=0.5)

    assert [row["loss"] for row in read_csv(tmp_path / "elsewhere.csv")] == [0.5]
