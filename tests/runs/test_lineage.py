"""The lineage: append-only, chained, a torn last line cut, an edit named."""

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import DamagedError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.runs.lineage import OWN, Lineage, read_lineage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lineage.jsonl"


def written(path: Path, *events: str) -> list[bytes]:
    lineage = Lineage(path)
    for number, event in enumerate(events):
        lineage.append(event, durable=number % 2 == 0, number=number, **FACTS.get(event, {}))
    return path.read_bytes().splitlines(keepends=True)


FACTS = {
    "started": {"run_id": "0" * 32, "notices": []},
    "committed": {"checkpoint": "step_0000000010", "digest": "d"},
    "removed": {"checkpoints": ["step_0000000010"]},
    "resumed": {
        "checkpoint": "step_0000000010",
        "digest": "d",
        "env_steps": 10,
        "trained_s": 1.0,
        "stepped_back": {},
        "accepted": [{"text": "algorithm.lr=1:2"}],
        "amended_leaves": [],
        "reason": None,
        "arithmetic": {},
        "total": None,
        "old_total": None,
        "launch": None,
        "notices": [],
    },
    "stopped": {"trained_s": 1.0, "why": "closed"},
    "finished": {"trained_s": 1.0, "checkpoint": "step_0000000010"},
}


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


@pytest.mark.parametrize("at", range(4))
def test_an_edited_line_is_named_also_if_it_is_the_last(path: Path, at: int):
    lines = written(path, "a", "b", "c", "d")
    lines[at] = lines[at].replace(b'"number":', b'"number":7')
    path.write_bytes(b"".join(lines))

    with pytest.raises(DamagedError) as caught:
        read_lineage(path)

    assert str(caught.value) == f"lineage.jsonl:{at + 1}: its digest does not match its text"


def signed(event: dict[str, Any]) -> bytes:
    """The line of an event whose digest somebody made anew."""
    document = {name: value for name, value in event.items() if name != OWN}
    return canonical.encode({**document, OWN: digest_of(canonical.encode(document))})


def test_a_line_that_was_written_anew_does_not_lead_to_the_next(path: Path):
    lines = written(path, "a", "b", "c")
    path.write_bytes(lines[0] + signed({**json.loads(lines[1]), "number": 7}) + lines[2])

    with pytest.raises(DamagedError, match=r"^lineage\.jsonl:3: does not follow from the line before it$"):
        read_lineage(path)


@pytest.mark.parametrize(("event", "field"), [(event, field) for event in FACTS for field in ("at", *FACTS[event])])
def test_a_field_that_is_missing_or_of_another_kind_is_named(path: Path, event: str, field: str):
    [line] = written(path, event)
    whole = json.loads(line)

    path.write_bytes(signed({name: value for name, value in whole.items() if name != field}))
    with pytest.raises(DamagedError, match=rf"^lineage\.jsonl:1: a field is missing: {field}$"):
        read_lineage(path)
    path.write_bytes(signed({**whole, field: True}))
    with pytest.raises(DamagedError, match=rf"^lineage\.jsonl:1: field {field} is a bool$"):
        read_lineage(path)


def test_what_is_no_event_at_all_is_named(path: Path):
    [line] = written(path, "resumed")
    whole = json.loads(line)

    path.write_bytes(signed({name: value for name, value in whole.items() if name != "event"}))
    with pytest.raises(DamagedError, match=r"^lineage\.jsonl:1: a field is missing: event$"):
        read_lineage(path)
    path.write_bytes(signed({**whole, "accepted": ["x"]}))
    with pytest.raises(DamagedError, match=r"^lineage\.jsonl:1: an acceptance without a text$"):
        read_lineage(path)


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


def test_a_line_that_was_written_and_could_not_be_synced_stays_and_is_followed(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    lineage = Lineage(path)

    def fail(_descriptor: int) -> None:
        raise OSError("a fault of the disk")

    with monkeypatch.context() as disk:
        disk.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="a fault of the disk"):
            lineage.append("started", **FACTS["started"])
    lineage.append("committed", **FACTS["committed"])

    assert [event["event"] for event in read_lineage(path)] == ["started", "committed"]
