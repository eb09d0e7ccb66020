"""Objects in another process: what travels through a pipe arrives as it was, and errors arrive as what they were."""

from __future__ import annotations

from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest

from perdure.adapters import Walk
from perdure.adapters.remote import answer, request, taken
from perdure.adapters.resolve import Resolver
from perdure.errors import CaptureError, UnknownObjectError
from perdure.tree.leaves import memory_axes


class Keeping:
    """Keeps an array and speaks for itself."""

    def __init__(self, array: Any, rng: Any = None) -> None:
        self.array, self.rng = array, rng

    def state_dict(self) -> dict[str, Any]:
        return {"array": self.array, "rng": self.rng}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.array = state["array"]


def sent(message: Any) -> Any:
    here, there = Pipe()
    here.send(message)
    return there.recv()


def travelled(obj: Any, verb: Any, tree: Any, walk: Walk) -> Any:
    asked = sent(request(verb, walk, tree, "envs", 1))
    return taken(sent(answer(obj, asked, Resolver())), walk)


ORDERS = [
    pytest.param(np.arange(24.0).reshape(2, 3, 4), id="C"),
    pytest.param(np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)), id="Fortran"),
    pytest.param(np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2), id="neither"),
    pytest.param(np.arange(48.0).reshape(2, 6, 4)[:, ::2].transpose(2, 0, 1), id="with gaps"),
    pytest.param(np.float32(np.nan) * np.ones(3, np.float32), id="NaN"),
]


@pytest.mark.parametrize("array", ORDERS)
def test_arrays_arrive_with_their_bytes_and_their_memory_order(array: np.ndarray):
    source, target = Keeping(array), Keeping(np.zeros_like(array))

    tree = travelled(source, "capture", None, Walk(Resolver(), at=["c"])).tree
    assert travelled(target, "check", tree, Walk(Resolver(), at=["c"])).findings == ()
    travelled(target, "restore", tree, Walk(Resolver(), at=["c"]))

    assert target.array.tobytes() == array.tobytes()
    assert memory_axes(target.array) == memory_axes(array)


def test_what_is_noted_there_is_noted_here():
    walk = Walk(Resolver(), at=["c"])

    travelled(Keeping(np.zeros(1), np.random.default_rng(1)), "capture", None, walk)

    assert walk.made[("c", "envs", 1)] == "state-dict"
    assert walk.made[("c", "envs", 1, "state", "rng")] == "numpy-generator"


def test_findings_name_the_place_in_the_run():
    tree = travelled(Keeping(np.zeros(3)), "capture", None, Walk(Resolver(), at=["c"])).tree

    findings = travelled(Keeping(np.zeros(4)), "check", tree, Walk(Resolver(), at=["c"])).findings

    assert [(finding.key, finding.saved, finding.found) for finding in findings] == [
        ("c/envs/1/state/array", "float64 3", "float64 4")
    ]


def test_generators_are_restored_there_too():
    source, target = Keeping(np.zeros(1), np.random.default_rng(1)), Keeping(np.zeros(1), np.random.default_rng(2))
    walk = Walk(Resolver(), at=["c"])
    tree = travelled(source, "capture", None, walk).tree

    travelled(target, "restore", tree, Walk(Resolver(), walk.made, at=["c"]))

    assert target.rng.random(3).tolist() == source.rng.random(3).tolist()


class Opaque:
    """No adapter knows it."""


class Failing(Keeping):
    """Cannot say its state."""

    def state_dict(self) -> dict[str, Any]:
        raise OSError("the engine is gone")


def test_an_error_of_perdures_arrives_as_that():
    with pytest.raises(UnknownObjectError, match=r"^c/envs/1: no adapter knows a .*Opaque"):
        travelled(Opaque(), "capture", None, Walk(Resolver(), at=["c"]))


def test_an_error_of_the_object_s_own_arrives_with_its_place():
    refusal = r"^c/envs/1: Failing\.state_dict\(\) raised OSError: the engine is gone\. It is asked"
    with pytest.raises(CaptureError, match=refusal):
        travelled(Failing(np.zeros(1)), "capture", None, Walk(Resolver(), at=["c"]))


def test_a_value_cannot_be_restored_in_place():
    with pytest.raises(RuntimeError, match="TypeError: a list cannot be restored in place"):
        travelled([1, 2], "restore", [3, 4], Walk(Resolver(), at=["c"]))
