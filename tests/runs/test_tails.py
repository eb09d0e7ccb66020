"""The last lines of a file, whatever is before them; and which metric is the return."""

import json
import math
from pathlib import Path

import pytest

from perdure.runs.tails import last_documents, last_value, return_name


def write(path: Path, *rows: object, tail: bytes = b"") -> Path:
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows) + tail)
    return path


def test_the_newest_come_first_and_a_torn_line_is_left_out(tmp_path: Path):
    path = write(tmp_path / "rows", {"a": 1}, {"a": 2}, tail=b'{"a": 3')

    assert list(last_documents(path)) == [{"a": 2}, {"a": 1}]


def test_a_line_that_is_cut_by_the_tail_s_beginning_is_left_out(tmp_path: Path):
    path = write(tmp_path / "rows", *({"a": number} for number in range(10, 100)))

    assert list(last_documents(path, 25)) == [{"a": 99}, {"a": 98}]
    assert len(list(last_documents(path, 10**6))) == 90


def test_what_is_no_document_is_passed_over(tmp_path: Path):
    path = write(tmp_path / "rows", {"a": 1}, [2], 3, tail=b"\xff\n{}x\n")

    assert list(last_documents(path)) == [{"a": 1}]
    assert list(last_documents(tmp_path / "none")) == []
    assert list(last_documents(write(tmp_path / "empty"))) == []


def test_only_the_tail_of_a_long_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "rows", *({"return": float(number)} for number in range(100_000)))
    decoded = []
    monkeypatch.setattr("perdure.runs.tails.json.loads", lambda line: decoded.append(line) or {"return": 1.0})
    last_value(path)

    assert path.stat().st_size > 1 << 20
    assert 0 < len(decoded) < 5000


def test_the_newest_row_that_has_the_metric_counts(tmp_path: Path):
    path = write(
        tmp_path / "rows", {"eval/return": 1.0, "loss": 0.5}, {"eval/return": 2, "loss": 0.25}, {"loss": 0.125}
    )

    assert last_value(path) == ("eval/return", 2)
    assert last_value(path, "loss") == ("loss", 0.125)
    assert last_value(path, "other") is None
    assert last_value(tmp_path / "none") is None


def test_a_nan_is_a_value_and_text_is_none(tmp_path: Path):
    path = write(tmp_path / "rows", {"return": {"float": "7ff8000000000000"}}, {"return": "good"}, {"return": True})
    told = last_value(path)

    assert told is not None
    assert math.isnan(told[1])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["loss", "entropy"], None),
        ([], None),
        (["return"], "return"),
        (["reward", "return"], "return"),
        (["rollout/return_mean", "eval/return_mean", "eval/return_std", "eval/return_max"], "eval/return_mean"),
        (
            ["rollout_batch/reward/mean", "eval/episode_reward_mean", "eval/episode_reward_p90"],
            "eval/episode_reward_mean",
        ),
        (["returned", "rewarding"], None),
        (["rollout/ep_len_mean", "rollout/ep_rew_mean", "train/loss"], "rollout/ep_rew_mean"),
        (["returns", "episode_returns"], "returns"),
        (["b/return", "a/return"], "a/return"),
        (["return_std", "return_min", "reward_scale"], None),
        (["episodicReturn", "return of episodes"], "return of episodes"),
    ],
)
def test_which_metric_is_the_return(names: list[str], expected: str | None):
    assert return_name(names) == expected
