"""Whatever a zip archive claims, no more is unpacked than its size allows, and no name leads anywhere."""

import io
import struct
import warnings
import zipfile
from collections.abc import Callable

import pytest

from perdure.errors import DamagedError
from perdure.interop import zips
from perdure.interop.zips import Zip, first_name

CONTENT = {"a/one": b"1" * 50, "a/two": b"", "a/three": bytes(range(256))}
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def packed(content: dict[str, bytes] | list[tuple[str, bytes]], method: int = STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that stand there twice
        for name, data in content.items() if isinstance(content, dict) else content:
            archive.writestr(name, data)
    return file.getvalue()


def opened(data: bytes) -> Zip:
    return Zip(memoryview(data), "x.zip")


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_members_are_read_as_the_standard_library_reads_them(method: int):
    data = packed(CONTENT, method)
    archive = opened(data)

    assert list(archive.members) == list(CONTENT)
    assert {name: bytes(archive.read(name)) for name in archive.members} == CONTENT
    assert (first_name(memoryview(data)), first_name(memoryview(data[:40])), first_name(memoryview(b"PK"))) == (
        "a/one", "a/one", "",
    )  # fmt: skip


def test_a_stored_member_is_a_view():
    data = packed(CONTENT)

    assert opened(data).read("a/three").obj is data


def test_members_with_their_sizes_behind_them_and_of_the_large_format():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, archive.open("big", "w", force_zip64=True) as member:
        member.write(b"content")

    class Unseekable(io.RawIOBase):
        def __init__(self) -> None:
            self.content = b""

        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
            self.content += bytes(data)
            return len(data)

    stream = Unseekable()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("streamed", b"content")

    assert bytes(opened(file.getvalue()).read("big")) == b"content"
    assert bytes(opened(stream.content).read("streamed")) == b"content"


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/etc/x", "a//x", "./x", "a\\..\\x", "C:/x", "c:x", "a/\x1b[31m", "a\nb", "..", "\u202etxt"],
)
def test_names_that_lead_elsewhere_are_refused(name: str):
    with pytest.raises(DamagedError) as caught:
        opened(packed({"a/one": b"1", name: b"2"}))

    assert str(caught.value) == (
        f"x.zip: {name!a}: a name of a member that leads elsewhere, or none. Take an undamaged copy of the file."
    )


def test_a_name_that_is_cut_by_a_zero_is_refused():
    data = packed({"a/oneXtwo": b"1"}).replace(b"oneX", b"one\x00")
    with pytest.raises(DamagedError, match="a name of a member that leads elsewhere"):
        opened(data)


def test_a_name_that_stands_there_twice_is_refused():
    with pytest.raises(DamagedError, match=r"x\.zip: 'a': stands there twice"):
        opened(packed([("a", b"1"), ("a", b"2")]))


def directory_entry(data: bytes, at: int, form: str, value: int) -> bytes:
    """The archive with another number in the first entry of its directory."""
    start = data.index(b"PK\x01\x02") + at
    return data[:start] + struct.pack(form, value) + data[start + struct.calcsize(form) :]


CRC, STORED_BYTES, SIZE, METHOD, FLAGS, OFFSET = (16, "<L"), (20, "<L"), (24, "<L"), (10, "<H"), (8, "<H"), (42, "<L")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (CRC, 7, "a/one: its bytes are not those that its checksum (CRC-32) was made of"),
        (SIZE, 51, "'a/one': claims 51 bytes, but is stored plainly in 50"),
        (SIZE, 1 << 31, "'a/one': claims 2,147,483,648 bytes, but is stored plainly in 50"),
        (METHOD, 12, "'a/one': is compressed by method 12, which is not read"),
        (FLAGS, 1, "'a/one': is encrypted"),
        (OFFSET, 1, "'a/one': no member begins at byte 1"),
        (OFFSET, 1 << 31, "no member begins at byte 2,147,483,648"),
        (METHOD, 8, "a/one: cannot be unpacked"),
    ],
)
def test_what_an_entry_claims_is_checked(place: tuple[int, str], value: int, message: str):
    with pytest.raises(DamagedError) as caught:
        opened(directory_entry(packed(CONTENT), *place, value)).read("a/one")

    assert message in str(caught.value)


@pytest.mark.parametrize("claimed", [49, 51, 0])
def test_a_deflated_member_of_another_size_is_refused(claimed: int):
    data = directory_entry(packed(CONTENT, DEFLATED), *SIZE, claimed)
    with pytest.raises(DamagedError, match=f"a/one: does not unpack to the {claimed} bytes that it claims"):
        opened(data).read("a/one")


def test_a_bomb_is_refused_before_anything_is_unpacked(monkeypatch: pytest.MonkeyPatch):
    data = packed({f"{number}": bytes(1 << 20) for number in range(20)}, DEFLATED)
    assert len(opened(data).read("0")) == 1 << 20

    monkeypatch.setattr(zips, "FREE_BYTES", 1000)
    with pytest.raises(DamagedError, match="its members claim 20,971,520 bytes, more than 100 times the"):
        opened(data)


def test_a_bomb_that_claims_little_is_stopped_at_its_claim():
    data = directory_entry(packed({"a": bytes(100 << 20)}, DEFLATED), *SIZE, 10)
    with pytest.raises(DamagedError, match="a: does not unpack to the 10 bytes that it claims"):
        opened(data).read("a")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "no whole zip archive"),
        (lambda data: data[: len(data) // 2], "no whole zip archive: File is not a zip file"),
        (lambda data: b"", "no whole zip archive: File is not a zip file"),
        (lambda data: data[200:], "'a/one': no member begins at byte -200"),
        (lambda data: directory_entry(data, *STORED_BYTES, 90)[:], "claims 50 bytes, but is stored plainly in 90"),
        (lambda data: directory_entry(directory_entry(data, *STORED_BYTES, 90), *SIZE, 90), "lies over the member"),
        (
            lambda data: directory_entry(directory_entry(data, *STORED_BYTES, 5000), *SIZE, 5000),
            "'a/one': 4,",
        ),
        (lambda data: data.replace(b"a/one", b"a/eno", 1), "'a/one': is called 'a/eno' in the header before its bytes"),
    ],
)
def test_damage_is_refused_with_its_place(damage: Callable[[bytes], bytes], message: str):
    with pytest.raises(DamagedError) as caught:
        opened(damage(packed(CONTENT)))

    assert str(caught.value).startswith("x.zip: ")
    assert message in str(caught.value)
