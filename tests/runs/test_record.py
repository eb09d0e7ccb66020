"""`run.json`: who the run is, proven by its own digest."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import DamagedError, NoRunError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.runs.record import RunRecord, new_record, read_record, write_record

CONTRACT = {"algorithm": {"lr": 0.1, "big": 2**70, "limit": float("inf"), "zero": -0.0}, "seed": {"seed": 1}}


def record() -> RunRecord:
    return new_record({"kind": "trainer", "name": "ppo", "config": {"lr": 0.1}}, CONTRACT, {"python": "3"})


def test_a_record_comes_back_equal(tmp_path: Path):
    written = record()
    write_record(tmp_path / "run.json", written)

    assert read_record(tmp_path / "run.json") == written
    assert repr(read_record(tmp_path / "run.json").contract["algorithm"]["zero"]) == "-0.0"


def test_a_fork_s_record_comes_back_with_its_parent(tmp_path: Path):
    parent = {"run_id": "ab" * 16, "checkpoint": "step_0000000010", "digest": digest_of(b"a manifest")}
    write_record(tmp_path / "run.json", replace(record(), parent=parent))

    assert read_record(tmp_path / "run.json").parent == parent
    assert record().parent is None


def test_ids_are_random_and_independent_of_every_seed():
    ids = {record().run_id for _ in range(20)}

    assert len(ids) == 20
    assert all(len(run_id) == 32 and set(run_id) <= set("0123456789abcdef") for run_id in ids)


def test_without_a_launch_the_script_s_own_command_line_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started_in = str(Path.cwd())
    monkeypatch.chdir(tmp_path)  # a script may change its directory before it opens a run
    monkeypatch.setattr(sys, "orig_argv", ["python3", "train.py", "--lr", "0.1"])

    launch = new_record(None, {}, {}).launch

    assert launch == {"kind": "script", "argv": [sys.executable, "train.py", "--lr", "0.1"], "cwd": started_in}


def test_writing_leaves_no_temporary_file(tmp_path: Path):
    write_record(tmp_path / "run.json", record())
    write_record(tmp_path / "run.json", record())

    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_missing_directory_and_missing_record_are_told_apart(tmp_path: Path):
    with pytest.raises(NoRunError) as no_directory:
        read_record(tmp_path / "typo" / "run.json")
    with pytest.raises(NoRunError) as no_record:
        read_record(tmp_path / "run.json")

    assert str(no_directory.value) == (
        f"{tmp_path / 'typo'}: no such directory. Check the spelling; `perdure ls` lists runs."
    )
    assert str(no_record.value) == f"{tmp_path}: not a run (no run.json in it). Check the spelling."


def test_every_flipped_bit_is_damage(tmp_path: Path):
    path = tmp_path / "run.json"
    write_record(path, replace(record(), launch={"kind": "script"}, contract={"seed": {"seed": 1}}))
    data = path.read_bytes()

    for at in range(0, 8 * len(data), 5):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedError, match=r"run\.json: "):
            read_record(path)


def test_an_edit_is_told_with_the_way_out(tmp_path: Path):
    path = tmp_path / "run.json"
    write_record(path, record())
    path.write_bytes(path.read_bytes().replace(b'"lr":0.1', b'"lr":0.2'))

    with pytest.raises(DamagedError) as caught:
        read_record(path)

    assert str(caught.value) == (
        f"{path}: its digest does not match its text. The checkpoints can still be read with perdure.read."
    )


def resigned(path: Path, **change: Any) -> None:
    document = {**json.loads(path.read_bytes()), **change}
    del document["digest"]
    document = {name: value for name, value in document.items() if value is not ...}
    path.write_bytes(canonical.encode({**document, "digest": digest_of(canonical.encode(document))}))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"version": 1}, id="a version from the future"),
        pytest.param({"version": False}, id="a version that is no number"),
        pytest.param({"more": 1}, id="an unknown field"),
        pytest.param({"launch": ...}, id="a missing field"),
        pytest.param({"run_id": 5}, id="a mistyped id"),
        pytest.param({"launch": "python train.py"}, id="a mistyped launch"),
        pytest.param({"contract": []}, id="a mistyped contract"),
        pytest.param({"parent": "step_0000000010"}, id="a mistyped parent"),
        pytest.param({"parent": ...}, id="no parent, not even null"),
        pytest.param({"contract": {"seed": {"seed": [1]}}}, id="a contract with a list"),
    ],
)
def test_another_document_with_a_digest_of_its_own_is_refused(tmp_path: Path, change: dict[str, Any]):
    path = tmp_path / "run.json"
    write_record(path, record())
    resigned(path, **change)

    with pytest.raises(DamagedError, match=r"run\.json"):
        read_record(path)


@pytest.mark.parametrize("data", [b"", b"[]\n", b"1\n", b"null\n", b'"text"\n', b"{}\n"])
def test_another_document_is_refused(tmp_path: Path, data: bytes):
    (tmp_path / "run.json").write_bytes(data)

    with pytest.raises(DamagedError, match=r"run\.json"):
        read_record(tmp_path / "run.json")
