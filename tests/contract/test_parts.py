"""What configurations hold in unusual places: each changed value is another contract, what cannot be read is said."""

import abc
import argparse
import dataclasses
import enum
import functools
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.contract.config import flatten
from perdure.errors import UsageError


def leaky(x: float, slope: float) -> float:
    return slope * x


def with_section(rate: float) -> Any:
    class Config:
        gamma = 0.99

        class ppo:
            learning_rate = rate

    return Config


def with_partial(slope: float) -> Any:
    class Config:
        activation = functools.partial(leaky, slope=slope)

    return Config


class WithTanh:
    activation = np.tanh


class WithSin:
    activation = np.sin


def without_annotation(value: float) -> Any:
    @dataclasses.dataclass
    class Config:
        gamma: float = 0.99
        lr = value

    return Config()


@dataclasses.dataclass
class Plain:
    gamma: float = 0.99


def set_later(value: float) -> Any:
    config: Any = Plain()
    config.lr = value
    return config


class Dense:
    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight


class Sparse(Dense):
    pass


class Slotted(Dense):
    __slots__ = ("__hidden", "lr")

    def __init__(self, lr: float, hidden: int = 0) -> None:
        super().__init__()
        self.lr = lr
        self.__hidden = hidden


class Dict(dict[str, Any]):
    def __init__(self, lr: float) -> None:
        super().__init__(a=1)
        self.lr = lr


class List(list[int]):
    def __init__(self, lr: float) -> None:
        super().__init__([1])
        self.lr = lr


def member(value: int) -> enum.Enum:
    class Mode(enum.Enum):
        A = value

    return Mode.A


Adam, Sgd = namedtuple("Adam", "lr b"), namedtuple("Sgd", "lr momentum")
Other = namedtuple("Other", "lr b")

PAIRS: dict[str, tuple[Any, Any]] = {
    "a class in a class": (with_section(3e-4), with_section(1e-4)),
    "a class in an object's class": (with_section(3e-4)(), with_section(1e-4)()),
    "a partial in a class": (with_partial(0.1), with_partial(0.3)),
    "a ufunc in a class": (WithTanh, WithSin),
    "an attribute of a dataclass without annotation": (without_annotation(3e-4), without_annotation(1e-4)),
    "an attribute of a dataclass set later": (set_later(3e-4), set_later(1e-4)),
    "the class of an object": ({"reward": Dense()}, {"reward": Sparse()}),
    "names of a named tuple's fields": ({"opt": Adam(1e-3, 0.9)}, {"opt": Sgd(1e-3, 0.9)}),
    "the class of a named tuple": ({"opt": Adam(1e-3, 0.9)}, {"opt": Other(1e-3, 0.9)}),
    "a slot beside a dict": (Slotted(3e-4), Slotted(1e-4)),
    "a private slot": (Slotted(3e-4), Slotted(3e-4, hidden=1)),
    "an attribute of a dict": (Dict(3e-4), Dict(1e-4)),
    "an attribute of a list": ({"x": List(3e-4)}, {"x": List(1e-4)}),
    "the value of an enum's member": ({"mode": member(1)}, {"mode": member(2)}),
    "the shape of an empty array": ({"x": np.zeros((0, 3))}, {"x": np.zeros((0, 4))}),
}


@pytest.mark.parametrize("case", PAIRS)
def test_another_value_is_another_contract(case: str):
    first, second = (dict(flatten(config)) for config in PAIRS[case])

    assert first != second
    assert first == dict(flatten(PAIRS[case][0]))


def test_sections_that_are_classes_have_dotted_keys_and_inherit():
    base = with_section(3e-4)

    class Config(base):
        class ppo(base.ppo):
            clip = 0.2

    assert dict(flatten(Config)) == {"gamma": 0.99, "ppo.learning_rate": 3e-4, "ppo.clip": 0.2}


def test_an_abstract_class_may_be_a_configuration():
    class Base(abc.ABC):
        def __init__(self) -> None:
            self.lr = 1.0

        @abc.abstractmethod
        def run(self) -> None: ...

    class Config(Base):
        def run(self) -> None: ...

    assert dict(flatten(Config())) == {"lr": 1.0}


def test_what_libraries_put_into_classes_does_not_count():
    def replace(self: Any) -> Any:
        return self

    @dataclasses.dataclass
    class Struct:
        lr: float = 0.1

    Struct.replace = replace  # pyright: ignore[reportAttributeAccessIssue]

    class Model:
        __slots__ = ("__dict__", "__library_fields_set__")

        def __init__(self) -> None:
            self.lr = 0.1
            self.__library_fields_set__ = {"lr"}

    assert dict(flatten(Struct())) == {"lr": 0.1}
    assert dict(flatten(Model())) == {"lr": 0.1}


def test_what_was_computed_from_the_rest_at_some_time_does_not_count():
    class Config:
        lr = 0.1

        @functools.cached_property
        def double(self) -> float:
            return 2 * self.lr

    config = Config()
    before = dict(flatten(config))
    assert config.double == 0.2

    assert dict(flatten(config)) == before == {"lr": 0.1}


GIVE = "give a mapping, a dataclass's instance or an object."


@dataclasses.dataclass
class Unset:
    batch: int = dataclasses.field(init=False)


class Elements(set[int]):
    pass


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            Plain,
            f"config={Plain!r}: a dataclass itself, not an instance of it; {GIVE}",
        ),
        (5, f"config=5: one value, without a name; {GIVE}"),
        ("lr=3", f"config='lr=3': one value, without a name; {GIVE}"),
        (Path("a"), f"config={Path('a')!r}: one value, without a name; {GIVE}"),
        (np.asarray([1]), f"config=array([1]): one value, without a name; {GIVE}"),
        (Unset(), "config (whole): the field 'batch' of a Unset is not set."),
        ({"x": Unset()}, "config x: the field 'batch' of a Unset is not set."),
        ({"x": Elements({1})}, "config x: a Elements cannot be compared at a resume."),
        ({"x": argparse.Namespace(y=b"")}, "config x.y: a bytes cannot be compared at a resume."),
        ({"x": np.complex64(1j)}, "config x: a complex64 cannot be compared at a resume."),
    ],
)
def test_what_cannot_be_compared_is_said(config: Any, message: str):
    with pytest.raises(UsageError) as caught:
        dict(flatten(config))

    assert str(caught.value) == message
