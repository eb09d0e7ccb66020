"""Facts: functions, classes and dtypes have no state, but their names must be the same."""

import functools
import json
import operator
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from perdure.contract.naming import name_of
from perdure.errors import UnknownObjectError


def relu(x: Any) -> Any:
    return max(x, 0.0)


class Thing:
    class Inner:
        pass

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
        (Thing().method, f"function {__name__.split('.')[0]}:Thing.method"),
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
def test_a_name_is_the_same_in_another_process_and_on_another_machine(trip, obj: Any):
    """No address and no path of this machine is part of it: a resume would be refused for nothing."""
    names = trip.component([obj]).facts.values()

    assert names
    assert not [name for name in names if re.search(r"0x[0-9a-f]{6,}", name) or "/" in name]


def test_inner_modules_are_no_part_of_a_name():
    assert name_of(json.JSONDecoder) == "class json:JSONDecoder"


def test_a_fact_is_kept_from_the_target_when_the_names_agree(trip):
    back = trip.restored({"f": relu, "d": np.dtype("i4"), "c": Thing}, {"f": relu, "d": np.dtype("i4"), "c": Thing})

    assert back == {"f": relu, "d": np.dtype("i4"), "c": Thing}


@pytest.mark.parametrize(
    ("saved", "target", "names"),
    [
        (relu, abs, (name_of(relu), "function builtins:abs")),
        (np.dtype("f4"), np.dtype("f8"), ("dtype float32", "dtype float64")),
        (np.float32, np.dtype("f4"), ("class numpy:float32", "dtype float32")),
        (
            functools.partial(int, 1),
            functools.partial(relu, 1),
            ("partial of class builtins:int", f"partial of {name_of(relu)}"),
        ),
        (relu, None, (name_of(relu), "no function")),
        (None, relu, ("no function", name_of(relu))),
    ],
    ids=["function", "dtype", "class", "partial", "gone", "new"],
)
def test_another_fact_is_a_finding(trip, saved: Any, target: Any, names: tuple[str, str]):
    found = trip.findings({"net": [saved, 1]}, {"net": [target, 1]})

    assert found == [("c/net/0", *names)]


@pytest.mark.parametrize("dtype", [np.dtype(ml_dtypes.bfloat16), np.dtype(">i2"), np.dtype(bool)], ids=str)
def test_every_dtype_object_is_a_fact(trip, dtype: np.dtype):
    assert trip.component({"dtype": dtype}).facts["dtype"].startswith("dtype ")


@pytest.mark.parametrize(
    ("first", "second"), [(np.dtype(">i2"), np.dtype("<i2")), (relu, Thing.relu), (Thing, Thing.Inner)]
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
