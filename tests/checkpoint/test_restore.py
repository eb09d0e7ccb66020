"""Restore: every target fits or nothing changes; shared objects come back shared."""

import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.checkpoint.restoring import Box, digests, findings_of, restored, saved

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.restore import Conditions, restore
from perdure.errors import ContractError, Finding
from perdure.store.local import LocalStore
from perdure.store.memory import MemoryStore
from perdure.store.store import Store


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "checkpoints", tmp_path / "damaged")


def broad_state(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=3)
    return {
        "net": Box(w=rng.normal(size=(2, 3)), b=np.asfortranarray(rng.normal(size=(2, 2))), frozen=None),
        "rng": rng,
        "python": random.Random(seed),
        "observation": rng.normal(size=4).astype(np.float32),
        "step": seed,
        "history": [float(at) for at in range(seed)],
        "queue": deque([1, 2], maxlen=4),
        "shared": (shared, {"x": shared}),
    }


def test_a_broad_state_comes_back_out_of_every_store(store: Store):
    state = broad_state(5)
    wanted = digests(**state)
    snapshot = saved(state, store)

    targets = broad_state(2)
    assert digests(**targets) != wanted
    objects = restored(snapshot, **targets)

    assert digests(**objects) == wanted
    assert all(objects[name] is targets[name] for name in ("net", "rng", "python"))
    assert objects["rng"].random() == state["rng"].random()
    assert objects["python"].gauss(0, 1) == state["python"].gauss(0, 1)


def test_the_names_of_values_come_with_the_objects():
    snapshot = saved({"net": Box(w=np.zeros(1)), "step": 5})

    assert restore(snapshot, {"net": Box(w=np.ones(1)), "step": 0}, Resolver(), "step").values == {"step"}


def test_restored_values_have_memory_of_their_own():
    """A restore adopts the arrays of its snapshot, each of which the open gave memory that nobody else has."""
    state = {"x": np.zeros(2), "y": np.zeros(2), "net": Box(w=np.zeros(2))}
    snapshots = [saved(state), saved(state)]

    first, second = (restored(each, x=np.ones(2), y=np.ones(2), net=Box(w=np.ones(2))) for each in snapshots)
    assert first["x"] is snapshots[0].components["x"].tree.value
    first["x"][:] = 5
    first["net"].state["w"][:] = 5

    assert first["y"].tolist() == [0, 0]
    assert second["x"].tolist() == second["net"].state["w"].tolist() == [0, 0]
    assert state["x"].tolist() == state["net"].state["w"].tolist() == [0, 0]


def test_every_finding_is_listed_at_once_and_nothing_changes():
    snapshot = saved(
        {
            "net": Box(w=np.zeros((2, 3)), b=np.zeros(3)),
            "rng": np.random.default_rng(1),
            "gone": 1,
            "obs": np.zeros(3, np.float32),
            "same": 4,
        }
    )

    found = findings_of(
        snapshot,
        net=Box(w=np.zeros((2, 4)), c=np.zeros(3)),
        rng=np.random.Generator(np.random.MT19937(1)),
        obs=np.zeros(3),
        extra=2,
        same=9,
    )

    assert [(finding.key, finding.saved, finding.found) for finding in found] == [
        ("extra", "no such component", "a target"),
        ("gone", "a component", "nothing"),
        ("net/state/w", "float64 2×3", "float64 2×4"),
        ("net/state/b", "float64 3", "missing"),
        ("net/state/c", "missing", "ndarray"),
        ("obs", "float32 3", "float64 3"),
        ("rng/bit_generator", "PCG64", "MT19937"),
    ]


def test_the_message_counts_the_differences_and_says_that_nothing_was_changed():
    with pytest.raises(ContractError) as caught:
        restored(saved({"x": np.zeros(3)}), x=np.zeros(4))

    assert str(caught.value) == (
        "step: this is not the same run: 1 difference; nothing was changed.\n"
        "  x: float64 3 in the run, float64 4 here. Build it with the run's sizes."
    )


def test_findings_of_before_are_told_together_with_those_of_the_targets():
    before = Finding("seed.seed", "1", "2", "Pass the saved one.")

    with pytest.raises(ContractError) as caught:
        restore(saved({"x": 1}), {}, Resolver(), "step", conditions=Conditions([before]))

    assert [finding.key for finding in caught.value.findings] == ["seed.seed", "x"]


def test_a_missing_and_an_extra_component_say_the_way_out():
    found = findings_of(saved({"a": 1}), b=2)

    assert [finding.advice for finding in found] == [
        "Hand a=… to restore.",
        "Leave b out, or start a new run that has it from the beginning.",
    ]


def test_facts_are_compared_by_name():
    snapshot = saved({"net": Box(activation=abs, init=len, dtype=np.float32, same=max)})

    found = findings_of(snapshot, net=Box(activation=round, init=None, dtype=np.float64, same=max))

    assert [(finding.key, finding.saved, finding.found) for finding in found] == [
        ("net/state/activation", "function builtins:abs", "function builtins:round"),
        ("net/state/dtype", "class numpy:float32", "class numpy:float64"),
        ("net/state/init", "function builtins:len", "no function"),
    ]
    assert {f.advice for f in found} == {
        "Build it with the function, class or dtype that the run used, or accept the change."
    }


def test_a_fact_where_state_was_saved_is_a_finding():
    found = findings_of(saved({"net": Box(scale=0.5)}), net=Box(scale=abs))

    assert [(finding.key, finding.saved, finding.found) for finding in found] == [
        ("net/state/scale", "state", "function builtins:abs")
    ]


# Sharing.


def test_shared_values_come_back_shared_within_and_between_components():
    x, history = np.zeros(2), [1.0]
    snapshot = saved({"a": {"x": x, "h": history}, "b": (x, history), "c": [x, x]})

    apart = np.ones(2), np.ones(2), np.ones(2), np.ones(2)
    objects = restored(snapshot, a={"x": apart[0], "h": [2.0]}, b=(apart[1], [3.0]), c=[apart[2], apart[3]])

    assert objects["a"]["x"] is objects["b"][0]
    assert objects["c"][0] is objects["c"][1] is objects["a"]["x"]
    assert objects["a"]["h"] is objects["b"][1]


def test_shared_live_objects_stay_shared():
    rng = np.random.default_rng(1)
    target = np.random.default_rng(2)

    objects = restored(saved({"a": [rng], "b": {"rng": rng}}), a=[target], b={"rng": target})

    assert objects["a"][0] is objects["b"]["rng"] is target


def test_lost_sharing_is_refused():
    rng = np.random.default_rng(1)

    found = findings_of(saved({"a": [rng], "b": rng}), a=[np.random.default_rng(1)], b=np.random.default_rng(1))

    assert [(finding.key, finding.saved, finding.found, finding.advice) for finding in found] == [
        ("b", "the same object as a/0", "an object of its own", "Share objects as the run did.")
    ]


def test_sharing_that_the_run_did_not_have_is_refused():
    rng = np.random.default_rng(1)

    found = findings_of(saved({"a": [np.random.default_rng(1)], "b": np.random.default_rng(1)}), a=[rng], b=rng)

    assert [(finding.key, finding.saved, finding.found) for finding in found] == [
        ("b", "an object of its own", "the same object as a/0")
    ]


def test_an_object_that_contains_itself_comes_back():
    def cyclic(x: int) -> Box:
        box = Box(x=x)
        box.state["me"] = box
        return box

    target = cyclic(0)
    objects = restored(saved({"box": cyclic(1)}), box=target)

    assert objects["box"] is target
    assert target.state["x"] == 1
    assert target.state["me"] is target
