"""One-shot verbs: `perdure.save`, `perdure.load`, `perdure.read`."""

import random
import shutil
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import perdure


class Box:
    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def names(path: Path) -> list[str]:
    """What stands in a directory."""
    return sorted(entry.name for entry in path.iterdir())


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_live_objects_are_restored_in_place_and_values_returned(tmp_path: Path):
    rng = np.random.default_rng(1)
    rng.normal(size=5)
    perdure.save(tmp_path / "c", box=Box(w=np.arange(3.0)), rng=rng, step=7, obs=np.ones(2, np.float32))

    box, target = Box(w=np.zeros(3)), np.random.default_rng(2)
    objects = perdure.load(tmp_path / "c", box=box, rng=target, step=0, obs=np.zeros(2, np.float32))

    assert objects["box"] is box
    assert objects["rng"] is target
    assert box.state["w"].tolist() == [0.0, 1.0, 2.0]
    assert target.normal() == rng.normal()
    assert (objects["step"], objects["obs"].tolist()) == (7, [1.0, 1.0])


def test_a_checkpoint_reads_as_plain_values(tmp_path: Path):
    shared = np.arange(2)
    state = {
        "box": Box(w=np.asfortranarray(np.arange(6.0).reshape(2, 3)), bf16=np.ones(2, ml_dtypes.bfloat16)),
        "plain": {"a": [1, 2.5, None], 3: (True, b"x"), "s": np.float32(1.5)},
        "queue": deque([1, 2], maxlen=3),
        "shared": [shared, {"again": shared}],
    }
    perdure.save(tmp_path / "c", **state)

    read = perdure.read(str(tmp_path / "c"))

    assert list(read) == ["box", "plain", "queue", "shared"]
    assert read["box"]["state"]["w"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert read["box"]["state"]["w"].flags.f_contiguous
    assert read["box"]["state"]["bf16"].dtype == ml_dtypes.bfloat16
    assert read["plain"] == {"a": [1, 2.5, None], 3: (True, b"x"), "s": np.float32(1.5)}
    assert type(read["plain"]["s"]) is np.float32
    assert read["queue"] == {"maxlen": 3, "items": [1, 2]}
    assert read["shared"][0] is read["shared"][1]["again"]
    read["shared"][0][:] = 9
    assert perdure.read(tmp_path / "c")["shared"][0].tolist() == [0, 1]


def test_an_object_that_contains_itself_can_be_read(tmp_path: Path):
    box = Box(x=1)
    box.state["me"] = box
    perdure.save(tmp_path / "c", box=box)

    read = perdure.read(tmp_path / "c")

    assert read["box"]["state"]["x"] == 1
    assert read["box"]["state"]["me"] is read["box"]


def test_reading_needs_no_framework(tmp_path: Path):
    perdure.save(tmp_path / "c", rng=np.random.default_rng(0), x=np.zeros(2), p=random.Random(0))
    program = (
        "import sys, perdure; perdure.read(sys.argv[1]); "
        "print(sorted({'jax', 'flax', 'optax', 'torch', 'ml_dtypes'} & sys.modules.keys()))"
    )

    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "c")], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"


def test_an_existing_path_is_refused_and_untouched(tmp_path: Path):
    perdure.save(tmp_path / "c", x=1)
    before = contents(tmp_path)

    with pytest.raises(perdure.CommitError, match=r"^checkpoint c was not committed: .*c exists\. Earlier checkpoints"):
        perdure.save(tmp_path / "c", x=2)

    assert contents(tmp_path) == before
    assert names(tmp_path) == ["c"]


@pytest.mark.parametrize("kind", ["file", "empty directory"])
def test_whatever_stands_at_the_path_is_refused_and_kept(tmp_path: Path, kind: str):
    (tmp_path / "c").touch() if kind == "file" else (tmp_path / "c").mkdir()

    with pytest.raises(perdure.CommitError, match="exists"):
        perdure.save(tmp_path / "c", x=2)
    assert names(tmp_path) == ["c"]


def test_an_object_that_cannot_be_saved_leaves_nothing(tmp_path: Path):
    with pytest.raises(perdure.UnknownObjectError, match=r"^x: no adapter knows a builtins\.object"):
        perdure.save(tmp_path / "c", x=object())
    with pytest.raises(perdure.UnsupportedLeafError, match=r"^x/a: dtype object cannot be stored exactly"):
        perdure.save(tmp_path / "c", x={"a": np.array([None])})

    assert names(tmp_path) == []


def test_parents_are_made(tmp_path: Path):
    perdure.save(tmp_path / "a" / "b" / "c", x=1)

    assert perdure.read(tmp_path / "a" / "b" / "c") == {"x": 1}
    assert names(tmp_path / "a" / "b") == ["c"]


def test_a_relative_path_and_a_home_directory_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    perdure.save("here", x=1)
    perdure.save("~/there", x=2)

    assert (perdure.read("here"), perdure.read("~/there")) == ({"x": 1}, {"x": 2})
    assert names(tmp_path) == ["here", "there"]


def test_missing_empty_and_damaged_are_three_different_errors(tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    perdure.save(tmp_path / "c", x=np.arange(3))
    data = bytearray((tmp_path / "c" / "x.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "c" / "x.safetensors").write_bytes(data)

    for verb in (perdure.read, perdure.load):
        with pytest.raises(perdure.NoCheckpointError) as missing:
            verb(tmp_path / "typo")
        assert str(missing.value) == f"{tmp_path / 'typo'}: no such directory."
        with pytest.raises(perdure.NoCheckpointError):
            verb(tmp_path / "file")
        with pytest.raises(perdure.DamagedError, match=r"^empty: MANIFEST\.json is missing$"):
            verb(tmp_path / "empty")
        with pytest.raises(perdure.DamagedError, match=r"^c/x\.safetensors: x: bytes .* are not what was written$"):
            verb(tmp_path / "c")
    assert names(tmp_path) == ["c", "empty", "file"]


def test_loading_into_something_else_changes_nothing(tmp_path: Path):
    perdure.save(tmp_path / "c", box=Box(w=np.zeros(2)), rng=np.random.default_rng(0))
    box, rng = Box(w=np.ones(3)), np.random.default_rng(1)
    before = rng.bit_generator.state

    with pytest.raises(perdure.ContractError, match=r"^c: this is not the same run: 1 difference; nothing was changed"):
        perdure.load(tmp_path / "c", box=box, rng=rng)

    assert box.state["w"].tolist() == [1, 1, 1]
    assert rng.bit_generator.state == before


def test_names_that_cannot_be_files_are_refused(tmp_path: Path):
    with pytest.raises(perdure.UsageError, match="differ in case only"):
        perdure.save(tmp_path / "c", rng=1, RNG=2)
    with pytest.raises(perdure.UsageError, match="use a plain identifier"):
        perdure.save(tmp_path / "c", exist_ok=False, **{"../x": 1})

    assert names(tmp_path) == []


def test_the_caller_s_generators_are_not_touched(tmp_path: Path):
    before = repr((random.getstate(), np.random.get_state()))

    perdure.save(tmp_path / "c", x=np.zeros(2))
    perdure.load(tmp_path / "c", x=np.ones(2))
    perdure.read(tmp_path / "c")

    assert repr((random.getstate(), np.random.get_state())) == before


def test_keys_that_name_safetensors_metadata_are_ordinary_keys(tmp_path: Path):
    perdure.save(tmp_path / "c", net={"__metadata__": np.arange(2), "w": np.arange(3)})

    assert perdure.read(tmp_path / "c")["net"]["__metadata__"].tolist() == [0, 1]


def test_save_with_exist_ok_takes_the_same_state_for_done_and_nothing_else(tmp_path):
    target = tmp_path / "checkpoint"
    state = {"a": np.arange(3), "b": {"x": 1}}
    perdure.save(target, exist_ok=True, **state)
    before = target.stat().st_ino
    perdure.save(target, exist_ok=True, **state)

    assert target.stat().st_ino == before
    with pytest.raises(perdure.CommitError, match=r"checkpoint: a checkpoint of another state stands there"):
        perdure.save(target, exist_ok=True, a=np.arange(3), b={"x": 2})
    with pytest.raises(perdure.CommitError):
        perdure.save(target, **state)


def test_save_with_exist_ok_replaces_what_is_damaged_and_leaves_what_is_foreign(tmp_path):
    target, foreign = tmp_path / "checkpoint", tmp_path / "foreign"
    perdure.save(target, a=np.arange(3))
    (target / "a.safetensors").write_bytes(b"")
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("irreplaceable")

    perdure.save(target, exist_ok=True, a=np.arange(3))
    with pytest.raises(perdure.CommitError):
        perdure.save(foreign, exist_ok=True, a=np.arange(3))

    assert perdure.read(target)["a"].tolist() == [0, 1, 2]
    assert (tmp_path / "damaged" / "checkpoint").is_dir()
    assert (foreign / "thesis.txt").read_text() == "irreplaceable"


def test_a_checkpoint_in_memory_is_restored_part_by_part(tmp_path):
    perdure.save(tmp_path / "c", a=np.arange(3), b={"x": 1.5}, c=[1, 2])
    checkpoint = perdure.Checkpoint(tmp_path / "c")
    shutil.rmtree(tmp_path / "c")

    first = checkpoint.load(a=np.zeros(3, int))["a"]
    first += 10
    assert checkpoint.components == ("a", "b", "c")
    assert checkpoint.load(a=np.zeros(3, int), b={"x": 0.0})["a"].tolist() == [0, 1, 2]
    assert checkpoint.read()["b"] == {"x": 1.5}
    assert "c'" in repr(checkpoint)
    with pytest.raises(perdure.UsageError, match=r"\['d'\] are no components; it has \['a', 'b', 'c'\]"):
        checkpoint.load(d=1)
    with pytest.raises(perdure.ContractError, match=r"a: int64 3 in the run, int64 4 here"):
        checkpoint.load(a=np.zeros(4, int))
