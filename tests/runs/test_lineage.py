"""The lineage: append-only, chained, a torn last line cut, an edit named."""

from pathlib import Path

import pytest

from perdure.errors import DamagedError
from perdure.format.digests import digest_of
from perdure.runs.lineage import Lineage, read_lineage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lineage.jsonl"


def written(path: Path, *events: str) -> list[bytes]:
    lineage = Lineage(path)
    for number, event in enumerate(events):
        lineage.append(event, durable=number % 2 == 0, number=number)
    return path.read_bytes().splitlines(keepends=True)


def test_events_come_back_in_order_with_their_facts(path: Path):
    written(path, "started", "committed", "finished")

    events = read_lineage(path)

    assert [(event["event"], event["number"]) for event in events] == [
        ("started", 0),
        ("committed", 1),
        ("finished", 2),
    ]
    assert all(event["at"].endswith("+00:00") for event in events)


def test_each_line_bears_the_digest_of_the_line_before(path: Path):
    lines = written(path, "a", "b", "c")

    assert [event["previous"] for event in read_lineage(path)] == [None, digest_of(lines[0]), digest_of(lines[1])]


def test_a_later_process_goes_on_with_the_chain(path: Path):
    written(path, "a", "b")
    written(path, "c")

    assert [event["event"] for event in read_lineage(path)] == ["a", "b", "c"]


def test_no_file_is_no_history(path: Path):
    assert read_lineage(path) == []


@pytest.mark.parametrize("kept", [1, 10, -1])
def test_a_torn_last_line_is_left_out_cut_off_and_the_chain_goes_on(path: Path, kept: int):
    lines = written(path, "a", "b", "c")
    torn = lines[2][:kept]
    path.write_bytes(lines[0] + lines[1] + torn)

    assert [event["event"] for event in read_lineage(path)] == ["a", "b"]

    lineage = Lineage(path)
    assert lineage.torn_bytes == len(torn)
    lineage.append("d")
    assert [event["event"] for event in read_lineage(path)] == ["a", "b", "d"]


def test_a_file_that_is_nothing_but_torn_begins_anew(path: Path):
    path.write_bytes(b'{"at":')

    lineage = Lineage(path)
    lineage.append("a")

    assert lineage.torn_bytes == 6
    assert [event["event"] for event in read_lineage(path)] == ["a"]


def test_an_edited_line_is_found_and_the_first_that_does_not_follow_named(path: Path):
    lines = written(path, "a", "b", "c", "d")
    path.write_bytes(lines[0] + lines[1].replace(b'"number":1', b'"number":7') + lines[2] + lines[3])

    with pytest.raises(DamagedError) as caught:
        read_lineage(path)

    assert str(caught.value) == "lineage.jsonl:3: does not follow from the line before it"


@pytest.mark.parametrize(
    "keep", [[0, 2, 3], [0, 1, 1, 2, 3], [0, 2, 1, 3], [1, 2, 3]], ids=["removed", "doubled", "swapped", "first"]
)
def test_removed_inserted_and_swapped_lines_are_found(path: Path, keep: list[int]):
    lines = written(path, "a", "b", "c", "d")
    path.write_bytes(b"".join(lines[at] for at in keep))

    with pytest.raises(DamagedError, match=r"^lineage\.jsonl:\d: does not follow from the line before it$"):
        read_lineage(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{}x\n", "not canonical JSON"),
        (b'{ "a":1}\n', "not in canonical form"),
        (b"[]\n", "does not follow"),
        (b"\n", "not canonical"),
    ],
)
def test_a_line_that_is_no_event_is_named(path: Path, line: bytes, message: str):
    lines = written(path, "a", "b")
    path.write_bytes(lines[0] + line + lines[1])

    with pytest.raises(DamagedError, match=rf"^lineage\.jsonl:2: {message}"):
        read_lineage(path)
