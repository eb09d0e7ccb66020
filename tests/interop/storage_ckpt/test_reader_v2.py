"""Version 2: decimal numbers are the nearest float32, and a file that may be cut is refused or said to be suspect."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.storage_ckpt import StorageFileError, read, reader_v2
from perdure.interop.storage_ckpt.decimal_floats import float32_of, is_float

HEAD = b"storage-ckpt v2\n"


def read_text(path: Path, text: bytes):
    path.write_bytes(HEAD + text)
    return read(path)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (b"P a 2\n1\n2", "Ambiguous", "the last line, '2', has no newline: it may be cut"),
        (b"P a 1 0\n1\nk=2", "Ambiguous", "'k=2', has no newline"),
        (b"P a 3\n1\n2", "Truncated", "a announces 3 numbers; the file has 3 bytes left"),
        (b"P a 3\n1\n22222", "Truncated", "the file ends inside a, which announces 3 values"),
        (b"P a 3\n1\n22222\n", "Truncated", "the file ends inside a"),
        (b"P a 1 1\n1\n2\n", "Truncated", "a announces 3 numbers"),
        (b"P a 2\n1\n2\nP", "Truncated", "inside a section's header"),
        (b"P a 1\n1_0\n", "BadFloat", "a: '1_0' is no number (value 1 of 1)"),
        (b"P a 1\n 1\n", "BadFloat", "' 1' is no number"),
        (b"P a 1\nNaN\n", "BadFloat", "'NaN'"),
        (b"P a 1\n1e39\n", "BadFloat", "1e39 (value 1) is beyond the range of float32"),
        (b"P a 1\n" + b"1" * 99 + b"\n", "BadFloat", "a line of more than 64 bytes"),
        (b"P a 99999999999\n1\n", "Truncated", "99,999,999,999 numbers; the file has 2 bytes left"),
        (b"P a 1\n1\nk=x\n", "BadFloat", "no number behind the `=`"),
        (b"P a 1\n1\nk=1\nk=1\n", "DuplicateName", "the scalar k stands there twice"),
        (b"P a 1\n1\nk=1\nS a 1\n1\n", "SectionOrder", "the section S a follows a scalar"),
        (b"P a 1\n1\nK b\n", "BadHeader", "the kind 'K', known are P, S"),
        (b"P a 1\n1\n2\n", "TrailingData", "2 bytes follow that are no section"),
    ],
)
def test_what_is_not_well_formed_is_refused(tmp_path: Path, text: bytes, kind: str, message: str):
    with pytest.raises(StorageFileError) as caught:
        read_text(tmp_path / "x", text)

    assert (str(caught.value.kind), message in str(caught.value)) == (kind, True), caught.value


def test_values_moments_and_scalars_stand_in_their_places(tmp_path: Path):
    checkpoint = read_text(tmp_path / "x", b"P a 2 1\n1\n-inf\n3\nnan\n5\n-0.0\nS b 1\n7e-1\n_k=1e3\nj=inf\n")

    section = checkpoint.sections[0]
    assert section.value.tolist() == [1.0, -np.inf]
    assert section.m is not None
    assert section.m[0] == 3
    assert np.isnan(section.m[1])
    assert section.v is not None
    assert section.v.tobytes() == np.array([5, -0.0], np.float32).tobytes()
    assert checkpoint.sections[1].value.tolist() == [np.float32(0.7)]
    assert list(checkpoint.scalars.items()) == [("_k", 1000.0), ("j", np.inf)]
    assert checkpoint.notes == ()


def test_a_file_as_large_as_those_that_were_cut_is_called_suspect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = b"P a 1\n1\n"
    monkeypatch.setattr(reader_v2, "SUSPECT_BYTES", len(HEAD + text) + 1)
    assert read_text(tmp_path / "x", text).notes == ()
    monkeypatch.setattr(reader_v2, "SUSPECT_BYTES", len(HEAD + text))
    (note,) = read_text(tmp_path / "x", text).notes
    assert note.startswith("suspect: ")


def test_the_limit_is_where_one_write_of_linux_ends():
    assert reader_v2.SUSPECT_BYTES == 2**31 - 4096


@given(st.integers(0, 0xFFFFFFFF))
def test_the_shortest_text_of_a_float32_gives_it_back(bits: int):
    value = np.array([bits], np.uint32).view(np.float32)[0]
    text = str(value).encode()
    assert is_float(text)
    back = float32_of([text])[0]
    assert (np.isnan(value) and np.isnan(back)) or back.tobytes() == value.tobytes()


@given(st.integers(1, 0x7F7FFFFE), st.sampled_from([-1, 0, 1]))
def test_a_text_beside_the_middle_of_two_float32_goes_to_its_side(bits: int, side: int):
    """Rounded to float64 first, texts this close to the middle would all be the middle."""
    low, high = np.array([bits, bits + 1], np.uint32).view(np.float32)
    middle = (Fraction(float(low)) + Fraction(float(high))) / 2
    exact = middle + side * middle / 10**40
    text = decimal_of(exact)
    even = low if bits % 2 == 0 else high

    assert float32_of([text])[0] == {-1: low, 0: even, 1: high}[side]


def decimal_of(value: Fraction) -> bytes:
    """All digits that a dyadic fraction and 10**-40 of it need."""
    digits = 400
    return f"{int(value * 10**digits)}e-{digits}".encode()
