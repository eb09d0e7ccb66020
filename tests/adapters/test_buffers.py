"""`bytearray` and `array.array` come back bit for bit, in the memory that they have where they are as long."""

import array
from typing import Any

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("typecode", "bBhHiIlLqQfdu")
@pytest.mark.filterwarnings("ignore:The 'u' type code:DeprecationWarning")
def test_numbers_of_every_kind(trip, typecode: str):
    contents: Any = "añ" if typecode == "u" else [1, 2]
    source = array.array(typecode, contents)

    back = trip.restored([source], [array.array(typecode)])[0]

    assert (type(back), back.typecode, back.tobytes()) == (array.array, typecode, source.tobytes())


def test_bytes(trip):
    back = trip.restored([bytearray(b"\0ab")], [bytearray()])[0]

    assert (type(back), back) == (bytearray, b"\0ab")


def module(data: bytes, numbers: list[float]) -> Any:
    made: Any = torch.nn.Module()
    made.data, made.numbers = bytearray(data), array.array("d", numbers)
    return made


def test_part_of_a_live_object_of_the_same_length_is_written_in_place(trip):
    target = module(b"..", [0, 0])
    data, view = target.data, memoryview(target.numbers)

    trip.restored(module(b"ab", [1, 2]), target)

    assert (target.data is data, bytes(data), view.tolist()) == (True, b"ab", [1, 2])


def test_another_length_makes_a_new_one(trip):
    target = module(b"", [])

    trip.restored(module(b"abc", [1.5]), target)

    assert (target.data, target.numbers.tolist()) == (bytearray(b"abc"), [1.5])


def test_a_saved_array_may_grow_at_once(trip):
    numbers = array.array("d", [1])
    tree = trip.tree([numbers])

    numbers.append(2)

    assert tree[0]["numbers"].value.tolist() == [1]


def test_another_typecode_is_a_finding(trip):
    found = trip.findings([array.array("d"), object], [array.array("f"), object])

    assert found == [("c/0", "array.array of float64", "array.array of float32")]
    assert trip.findings([bytearray(), object], [array.array("f"), object])[0][0] == "c/0"


def test_the_digest_sees_every_bit(trip):
    kinds = (bytearray(b"a"), bytearray(b"b"), array.array("d", [0.0]), array.array("d", [-0.0]), array.array("f", [0]))

    assert len({trip.digest([each]) for each in kinds}) == 5
