"""Every file of the specification's own gets exactly the verdict that stands in its expected.json."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.errors import ContractError, DamagedError
from perdure.interop.storage_ckpt import StorageCheckpoint, StorageCkptError, is_storage_ckpt, read
from perdure.interop.storage_ckpt.matching import Wanted, check_sections

DATA = Path(__file__).parents[2] / "data" / "storage_ckpt"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
FILES: dict[str, Any] = EXPECTED["files"]
GOOD = [name for name, file in FILES.items() if file["verdict"] == "ok"]
BAD = [name for name, file in FILES.items() if file["verdict"] == "raise"]


def checked(name: str) -> StorageCheckpoint:
    """The file, read and compared with its model."""
    checkpoint = read(DATA / name)
    if "model" in FILES[name]:
        check_sections(checkpoint, [Wanted(*each) for each in EXPECTED["models"][FILES[name]["model"]]])
    return checkpoint


def sha256(array: np.ndarray | None) -> str | None:
    return None if array is None else hashlib.sha256(array.tobytes()).hexdigest()


def test_all_files_are_judged():
    assert {path.name for path in DATA.glob("*.ckpt")} == FILES.keys()
    assert {file["verdict"] for file in FILES.values()} == {"ok", "raise"}
    for name, file in FILES.items():
        assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == file["file_sha256"], name


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file_gives_every_bit_in_order(name: str):
    checkpoint, expected = checked(name), FILES[name]

    assert checkpoint.version == expected["version"]
    assert [(each.kind, each.name, each.size, each.has_moments) for each in checkpoint.sections] == [
        (each["kind"], each["name"], each["size"], each.get("has_moments", False)) for each in expected["sections"]
    ]
    for section, there in zip(checkpoint.sections, expected["sections"], strict=True):
        assert [*map(repr, section.value[:3].astype(np.float64).tolist())] == there["first"]
        assert (sha256(section.value), sha256(section.m), sha256(section.v)) == (
            there["sha256"],
            there.get("m_sha256"),
            there.get("v_sha256"),
        )
    assert [(key, struct.pack("<d", value).hex()) for key, value in checkpoint.scalars.items()] == [
        (each["name"], each["f64_le_hex"]) for each in expected["scalars"]
    ]
    assert is_storage_ckpt(DATA / name)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_its_kind(name: str):
    with pytest.raises(StorageCkptError) as caught:
        checked(name)

    assert str(caught.value.kind) == FILES[name]["error"]
    assert str(DATA / name) in str(caught.value)
    against_model = FILES[name]["error"] in ("NameMismatch", "SizeMismatch", "MissingSection", "ExtraSection")
    assert isinstance(caught.value, ContractError if against_model else DamagedError)


def test_a_file_without_moments_is_not_one_with_moments():
    """The twin: the comparison above sees moments, values and scalars that are others."""
    with_moments, without = checked("v3_mlp2_moments.ckpt"), checked("v3_mlp2_weights.ckpt")

    assert [sha256(each.value) for each in with_moments.sections] != [sha256(each.value) for each in without.sections]
    assert all(each.m is not None for each in with_moments.sections)
    assert all(each.m is None for each in without.sections)
