"""The metric stream: exact values, one row a boundary, cut back to what the checkpoint counted."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from perdure.checkpoint.capture import Counters
from perdure.errors import UsageError
from perdure.format.digests import digest_of
from perdure.runs.metrics import MetricStream, encode_row, read_metrics


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def append(stream: MetricStream, *numbers: int) -> None:
    for number in numbers:
        stream.append(Counters(10 * number, number, number), {"return": number / 2})


def boundaries(path: Path) -> list[int]:
    return [row["boundary"] for row in read_metrics(path)]


def test_a_row_holds_the_counters_and_the_metrics(path: Path):
    stream = MetricStream(path)
    append(stream, 1, 2)
    stream.close()

    assert read_metrics(path) == [
        {"boundary": 1, "env_steps": 10, "updates": 1, "return": 0.5},
        {"boundary": 2, "env_steps": 20, "updates": 2, "return": 1.0},
    ]
    assert path.read_bytes().splitlines()[0] == b'{"boundary":1,"env_steps":10,"return":0.5,"updates":1}'


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (1, 1),
        (2**70, 2**70),
        (0.1, 0.1),
        (-0.0, -0.0),
        (float("nan"), float("nan")),
        (float("-inf"), float("-inf")),
        (True, True),
        (None, None),
        ("text", "text"),
        ([1, [2.0, None]], [1, [2.0, None]]),
        ((1, 2), [1, 2]),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.asarray(2.5), 2.5),
        (np.arange(3), [0, 1, 2]),
        (np.array([[1.5], [float("inf")]]), [[1.5], [float("inf")]]),
        (ml_dtypes.bfloat16(1.5), 1.5),
    ],
)
def test_numbers_texts_and_arrays_of_them_come_back(path: Path, value: Any, back: Any):
    stream = MetricStream(path)
    stream.append(Counters(1, 1, 1), {"x": value})
    stream.close()

    found = read_metrics(path)[0]["x"]
    assert (type(found), repr(found)) == (type(back), repr(back))


@pytest.mark.jax
def test_jax_numbers_and_arrays_come_back(path: Path):
    import jax.numpy as jnp

    stream = MetricStream(path)
    stream.append(Counters(1, 1, 1), {"x": jnp.float32(0.5), "y": jnp.arange(2)})
    stream.close()

    assert [read_metrics(path)[0][name] for name in "xy"] == [0.5, [0, 1]]


@pytest.mark.parametrize("name", ["boundary", "env_steps", "updates", 3])
def test_a_reserved_or_impossible_name_is_refused(name: Any):
    with pytest.raises(UsageError) as caught:
        encode_row(Counters(1, 1, 1), {name: 0.5})

    assert str(caught.value) == (
        f"metric {name!r}: a metric's name is text, and none of ['boundary', 'env_steps', 'updates']."
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"a": 1}, "dict"),
        ([{"a": 1}], "dict"),
        (b"x", "bytes"),
        (1j, "complex"),
        ({1}, "set"),
        (object(), "object"),
        (np.complex64(1), "complex"),
        (np.longdouble(1), "longdouble"),
    ],
    ids=["dict", "dict in a list", "bytes", "complex", "set", "object", "complex64", "longdouble"],
)
def test_any_other_value_is_refused_and_nothing_written(path: Path, value: Any, kind: str):
    message = rf"^metric 'x': a {kind} is no number, text, boolean, None or list of them\.$"

    with closing(MetricStream(path)) as stream, pytest.raises(UsageError, match=message):
        stream.append(Counters(1, 1, 1), {"ok": 1, "x": value})
    assert path.read_bytes() == b""


def test_the_mark_counts_every_byte_and_bears_their_digest(path: Path):
    stream = MetricStream(path)
    append(stream, 1, 2)

    assert stream.mark() == {"offset": path.stat().st_size, "digest": digest_of(path.read_bytes())}
    stream.close()


def test_rows_after_the_mark_are_cut_off_and_said(path: Path):
    stream = MetricStream(path)
    append(stream, 1, 2)
    mark, kept = stream.mark(), path.read_bytes()
    append(stream, 3, 4)
    stream.close()
    extra = path.stat().st_size - len(kept)

    later = MetricStream(path)
    said = later.cut_back(mark)
    assert path.read_bytes() == kept
    append(later, 3)

    assert said == f"metrics.jsonl: {extra} bytes of rows after the checkpoint were cut off."
    assert boundaries(path) == [1, 2, 3]
    assert later.mark() == {"offset": path.stat().st_size, "digest": digest_of(path.read_bytes())}
    later.close()


def test_a_stream_that_is_as_the_checkpoint_left_it_stays(path: Path):
    stream = MetricStream(path)
    append(stream, 1)
    mark = stream.mark()
    stream.close()

    later = MetricStream(path)
    assert later.cut_back(mark) is None
    assert later.mark() == mark
    later.close()


def test_a_torn_last_row_is_cut_off(path: Path):
    stream = MetricStream(path)
    append(stream, 1)
    mark = stream.mark()
    stream.close()
    path.write_bytes(path.read_bytes() + b'{"boundary":2,"env')

    assert boundaries(path) == [1]
    later = MetricStream(path)
    assert later.cut_back(mark) is not None
    later.close()
    assert boundaries(path) == [1]


def altered(data: bytes) -> bytes:
    return data.replace(b"0.5", b"0.7", 1)


@pytest.mark.parametrize(
    "change", [altered, lambda data: data[:-3], lambda data: b""], ids=["edited", "cut", "emptied"]
)
def test_an_altered_stream_is_set_aside_never_overwritten(path: Path, change: Any):
    stream = MetricStream(path)
    append(stream, 1, 2)
    mark = stream.mark()
    stream.close()
    changed = change(path.read_bytes())
    path.write_bytes(changed)

    later = MetricStream(path)
    said = later.cut_back(mark)
    append(later, 3)
    later.close()

    assert said == (
        f"metrics.jsonl: has {len(changed)} bytes that are not the {mark['offset']} which the checkpoint counted; "
        "set aside as metrics.jsonl.altered.1, a new stream begins."
    )
    assert path.with_name("metrics.jsonl.altered.1").read_bytes() == changed
    assert boundaries(path) == [3]


def test_what_was_set_aside_before_is_kept(path: Path):
    path.with_name("metrics.jsonl.altered.1").write_text("older")
    path.write_text("not rows")

    stream = MetricStream(path)
    stream.cut_back({"offset": 4, "digest": digest_of(b"rows")})
    stream.close()

    assert path.with_name("metrics.jsonl.altered.1").read_text() == "older"
    assert path.with_name("metrics.jsonl.altered.2").read_text() == "not rows"


def test_without_a_mark_all_rows_go(path: Path):
    stream = MetricStream(path)
    append(stream, 1)

    assert stream.cut_back(None) is not None
    append(stream, 1)
    stream.close()

    assert boundaries(path) == [1]


def test_no_file_is_no_rows(path: Path):
    assert read_metrics(path) == []


def test_rows_are_plain_json_lines_for_every_other_reader(path: Path):
    stream = MetricStream(path)
    stream.append(Counters(1, 1, 1), {"x": float("nan"), "y": 0.5})
    stream.close()

    row = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert (row["x"], row["y"]) == ({"float": "7ff8000000000000"}, 0.5)
