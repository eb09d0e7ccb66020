"""A window reads as a file does, and whatever is asked for, it allocates no more than there is."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.windows import LINE_BYTES, Window, mapped

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 9)),
        st.tuples(st.just("readline"), st.just(-1)),
        st.tuples(st.just("seek"), st.integers(0, 12)),
    )
)


@given(data=st.binary(max_size=10), steps=STEPS)
def test_it_reads_as_a_file_does(data: bytes, steps: list[tuple[str, int]]):
    window, file = Window(memoryview(data)), io.BytesIO(data)

    for name, argument in steps:
        assert getattr(window, name)(argument) == getattr(file, name)(argument)
        assert window.tell() == file.tell()


def test_what_is_asked_for_is_cut_to_what_is_there():
    assert Window(memoryview(b"abc")).read(1 << 62) == b"abc"
    assert len(Window(memoryview(bytes(9000))).readline()) == LINE_BYTES
    with pytest.raises(OSError, match="byte -1 is before the first one"):
        Window(memoryview(b"abc")).seek(-4, io.SEEK_END)


def test_files_are_mapped_and_empty_ones_too(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"content")
    (tmp_path / "empty").write_bytes(b"")

    assert (bytes(mapped(tmp_path / "x")), bytes(mapped(tmp_path / "empty"))) == (b"content", b"")
    assert mapped(tmp_path / "x").readonly
