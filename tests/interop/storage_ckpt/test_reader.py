"""The reader refuses whatever is not well formed, says where and why, and allocates nothing for a size that lies."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.errors import NoCheckpointError
from perdure.interop.storage_ckpt import (
    Section,
    StorageCkptError,
    StorageFileError,
    StorageMismatchError,
    is_storage_ckpt,
    read,
    write,
)
from perdure.interop.storage_ckpt.matching import Wanted, check_sections
from perdure.interop.storage_ckpt.source import MAX_LINE_BYTES

HEAD = b"storage-ckpt v3\n"
VALUE = struct.pack("<f", 1.5)
GOOD = HEAD + b"P a 1 0\n" + VALUE


def refused(path: Path, content: bytes) -> StorageFileError:
    path.write_bytes(content)
    with pytest.raises(StorageFileError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"", "NotACheckpoint", "it is empty"),
        (b"PK\x03\x04", "NotACheckpoint", "byte 0 of 4: begins with 'PK"),
        (b"storage-ckp", "NotACheckpoint", "begins with 'storage-ckp'"),
        (
            b"storage-ckpt v1\n3\n",
            "UnsupportedVersion",
            "the first line is 'storage-ckpt v1'; versions 2 and 3 are read",
        ),
        (b"storage-ckpt v30\n", "UnsupportedVersion", "'storage-ckpt v30'"),
        (b"storage-ckpt v3 \n", "UnsupportedVersion", "'storage-ckpt v3 '"),
        (b"storage-ckpt v3\r\n", "UnsupportedVersion", "'storage-ckpt v3\\r'"),
        (b"storage-ckpt v3", "Truncated", "ends inside its first line"),
        (b"storage-ckpt v" + b"3" * 100, "UnsupportedVersion", "the first line is"),
        (GOOD + b"P", "Truncated", "byte 28 of 29: the file ends inside a section's header"),
        (GOOD + b"K a", "Truncated", "ends inside a section's header"),
        (GOOD + b"\n", "TrailingData", "1 bytes follow that are no section"),
        (GOOD + bytes(100), "TrailingData", "100 bytes follow that are no section"),
        (GOOD + b"\0\0\n\0", "TrailingData", "4 bytes follow"),
        (GOOD + b"a=1\n", "TrailingData", "4 bytes follow"),
        (GOOD + b"Q a 1\n", "BadHeader", "the kind 'Q', known are P, S, K"),
        (GOOD + b"P b 1 2\n" + VALUE, "BadHeader", "b: the flag '2'; expected 0 or 1"),
        (GOOD + b"P b 1 0 0\n" + VALUE, "BadHeader", "5 parts"),
        (GOOD + b"P  1 0\n" + VALUE, "BadHeader", "or an empty one; expected `P name size flag`"),
        (GOOD + b"S b 1 0\n" + VALUE, "BadHeader", "expected `S name size`"),
        (GOOD + b"S b +1\n" + VALUE, "BadHeader", "the size '+1'"),
        (GOOD + "S b \u0661\n".encode() + VALUE, "BadHeader", "the size"),
        (GOOD + b"S b 0x1\n" + VALUE, "BadHeader", "the size '0x1'"),
        (GOOD + b"S b 99999999999999999999\n" + VALUE, "BadHeader", "expected digits up to"),
        (GOOD + b"S b " + b"9" * 9000 + b"\n", "BadHeader", "expected digits up to"),
        (GOOD + b"P b 1 1\n" + VALUE * 2, "Truncated", "b announces 1 values, 12 bytes; the file has 8 left"),
        (GOOD + b"P " + b"n" * (MAX_LINE_BYTES + 9), "BadHeader", "has no end within 65,536 bytes"),
        (GOOD + b"K t\n" + bytes(8) + b"S s 1\n" + VALUE, "SectionOrder", "the section S s follows a scalar"),
        (HEAD + b"K t\n" + bytes(8) + b"P s 1\n" + VALUE, "SectionOrder", "the section P s follows a scalar"),
    ],
)
def test_what_is_not_well_formed_is_refused(tmp_path: Path, content: bytes, kind: str, message: str):
    error = refused(tmp_path / "x", content)

    assert (str(error.kind), message in str(error)) == (kind, True), error


def test_no_file_and_no_regular_file_are_said_to_be_so(tmp_path: Path):
    with pytest.raises(NoCheckpointError, match="no such file"):
        read(tmp_path / "none")
    with pytest.raises(StorageFileError, match="no regular file"):
        read(tmp_path)
    assert not is_storage_ckpt(tmp_path)
    assert not is_storage_ckpt(tmp_path / "none")


def test_a_size_that_lies_allocates_nothing(tmp_path: Path):
    tracemalloc.start()
    error = refused(tmp_path / "x", HEAD + b"P a 2305843009213693951 0\n" + VALUE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert "the file has 4 left" in str(error)
    assert peak < 1 << 20


def test_payloads_are_opaque_and_keep_every_bit(tmp_path: Path):
    """Signalling NaN, NaN with a payload, -0.0, denormals, newlines, what looks like a header."""
    patterns = np.array([0x7F800001, 0xFFC12345, 0x80000000, 1, 0x0A0A0A0A, 0xFF800000], np.uint32).tobytes()
    payload = patterns + b"P 0.weight 1 0\nK opt.t\n ab" + b"\n\n"
    assert len(payload) % 4 == 0, len(payload)
    (tmp_path / "x").write_bytes(HEAD + b"P abc %d 0\n" % (len(payload) // 4) + payload + b"K k\n" + payload[:8])
    checkpoint = read(tmp_path / "x")

    assert checkpoint.sections[0].value.tobytes() == payload
    assert struct.pack("<d", checkpoint.scalars["k"]) == payload[:8]
    assert np.array(checkpoint.sections[0].value).tobytes() == payload


def test_views_cannot_be_written_to_and_outlive_a_replaced_file(tmp_path: Path):
    (tmp_path / "x").write_bytes(GOOD)
    value = read(tmp_path / "x").sections[0].value
    write(tmp_path / "x", [Section("P", "a", np.full(1, 9, np.float32))])

    assert value.tolist() == [1.5]
    assert read(tmp_path / "x").sections[0].value.tolist() == [9.0]
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 1


def test_loaded_values_are_the_same_aligned_and_writable(tmp_path: Path):
    model_file(tmp_path / "x", moments=True)
    checkpoint = read(tmp_path / "x")
    loaded = checkpoint.loaded()

    assert (loaded.scalars, loaded.version, loaded.path) == (checkpoint.scalars, 3, checkpoint.path)
    for section, there in zip(loaded.sections, checkpoint.sections, strict=True):
        assert (section.kind, section.name, section.has_moments) == (there.kind, there.name, there.has_moments)
        assert [array.tobytes() for array in section.arrays()] == [array.tobytes() for array in there.arrays()]
        assert all(array.flags.aligned and array.flags.writeable for array in section.arrays())
    assert any(not array.flags.aligned for each in checkpoint.sections for array in each.arrays())


MODEL = [("P", "0.weight", 3), ("P", "0.bias", 1), ("S", "1.running_mean", 0), ("P", "1.weight", 2)]
SCALARS = {"opt.t": 7.0, "x": -0.0}


def model_file(path: Path, *, moments: bool = False) -> tuple[bytes, list[int]]:
    """A file of the model, and the offsets of all bytes of its headers."""
    numbers = iter(np.arange(100, dtype=np.float32) / 3)

    def some(size: int) -> np.ndarray:
        return np.array([next(numbers) for _ in range(size)], np.float32)

    write(
        path,
        [
            Section(kind, name, some(size), *((some(size), some(size)) if moments and kind == "P" else ()))  # type: ignore[arg-type]
            for kind, name, size in MODEL
        ],
        SCALARS,
    )
    content, offsets = path.read_bytes(), list(range(len(HEAD)))
    for section in read(path).sections:
        end = content.index(b"\n", section.offset)
        offsets += range(section.offset, end + 1)
    for name in SCALARS:
        start = content.index(f"K {name}\n".encode())
        offsets += range(start, start + len(name) + 3)
    return content, offsets


@pytest.mark.parametrize("moments", [False, True])
def test_no_mutated_header_is_taken_for_the_model_s(tmp_path: Path, *, moments: bool):
    """Each byte of each header, replaced by others: not well formed, or not of the model.

    A scalar under another name is well formed: then it is not there under the old one.
    """
    content, offsets = model_file(tmp_path / "x", moments=moments)
    check_sections(read(tmp_path / "x"), [Wanted(*each) for each in MODEL])
    accepted = []
    for at in offsets:
        for byte in {*b" \n\r\t\0aPSK0123456789+-_.", *range(0, 256, 51), content[at] ^ 0x20, content[at] ^ 1}:
            if byte == content[at]:
                continue
            (tmp_path / "y").write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
            try:
                checkpoint = read(tmp_path / "y")
                check_sections(checkpoint, [Wanted(*each) for each in MODEL])
            except StorageCkptError:
                continue
            if checkpoint.scalars.keys() == SCALARS.keys():
                accepted.append((at, bytes([byte]), content[at - 10 : at + 5]))

    assert accepted == []


@pytest.mark.parametrize("cut", range(1, 60))
def test_no_shortened_file_is_taken_for_whole(tmp_path: Path, cut: int):
    """Cut anywhere but between two scalars or sections, it is refused; there, the model's sections are missing."""
    content, _ = model_file(tmp_path / "x")
    (tmp_path / "x").write_bytes(content[:-cut])
    try:
        checkpoint = read(tmp_path / "x")
        check_sections(checkpoint, [Wanted(*each) for each in MODEL])
    except (StorageFileError, StorageMismatchError) as error:
        kind = str(error.kind)
    else:
        kind = "a scalar less" if checkpoint.scalars.keys() < SCALARS.keys() else "taken for whole"
    assert kind in ("Truncated", "MissingSection", "TrailingData", "a scalar less")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", HEAD, b"storage-ckpt v2\n", GOOD]))
@example(b"P a 1\n0.5\n", b"storage-ckpt v2\n")
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, tail: bytes, head: bytes):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(head + tail)
    try:
        values = sum(each.size for each in read(path).sections)
    except StorageFileError as error:
        assert_starts(str(error), str(path))
    else:
        assert (head + tail).startswith(b"storage-ckpt v")
        assert values <= len(tail) + 1


def assert_starts(message: str, place: str) -> None:
    assert message.startswith(place)


def test_against_a_model_the_first_difference_names_both_sides(tmp_path: Path):
    model_file(tmp_path / "x")
    checkpoint = read(tmp_path / "x")
    wanted = [Wanted(*each) for each in MODEL]

    def kind_and_text(others: list[Wanted]) -> tuple[str, str]:
        with pytest.raises(StorageMismatchError) as caught:
            check_sections(checkpoint, others)
        return str(caught.value.kind), str(caught.value)

    assert kind_and_text([*wanted, Wanted("P", "2.weight", 4)])[0] == "MissingSection"
    assert kind_and_text(wanted[:-1])[0] == "ExtraSection"
    assert kind_and_text([wanted[1], wanted[0], *wanted[2:]])[0] == "NameMismatch"
    kind, text = kind_and_text([Wanted("P", "0.weight", 4), *wanted[1:]])
    assert kind == "SizeMismatch"
    assert "section 1, byte 16: P 0.weight has 3 values, the model's has 4" in text
    assert "nothing was changed" in text
    assert "Build the model with the writer's sizes." in text
