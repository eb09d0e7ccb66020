"""Files of storage-ckpt go through conversions bit for bit: into checkpoints and safetensors, and back."""

import json
from pathlib import Path

import numpy as np
import pytest

import perdure
from perdure.errors import CommitError, DamagedError, UsageError
from perdure.interop import convert
from perdure.interop.kinds.storage_ckpt import KIND
from perdure.interop.recognition import kind_of
from perdure.interop.storage_ckpt import Section, read, write

FIXTURES = Path(__file__).parent.parent / "data" / "storage_ckpt"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text("utf-8"))["files"]
AGAINST_A_MODEL = {"NameMismatch", "SizeMismatch", "MissingSection", "ExtraSection"}
SOUND = sorted(name for name, told in EXPECTED.items() if told["verdict"] != "raise")
UNSOUND = sorted(
    name for name, told in EXPECTED.items() if told["verdict"] == "raise" and told["error"] not in AGAINST_A_MODEL
)


def bits(path: Path) -> list[tuple[str, str, list[bytes]]]:
    """Sections, each kind in its order; what stands between the kinds means nothing to a reader of names."""
    sections = sorted(read(path).sections, key=lambda section: section.kind)
    return [(each.kind, each.name, [array.tobytes() for array in each.arrays()]) for each in sections]


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("between", ["perdure", "safetensors"])
def test_every_sound_file_survives_the_way_there_and_back(tmp_path: Path, name: str, between: str):
    convert(FIXTURES / name, tmp_path / "between", to=between)
    if between == "perdure":
        convert(tmp_path / "between", tmp_path / "back.ckpt")

        assert bits(tmp_path / "back.ckpt") == bits(FIXTURES / name)
        assert dict(read(tmp_path / "back.ckpt").scalars) == dict(read(FIXTURES / name).scalars)
    else:
        held = kind_of(tmp_path / "between").read(tmp_path / "between").tree
        values = [array.tobytes() for name, array in held.items() if name.startswith(("params.", "state."))]
        assert sorted(values) == sorted(arrays[0] for _, _, arrays in bits(FIXTURES / name))


@pytest.mark.parametrize("name", UNSOUND)
def test_every_unsound_file_is_refused_and_nothing_is_written(tmp_path: Path, name: str):
    with pytest.raises(DamagedError if name != "bad_not_a_checkpoint.ckpt" else Exception):
        convert(FIXTURES / name, tmp_path / "new")

    assert list(tmp_path.iterdir()) == []


def test_another_tree_becomes_parameters_and_scalars(tmp_path: Path):
    state = {"layers": [np.ones((2, 3), np.float32), np.array(1.5, np.float32)], "steps": 7, "rate": 0.1}
    perdure.save(tmp_path / "saved", net=state)
    done = convert(tmp_path / "saved", tmp_path / "x.ckpt", component="net")
    written = read(tmp_path / "x.ckpt")

    assert [(each.kind, each.name, each.size) for each in written.sections] == [
        ("P", "layers.0", 6),
        ("P", "layers.1", 1),
    ]
    assert dict(written.scalars) == {"steps": 7.0, "rate": 0.1}
    assert "layers.0 and 1 more: the format has no shapes, so it became flat, in C order." in done.losses
    assert "steps: an integer became a float64, exactly." in done.losses


def test_what_the_format_cannot_hold_is_named(tmp_path: Path):
    state = {
        "half": np.ones(1, np.float16),
        "double": np.ones(1),
        "a b": np.ones(1, np.float32),
        "on": True,
        "n": 2**60,
    }
    perdure.save(tmp_path / "saved", net=state)
    with pytest.raises(UsageError) as caught:
        convert(tmp_path / "saved", tmp_path / "x.ckpt", component="net")

    assert str(caught.value).splitlines()[1:] == [
        "  half: float16 1: the format holds float32 only; --widen makes it float32, exactly.",
        "  double: float64 1: the format holds float32 only.",
        "  'a b': names are not empty, and have no spaces or line ends; rename it with --map.",
        "  on: True: scalars are floats, and whole numbers up to 2^53.",
        f"  n: {2**60}: scalars are floats, and whole numbers up to 2^53.",
    ]
    assert not (tmp_path / "x.ckpt").exists()
    rules = ["double|on|^n$=", "a b=a.b"]
    done = convert(tmp_path / "saved", tmp_path / "x.ckpt", component="net", names=rules, widen=True)
    assert [section.name for section in read(tmp_path / "x.ckpt").sections] == ["half", "a.b"]
    assert "half: float16 became float32, exactly." in done.losses


def test_repeated_names_keep_their_order(tmp_path: Path):
    sections = [Section("P", "0.weight", np.full(2, at, np.float32)) for at in range(3)]
    write(tmp_path / "a.ckpt", sections)
    convert(tmp_path / "a.ckpt", tmp_path / "between")
    convert(tmp_path / "between", tmp_path / "b.ckpt")

    assert list(perdure.read(tmp_path / "between")["params"]) == ["0.weight", "0.weight #2", "0.weight #3"]
    assert (tmp_path / "a.ckpt").read_bytes() == (tmp_path / "b.ckpt").read_bytes()


def test_a_tree_that_only_looks_like_a_file_of_the_format_keeps_its_names(tmp_path: Path):
    torch = pytest.importorskip("torch")
    torch.save({"params": {"w": torch.ones(2, 3)}}, tmp_path / "x.pt")
    done = convert(tmp_path / "x.pt", tmp_path / "x.ckpt")

    assert [section.name for section in read(tmp_path / "x.ckpt").sections] == ["params.w"]
    assert [leaf.name for leaf in done.leaves] == ["params.w"]


def test_what_was_read_stays_although_the_file_is_written_anew(tmp_path: Path):
    write(tmp_path / "x.ckpt", [Section("P", "w", np.ones(5000, np.float32))])
    carried = KIND.read(tmp_path / "x.ckpt")
    with (tmp_path / "x.ckpt").open("r+b") as file:
        file.truncate(30)

    assert carried.tree["params"]["w"].tobytes() == np.ones(5000, np.float32).tobytes()


@pytest.mark.parametrize("to", ["storage-ckpt", "safetensors"])
def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path, to: str):
    (tmp_path / "file").write_bytes(b"")
    write(tmp_path / "x.ckpt", [Section("P", "w", np.ones(5, np.float32))])
    with pytest.raises(CommitError, match="file/new: was not written: "):
        convert(tmp_path / "x.ckpt", tmp_path / "file" / "new", to=to)
