"""The simulated disk: what a sync keeps, what a crash may lose, and that images are complete and each of them once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.testing import SimulatedDisk

FILE = Path("/d/x")


def disk_with(*pieces: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(Path("/d"))
    disk.write_file(FILE, pieces)
    return disk


def outcomes(disk: SimulatedDisk, start: int = 0) -> list[bytes | None]:
    """What the file may hold after a crash; None: it is not there."""
    found = {image.contents().get(str(FILE)) for image in disk.crash_images(start)}
    return sorted(found, key=lambda data: (data is not None, data or b""))


def test_without_a_sync_all_of_it_may_be_lost_and_any_part_of_it() -> None:
    """The name, the first piece (zeros stand before the second), the second, and a half of each."""
    found = outcomes(disk_with(b"aa", b"bb"))

    assert set(found) == {None, b"", b"a", b"aa", b"aab", b"aabb", b"\0\0bb", b"a\0bb"}


def test_a_synced_file_may_lose_its_name_and_not_its_bytes() -> None:
    disk = disk_with(b"aa")
    disk.sync_file(FILE)

    assert {image.contents().get(str(FILE)) for image in disk.images_now()} == {None, b"aa"}


def test_a_synced_directory_keeps_the_name_and_not_the_bytes() -> None:
    disk = disk_with(b"aa")
    disk.sync_directory(FILE.parent)

    assert {image.contents().get(str(FILE)) for image in disk.images_now()} == {b"", b"a", b"aa"}


def test_both_synced_it_stays() -> None:
    disk = disk_with(b"aa")
    disk.sync_file(FILE)
    disk.sync_directory(FILE.parent)

    assert [image.contents() for image in disk.images_now()] == [{"/d": None, "/d/x": b"aa"}]


def test_a_sync_counts_from_the_next_operation_on() -> None:
    """A crash just before it returned is a crash without it."""
    disk = disk_with(b"aa")
    mark = len(disk.operations)
    disk.sync_directory(FILE.parent)
    disk.make_new_directory(Path("/d/later"))

    assert None not in outcomes(disk, mark)
    assert None in outcomes(disk, mark - 1)


def test_a_rename_is_whole_one_or_the_other() -> None:
    disk = disk_with(b"aa")
    disk.sync_file(FILE)
    disk.sync_directory(FILE.parent)
    disk.make_directory(Path("/e"))
    disk.rename(FILE, Path("/e/y"))

    found = [{name for name in image.contents() if name in ("/d/x", "/e/y")} for image in disk.images_now()]
    assert sorted(map(sorted, found)) == [["/d/x"], ["/e/y"]]
    disk.sync_directory(Path("/e"))
    assert [set(image.contents()) for image in disk.images_now()] == [{"/d", "/e", "/e/y"}]


def test_two_names_of_a_file_are_one_file() -> None:
    disk = disk_with(b"aa")
    disk.link(FILE, Path("/d/y"))
    disk.sync_file(Path("/d/y"))

    for image in disk.images_now():
        assert set(image.contents().values()) <= {None, b"aa"}


def test_each_image_comes_once_and_stands_alone() -> None:
    disk = disk_with(b"aa", b"bb")
    images = list(disk.crash_images())
    contents = [frozenset(image.contents().items()) for image in images]
    assert len(contents) == len(set(contents))

    for image in images:
        image.make_directory(Path("/d"))
        image.write_file(Path("/d/new"), [b"n"])
    assert "/d/new" not in disk.contents()
    assert [b"n"] * len(images) == [image.contents()["/d/new"] for image in images]


def test_an_image_s_own_past_is_durable() -> None:
    """What survived one crash survives the next, which begins with nothing open."""
    disk = disk_with(b"aa")
    for image in disk.images_now():
        assert [again.contents() for again in image.crash_images()] == [image.contents()]
        assert image.most_open() == 0


def test_an_empty_directory_that_survived_alone_can_be_listed() -> None:
    disk = SimulatedDisk()
    disk.make_new_directory(Path("/d"))
    disk.write_file(FILE, [b"a"])
    alone = [image for image in disk.crash_images() if set(image.contents()) == {"/d"}]

    assert alone
    for image in alone:
        assert image.list_directory(Path("/d")) == []
        assert image.file_sizes(Path("/d")) == {}
        image.remove_tree(Path("/d"))


def test_what_is_open_beyond_the_limit_is_kept_or_lost_together() -> None:
    disk = disk_with(*[bytes([letter]) for letter in b"abcdefgh"])

    assert disk.most_open() == 9
    assert len(list(disk.images_now(most_undecided=2))) == 2 * 4 + 2
    assert len(list(disk.crash_images(0, 9))) > len(list(disk.crash_images(0, 3)))


def test_damage_is_durable_and_no_operation() -> None:
    disk = disk_with(b"aa")
    disk.sync_file(FILE)
    disk.sync_directory(FILE.parent)
    mark = len(disk.operations)
    disk.damage(FILE, 1)

    assert len(disk.operations) == mark
    assert [image.contents()["/d/x"] for image in disk.images_now()] == [b"a`"]
    with pytest.raises(IndexError, match="has no byte 2"):
        disk.damage(FILE, 2)


def test_threads_may_use_it_together() -> None:
    disk = SimulatedDisk()
    disk.make_directory(Path("/d"))

    def write(number: int) -> None:
        disk.write_file(Path(f"/d/{number}"), [b"x" * number] * 5)
        disk.sync_file(Path(f"/d/{number}"))
        disk.sync_directory(Path("/d"))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(60)))

    assert None not in disk.durable_at
    assert len(disk.operations) == 1 + 60 * 6
    assert [len(image.contents()) for image in disk.images_now()] == [61]


def test_the_same_errors_as_a_real_disk() -> None:
    disk = disk_with(b"aa")
    for call in (
        lambda: disk.sync_file(Path("/d/missing")),
        lambda: disk.rename(Path("/d/missing"), Path("/d/y")),
        lambda: disk.link(Path("/d/missing"), Path("/d/y")),
        lambda: disk.read_file(Path("/d/missing")),
        lambda: disk.file_sizes(Path("/missing")),
        lambda: disk.make_new_directory(Path("/missing/d")),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    for call in (
        lambda: disk.write_file(FILE, [b""]),
        lambda: disk.make_new_directory(Path("/d")),
        lambda: disk.rename(FILE, Path("/d")),
        lambda: disk.link(FILE, FILE),
    ):
        with pytest.raises(FileExistsError):
            call()
    with pytest.raises(NotADirectoryError):
        disk.file_sizes(FILE)
    with pytest.raises(IsADirectoryError):
        disk.read_file(Path("/d"))
    assert disk.list_directory(Path("/missing")) == []
