"""Containers that are not taken: what only resembles one, keys of other kinds, those that contain themselves."""

import dataclasses
import pathlib
from collections import Counter, deque
from typing import Any

import numpy as np
import pytest

from perdure.errors import CaptureError, UnknownObjectError


@dataclasses.dataclass
class Plain:
    x: Any


class MyDict(dict):
    pass


class MyList(list):
    pass


class MyCounter(Counter):
    pass


class MySet(set):
    pass


class MyInt(int):
    pass


class MyStr(str):
    __slots__ = ()


class MyArray(np.ndarray):
    pass


@pytest.mark.parametrize(
    "obj",
    [
        MyDict(a=1),
        MyList([1]),
        MyInt(1),
        MyStr("a"),
        np.zeros(2).view(MyArray),
        MyCounter("aab"),
        MySet({1, 2}),
        np.ma.masked_array([1, 2], [True, False]),
        range(3),
        memoryview(b"a"),
        iter([1]),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_a_subclass_or_another_kind_is_not_silently_taken_for_what_it_resembles(trip, obj: Any):
    with pytest.raises(UnknownObjectError) as caught:
        trip.component([obj])

    name = f"{type(obj).__module__}.{type(obj).__qualname__}".replace("ma.core", "ma")
    assert str(caught.value).startswith(f"c/0: no adapter knows a {name}, and perdure never pickles.")


@pytest.mark.parametrize("key", [1.5, None, True, (1, 2), b"a"], ids=repr)
def test_a_dict_key_that_is_neither_text_nor_int_is_refused(trip, key: Any):
    with pytest.raises(
        CaptureError, match=r"^c: dict key .* is neither a str nor an int\. Use such keys, or a list of pairs\.$"
    ):
        trip.saved({key: 1})


WAYS_OUT = {
    "masked array": (np.ma.masked_array([1]), "numpy.ma.MaskedArray", "Keep its data and its mask as two arrays;"),
    "range": (range(3), "builtins.range", "Keep its start, stop and step as numbers, or a list;"),
    "generator": ((x for x in ()), "builtins.generator", "Keep what it goes through, and the position as a number;"),
    "iterator": (zip(), "builtins.zip", "Keep what it goes through, and the position as a number;"),
    "path": (pathlib.PosixPath("x"), "pathlib.PosixPath", "Keep it as a text: str(path);"),
    "view": (memoryview(b""), "builtins.memoryview", "Keep the bytes or the array that it looks into;"),
}


@pytest.mark.parametrize("kind", WAYS_OUT)
def test_of_what_has_no_class_of_the_users_the_message_tells_another_way_out(trip, kind: str):
    obj, name, way_out = WAYS_OUT[kind]

    with pytest.raises(UnknownObjectError) as caught:
        trip.component({"held": obj})

    assert str(caught.value) == (
        f"c/held: no adapter knows a {name}, and perdure never pickles. {way_out} or hand an adapter for it to "
        "Run(adapters=[(Class, adapter)]); or leave the object out and rebuild it at start."
    )


def contains_itself(kind: str) -> Any:
    match kind:
        case "list":
            outer: Any = []
            outer.append(outer)
        case "dict":
            outer = {}
            outer["me"] = {"deeper": outer}
        case "deque":
            outer = deque()
            outer.append([outer])
        case _:
            outer = Plain(None)
            outer.x = (outer,)
    return outer


@pytest.mark.parametrize(
    ("kind", "path"), [("list", "c/0"), ("dict", "c/me/deeper"), ("deque", "c/"), ("Plain", "c/x/0")]
)
def test_a_container_that_contains_itself_is_refused(trip, kind: str, path: str):
    with pytest.raises(CaptureError, match=rf"^{path}.*: a {kind} that contains itself\.$"):
        trip.component(contains_itself(kind))


def test_a_dataclass_that_holds_more_than_its_fields_is_refused(trip):
    """What stands beside the fields would be lost in silence."""
    obj = Plain(0)
    obj.counter = 3  # pyright: ignore[reportAttributeAccessIssue]

    with pytest.raises(
        CaptureError, match=r"^c: a Plain is a dataclass, but it holds \['counter'\] beside its fields\."
    ):
        trip.tree(obj)


def test_a_dataclass_that_speaks_for_itself_is_asked(trip):
    """Its fields are its configuration; its state stands elsewhere, and would be lost in silence."""

    @dataclasses.dataclass
    class Normalizer:
        size: int

        def __post_init__(self) -> None:
            self.count = 0

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.count = state["count"]

    saved, target = Normalizer(3), Normalizer(3)
    saved.count = 41

    assert trip.restored(saved, target).count == 41
