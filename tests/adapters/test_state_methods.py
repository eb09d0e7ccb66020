"""Objects that speak for themselves through `state_dict` / `load_state_dict` or `get_state` / `set_state`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.errors import CaptureError, RestoreError, UnknownObjectError


class StateDict:
    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


class GetState:
    def __init__(self, state: Any) -> None:
        self.state = state

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: Any) -> None:
        self.state = state


class Both(StateDict):
    def get_state(self) -> Any:
        raise AssertionError("state_dict comes first")

    def set_state(self, state: Any) -> None:
        raise AssertionError("load_state_dict comes first")


class OnlyHalf:
    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("kind", [StateDict, Both])
def test_an_object_with_state_dict_is_restored_in_place(trip, kind: type[StateDict]):
    source, target = kind(w=np.arange(3.0), step=7, rows=[1, 2]), kind(w=np.zeros(3), step=0, rows=[])

    assert trip.restored(source, target) is target
    assert (target.state["w"].tolist(), target.state["step"], target.state["rows"]) == ([0.0, 1.0, 2.0], 7, [1, 2])


@pytest.mark.parametrize("state", [7, np.arange(2), [1, {"x": None}], (1, "a"), {"a": 1}])
def test_an_object_with_get_state_is_restored_in_place(trip, state: Any):
    target = GetState(None)

    assert trip.restored(GetState(state), target) is target
    assert repr(target.state) == repr(state)


def test_nested_objects_are_restored_in_place_too(trip):
    inner, target_inner = StateDict(x=1), StateDict(x=0)
    target = StateDict(inner=target_inner, rng=np.random.default_rng(1))

    trip.restored(StateDict(inner=inner, rng=np.random.default_rng(2)), target)

    assert target.state["inner"] is target_inner
    assert target_inner.state == {"x": 1}
    assert target.state["rng"].random() == np.random.default_rng(2).random()


def test_the_adapter_s_id_and_kind_are_written_down(trip):
    assert (trip.component(StateDict()).adapter, trip.component(GetState(1)).adapter) == ("state-dict", "get-state")


def test_another_structure_is_a_finding_and_nothing_is_loaded(trip):
    target = StateDict(w=np.zeros(2), b=1)

    assert trip.findings(StateDict(w=np.zeros(3)), target) == [
        ("c/state/w", "float64 3", "float64 2"),
        ("c/state/b", "missing", "int"),
    ]


def test_another_kind_of_object_is_a_finding(trip):
    found = trip.findings({"net": [1]}, {"net": StateDict(x=1)})

    assert [finding[::2] for finding in found] == [("c/net", "StateDict")]


def test_half_a_pair_of_methods_is_not_enough(trip):
    with pytest.raises(UnknownObjectError, match=r"^c: no adapter knows a .*OnlyHalf, and perdure never pickles"):
        trip.component(OnlyHalf())


def test_what_the_object_returns_is_captured_with_its_path(trip):
    with pytest.raises(UnknownObjectError, match=r"^c/state/env: no adapter knows a builtins\.object"):
        trip.component(StateDict(env=object()))


class Busy(StateDict):
    """Answers neither question while `busy`."""

    busy = False

    def state_dict(self) -> dict[str, Any]:
        self._answer()
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._answer()

    def _answer(self) -> None:
        if self.busy:
            raise OSError("the simulator is busy.")


def test_an_error_of_a_users_state_dict_names_the_object_and_the_method(tmp_path: Path):
    run = perdure.Run(tmp_path / "run", every=perdure.Every(updates=1), background=False)
    inner = Busy(x=1)
    with run:
        run.restore(outer=StateDict(inner=inner))
        inner.busy = True
        refusal = (
            r"^outer/state/inner: Busy\.state_dict\(\) raised OSError: the simulator is busy\. It is asked whenever"
        )
        with pytest.raises(CaptureError, match=refusal):
            run.boundary(env_steps=1)
        inner.busy = False
        run.boundary(env_steps=1)


class Half(StateDict):
    """Does not take its state the first time."""

    fails = True

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.fails:
            self.fails = False
            raise ValueError("half done.")
        super().load_state_dict(state)


def test_an_error_of_a_users_load_state_dict_names_the_object_and_the_method(tmp_path: Path):
    perdure.save(tmp_path / "saved", it=[Half(x=1)])

    refusal = r"restoring failed: it/0: Half\.load_state_dict\(\) raised ValueError: half done\. The state from before"
    with pytest.raises(RestoreError, match=refusal):
        perdure.load(tmp_path / "saved", it=[Half(x=2)])


class Deaf(StateDict):
    """Forgets what it is told."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def test_what_does_not_take_its_state_is_found_and_the_place_is_told_once(tmp_path: Path):
    perdure.save(tmp_path / "saved", it=Deaf(x=1))

    with pytest.raises(RestoreError, match=r"^saved: restoring failed: captured again, 1 leaves differ .*it/state/x"):
        perdure.load(tmp_path / "saved", it=Deaf(x=2))
