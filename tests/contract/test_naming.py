"""Names of functions and classes: the same for `python train.py`, `python -m train` and `import train`."""

import functools
import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from perdure.contract.naming import full_name_of, name_of


def reward(x: float) -> float:
    return x


class Policy:
    """A class whose module can be changed."""

    class Head:
        """A class in a class."""

    def act(self) -> None:
        """A method."""


class Callable:
    """Its objects are callable and have no name."""

    def __call__(self) -> None:
        """Does nothing."""


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stands where the script would: `reward` and `Policy` are its own."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    for obj in (reward, Policy):
        monkeypatch.setattr(obj, "__module__", "__main__")
    return module


@pytest.mark.parametrize("file", ["/home/a/train.py", "train.py", "./x/train.py"])
def test_a_script_s_own_are_named_as_if_it_were_imported(file: str, main: ModuleType):
    main.__file__ = file

    assert (name_of(reward), full_name_of(reward)) == ("function train:reward", "train.reward")
    assert name_of(Policy) == "class train:Policy"


def test_a_module_that_is_run_has_the_name_of_its_spec(main: ModuleType):
    main.__file__ = "/somewhere/lab/train.py"
    main.__spec__ = ModuleSpec("lab.train", None)

    assert (name_of(reward), full_name_of(reward)) == ("function lab:reward", "lab.train.reward")


def test_a_notebook_has_no_file(main: ModuleType):
    assert (name_of(reward), full_name_of(reward)) == ("function __main__:reward", "__main__.reward")


def test_a_worker_process_s_main_is_the_script_too(main: ModuleType, monkeypatch: pytest.MonkeyPatch):
    main.__file__ = "train.py"
    monkeypatch.setattr(reward, "__module__", "__mp_main__")

    assert (name_of(reward), full_name_of(reward)) == ("function train:reward", "train.reward")


def test_another_script_is_another_name(main: ModuleType):
    """The twin: the name of the file does count."""
    main.__file__ = "train2.py"

    assert name_of(reward) == "function train2:reward"


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (np.dtype("float32"), "dtype float32"),
        (np.dtype(">i4"), "dtype >i4"),
        (json, "module json"),
        (np.random, "module numpy.random"),
        (json.JSONDecoder, "class json:JSONDecoder"),
        (abs, "function builtins:abs"),
        (np.tanh, "function numpy:tanh"),
        (Policy.Head, f"class {__name__.split('.')[0]}:Policy.Head"),
        (Policy.act, f"function {__name__.split('.')[0]}:Policy.act"),
        (Callable(), f"function {__name__.split('.')[0]}:of Callable"),
        (functools.partial(reward, 1), "function functools:of partial"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # an object's own text may hold an address
)
def test_kind_package_and_qualified_name(obj: Any, name: str):
    assert name_of(obj) == name


def test_inner_modules_count_in_a_configuration_and_not_in_an_object():
    """A library may move its classes; two choices of a configuration may differ in the module alone."""
    assert name_of(json.JSONDecoder) == name_of(json.decoder.JSONDecoder)
    assert full_name_of(json.JSONDecoder) == "json.decoder.JSONDecoder"
