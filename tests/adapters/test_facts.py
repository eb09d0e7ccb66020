"""Facts: functions, classes, dtypes and enums have no state, but their names must be the same."""

import enum
import functools
import json
import operator
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from perdure.adapters.facts import name_of
from perdure.errors import UnknownObjectError


class Mode(enum.Enum):
    TRAIN = 1
    EVAL = 2


def relu(x: Any) -> Any:
    return max(x, 0.0)


class Thing:
    class Mode(enum.Enum):
        TRAIN = 1

    def method(self) -> None:
        pass

    def relu(self) -> None:
        pass


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (relu, f"function {__name__.split('.')[0]}:relu"),
        (abs, "function builtins:abs"),
        (operator.add, "function _operator:add"),
        (Thing, f"class {__name__.split('.')[0]}:Thing"),
        (np.float32, "class numpy:float32"),
        (np.dtype("float32"), "dtype float32"),
        (Mode.EVAL, "enum Mode.EVAL"),
        (Thing().method, f"function {__name__.split('.')[0]}:Thing.method"),
        (functools.partial(int, base=2), "partial class builtins:int(base=2)"),
        (functools.partial(max, 1, key=None), "partial function builtins:max(1, key=None)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_names(obj: Any, name: str):
    assert name_of(obj) == name


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(functools.partial(map, relu), id="partial of a function"),
        pytest.param(functools.partial(relu, x=abs), id="partial of a builtin"),
        pytest.param(functools.partial(relu, Thing), id="partial of a class"),
        pytest.param(functools.partial(map, functools.partial(relu, x=1)), id="partial of a partial"),
        pytest.param(functools.partial(relu, [relu]), id="partial of a list"),
        pytest.param(json, id="module"),
        pytest.param(lambda x: x, id="lambda"),
    ],
)
def test_a_name_is_the_same_in_another_process_and_on_another_machine(obj: Any):
    """No address and no path of this machine is part of it: a resume would be refused for nothing."""
    name = name_of(obj)

    assert not re.search(r"0x[0-9a-f]{6,}", name)
    assert "/" not in name


def test_inner_modules_are_no_part_of_a_name():
    assert name_of(json.JSONDecoder) == "class json:JSONDecoder"


def test_a_fact_is_kept_from_the_target_when_the_names_agree(trip):
    back = trip.restored(
        {"f": relu, "d": np.dtype("i4"), "m": Mode.TRAIN}, {"f": relu, "d": np.dtype("i4"), "m": Mode.TRAIN}
    )

    assert back == {"f": relu, "d": np.dtype("i4"), "m": Mode.TRAIN}


@pytest.mark.parametrize(
    ("saved", "target", "names"),
    [
        (relu, abs, (name_of(relu), "function builtins:abs")),
        (np.dtype("f4"), np.dtype("f8"), ("dtype float32", "dtype float64")),
        (np.float32, np.dtype("f4"), ("class numpy:float32", "dtype float32")),
        (Mode.TRAIN, Mode.EVAL, ("enum Mode.TRAIN", "enum Mode.EVAL")),
        (
            functools.partial(int, base=2),
            functools.partial(int, base=3),
            ("partial class builtins:int(base=2)", "partial class builtins:int(base=3)"),
        ),
        (relu, None, (name_of(relu), "no function")),
        (None, relu, ("no function", name_of(relu))),
    ],
    ids=["function", "dtype", "class", "enum", "partial", "gone", "new"],
)
def test_another_fact_is_a_finding(trip, saved: Any, target: Any, names: tuple[str, str]):
    found = trip.findings({"net": [saved, 1]}, {"net": [target, 1]})

    assert found == [("c/net/0", *names)]


@pytest.mark.parametrize("dtype", [np.dtype(ml_dtypes.bfloat16), np.dtype(">i2"), np.dtype(bool)], ids=str)
def test_every_dtype_object_is_a_fact(trip, dtype: np.dtype):
    assert trip.component({"dtype": dtype}).facts["dtype"].startswith("dtype ")


@pytest.mark.parametrize(
    ("first", "second"), [(np.dtype(">i2"), np.dtype("<i2")), (relu, Thing.relu), (Mode.TRAIN, Thing.Mode.TRAIN)]
)
def test_two_facts_never_share_a_name(first: Any, second: Any):
    assert name_of(first) != name_of(second)


DRESSED = {"ufunc": np.tanh, "vectorize": np.vectorize(relu), "cache": functools.lru_cache(relu)}


@pytest.mark.parametrize("kind", DRESSED)
def test_a_function_in_another_dress_is_a_fact_or_refused_with_its_path(trip, kind: str):
    try:
        facts = trip.component([DRESSED[kind]]).facts
    except UnknownObjectError as error:
        facts = {"0": str(error).split(", and perdure never pickles")[0]}
    assert facts["0"].startswith(("function ", "c/0: no adapter knows a "))


def test_a_bare_function_is_no_component(trip):
    with pytest.raises(UnknownObjectError, match=r"^c: no adapter knows a builtins\.function"):
        trip.component(relu)
