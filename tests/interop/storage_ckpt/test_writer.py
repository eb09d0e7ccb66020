"""What is written is read back bit for bit; what cannot be written leaves the file that was there."""

import errno
import mmap
import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import CommitError, UsageError
from perdure.interop.storage_ckpt import Section, StorageNameError, read, write
from perdure.interop.storage_ckpt.writer import CHUNK_BYTES, Outgoing, write_to
from perdure.store.filesystem import FileSystem
from perdure.store.store import Bytes
from perdure.testing import Fault, FaultyFileSystem

NAMES = st.text(st.characters(exclude_characters=" \n", exclude_categories=["Cs"]), min_size=1, max_size=12)
FLOATS = st.lists(st.integers(0, 0xFFFFFFFF), max_size=6).map(lambda bits: np.array(bits, np.uint32).view(np.float32))


@st.composite
def sections(draw: st.DrawFn) -> list[Section]:
    found = []
    for name in draw(st.lists(NAMES, max_size=6)):
        value = draw(FLOATS)
        kind = draw(st.sampled_from("PS"))
        moments = (value[::-1].copy(), -value) if kind == "P" and draw(st.booleans()) else ()
        found.append(Section(kind, name, value, *moments))  # pyright: ignore[reportArgumentType]
    return found


def bits(each: Iterable[Section]) -> list[tuple[str, str, int, list[bytes]]]:
    return [(one.kind, one.name, one.size, [array.tobytes() for array in one.arrays()]) for one in each]


@settings(max_examples=200, deadline=None)
@given(sections(), st.dictionaries(NAMES, st.integers(0, 2**64 - 1).map(lambda n: struct.pack("<Q", n)), max_size=4))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, written: list[Section], patterns: dict[str, bytes]
):
    path = tmp_path_factory.getbasetemp() / "written.ckpt"
    scalars = {name: struct.unpack("<d", pattern)[0] for name, pattern in patterns.items()}
    write(path, written, scalars)
    checkpoint = read(path)

    assert bits(checkpoint.sections) == bits(written)
    assert [(name, struct.pack("<d", value)) for name, value in checkpoint.scalars.items()] == [*patterns.items()]
    first = path.read_bytes()
    write(path, checkpoint.sections, checkpoint.scalars)
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is empty"),
        ("a b", "holds a space or a newline"),
        ("a\nb", "holds a space or a newline"),
        ("\ud800", "has no UTF-8 form"),
        ("n" * 70000, "has more than 65,472 bytes"),
    ],
)
def test_names_that_would_break_headers_are_refused(tmp_path: Path, name: str, message: str):
    for given_sections, scalars in (([Section("P", name, np.zeros(1, np.float32))], {}), ([], {name: 1.0})):
        with pytest.raises(StorageNameError, match=message) as caught:
            write(tmp_path / "x", given_sections, scalars)
        assert str(caught.value.kind) == "BadHeader"
    assert list(tmp_path.iterdir()) == []


def test_two_scalars_of_one_name_are_refused(tmp_path: Path):
    with pytest.raises(StorageNameError, match="two scalars have the name t") as caught:
        write(tmp_path / "x", [], [("t", 1.0), ("u", 1.0), ("t", 1.0)])

    assert str(caught.value.kind) == "DuplicateName"
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_would_change_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="t: float64 holds 9007199254740993 inexactly"):
        write(tmp_path / "x", [], {"t": 2**53 + 1})
    for dtype in (np.float64, np.float16, np.int32, np.complex64):
        with pytest.raises(UsageError, match=rf"a: 3 values of {np.dtype(dtype)}, expected 3 of float32"):
            write(tmp_path / "x", [Section("P", "a", np.zeros(3, dtype))])
    with pytest.raises(UsageError, match="moments come in pairs"):
        write(tmp_path / "x", [Section("P", "a", np.zeros(3, np.float32), np.zeros(3, np.float32))])
    with pytest.raises(UsageError, match="and of parameters"):
        write(tmp_path / "x", [Section("S", "a", *[np.zeros(3, np.float32)] * 3)])
    with pytest.raises(UsageError, match="a: 2 values of float32, expected 3"):
        write(tmp_path / "x", [Section("P", "a", *[np.zeros(n, np.float32) for n in (3, 3, 2)])])
    with pytest.raises(UsageError, match="there is no directory"):
        write(tmp_path / "none" / "x", [])
    with pytest.raises(UsageError, match="is a directory"):
        write(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


def test_the_order_is_that_of_c_whatever_the_strides(tmp_path: Path):
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    big_endian = matrix.astype(">f4")
    write(
        tmp_path / "x", [Section("P", "a", matrix.T), Section("P", "b", matrix[:, ::-1]), Section("S", "c", big_endian)]
    )

    assert [each.value.tolist() for each in read(tmp_path / "x").sections] == [
        [0, 3, 1, 4, 2, 5],
        [2, 1, 0, 5, 4, 3],
        [0, 1, 2, 3, 4, 5],
    ]


class Watching(FileSystem):
    """Remembers the sizes of the pieces."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def write_file(self, path: Path, pieces: Iterable[Bytes]) -> None:
        def watched() -> Iterator[Bytes]:
            for piece in pieces:
                self.sizes.append(memoryview(piece).nbytes)
                yield piece

        super().write_file(path, watched())


def test_no_piece_is_larger_than_a_chunk_and_chunks_are_below_a_gibibyte(tmp_path: Path):
    value = np.arange(1000, dtype=np.float32)
    watching = Watching()
    section = Outgoing("P", "a", 1000, True, lambda: (value, value + 1, value + 2))
    write_to(tmp_path / "x", [section], chunk_bytes=1 << 9, filesystem=watching)

    assert max(watching.sizes) == 1 << 9
    assert len(watching.sizes) > 20
    assert CHUNK_BYTES <= 1 << 30
    assert [array.tobytes() for array in read(tmp_path / "x").sections[0].arrays()] == [
        (value + at).tobytes() for at in range(3)
    ]


def test_whatever_fails_the_old_file_or_the_new_one_is_there_whole(tmp_path: Path):
    path = tmp_path / "x"
    write(path, [Section("P", "old", np.zeros(5, np.float32))])
    old, failures = path.read_bytes(), []
    new = Outgoing("P", "new", 9, False, lambda: [np.ones(9, np.float32)])
    for fault in Fault.at_each_call(errno.ENOSPC):
        path.write_bytes(old)
        try:
            write_to(path, [new], filesystem=FaultyFileSystem(FileSystem(), fault))
        except CommitError as error:
            failures.append(str(error))
        done = not fault.fired or fault.calls[-1] == "sync_directory"
        assert [each.name for each in read(path).sections] == ["new" if done else "old"]
        assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    assert len(failures) == 3
    assert all("x: could not be written: [Errno 28]" in failure for failure in failures)


@pytest.mark.parametrize("wrong", [np.ones(8, np.float32), np.ones(9, np.float64)])
def test_arrays_that_turn_out_to_be_others_leave_the_old_file(tmp_path: Path, wrong: np.ndarray):
    path = tmp_path / "x"
    write(path, [Section("P", "old", np.zeros(5, np.float32))])
    good = np.ones(9, np.float32)
    for arrays, moments in (([wrong], False), ([good, good], True), ([good, good], False), ([], False)):
        with pytest.raises(UsageError, match="new: "):
            write_to(path, [Outgoing("P", "new", 9, moments, lambda arrays=arrays: arrays)])
        assert [each.name for each in read(path).sections] == ["old"]
        assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


@pytest.mark.slow
def test_a_file_of_more_than_two_gibibytes_is_written_and_read(tmp_path: Path):
    """The values repeat a block of 4 MiB whose first number tells which block it is; compared block by block."""
    block, blocks = 1 << 20, 540
    backing = mmap.mmap(-1, blocks * block * 4)
    value = np.frombuffer(backing, np.float32)
    value[::block] = np.arange(blocks)
    value[1] = -0.0
    write(
        tmp_path / "x",
        [Section("P", "large", value), Section("S", "behind", np.full(3, 7, np.float32))],
        {"t": 2.0**53},
    )

    assert (tmp_path / "x").stat().st_size > 1 << 31
    large, behind = (each.value for each in read(tmp_path / "x").sections)
    for start in range(0, value.size, block):
        assert large[start : start + block].tobytes() == value[start : start + block].tobytes()
    assert behind.tolist() == [7, 7, 7]
    assert dict(read(tmp_path / "x").scalars) == {"t": 2.0**53}


@pytest.mark.full
def test_a_sparse_file_beyond_two_and_four_gibibytes_is_read_by_its_headers(tmp_path: Path):
    """Offsets of 64 bits throughout: a section behind 5 GiB of holes is found, and its values are its own."""
    sizes = [5 << 28, 1 << 10]
    with (tmp_path / "x").open("wb") as file:
        file.write(b"storage-ckpt v3\n")
        for at, size in enumerate(sizes):
            file.write(f"P {at}.weight {size} 0\n".encode())
            file.seek(size * 4 - 4, 1)
            file.write(struct.pack("<f", at + 0.5))
        file.write(b"K t\n" + struct.pack("<d", 3))
    checkpoint = read(tmp_path / "x")

    assert [each.size for each in checkpoint.sections] == sizes
    assert [float(each.value[-1]) for each in checkpoint.sections] == [0.5, 1.5]
    assert [each.offset for each in checkpoint.sections][1] > 5 << 30
    assert all(low.offset < high.offset for low, high in pairwise(checkpoint.sections))
    assert checkpoint.scalars == {"t": 3.0}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1.5", "x: str, and a scalar is one number."),
        (None, "x: NoneType, and a scalar is one number."),
        (np.ones(1), "x: ndarray, and a scalar is one number."),
        ((1 << 60) + 1, "inexactly"),
        (np.int64((1 << 60) + 1), "inexactly"),
        (1 << 2000, "inexactly"),
    ],
)
def test_scalars_that_would_change_or_are_none_are_refused(tmp_path: Path, value: Any, message: str):
    with pytest.raises(UsageError) as caught:
        write(tmp_path / "x", [], {"x": value})
    assert message in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_numbers_of_numpy_are_scalars(tmp_path: Path):
    given = {
        "a": np.float32(0.1),
        "b": np.int64(-(1 << 53)),
        "c": float("nan"),
        "d": -0.0,
        "e": np.float32("inf"),
        "f": 7,
    }
    write(tmp_path / "x", [], given)

    expected = {name: struct.pack("<d", value) for name, value in given.items()}
    assert {name: struct.pack("<d", value) for name, value in read(tmp_path / "x").scalars.items()} == expected
