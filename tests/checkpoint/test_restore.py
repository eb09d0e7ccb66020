"""Restore: all targets or none, generators last, shared objects shared."""

import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.restore import Conditions, restore
from perdure.checkpoint.save import About, save
from perdure.errors import ContractError, Finding, RestoreError
from perdure.format.state_digest import component_digests
from perdure.store.local import LocalStore
from perdure.store.memory import MemoryStore
from perdure.store.store import Store
from perdure.tree.snapshot import Snapshot


class Box:
    """An object that speaks for itself, with a load that can be made to fail."""

    def __init__(self, **state: Any) -> None:
        self.state = state
        self.loads = 0
        self.fail_at: frozenset[int] = frozenset()

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loads += 1
        if self.loads in self.fail_at:
            raise ZeroDivisionError("the disk of cards fell over")
        self.state = state


def saved(state: dict[str, Any], store: Store | None = None) -> Snapshot:
    """The state after a round trip through a store."""
    store = store or MemoryStore()
    save(store, "step", capture(state, Resolver(), Counters(7, 5, 3)).snapshot, About())
    return open_checkpoint(store, "step").snapshot


def restored(snapshot: Snapshot, **targets: Any) -> dict[str, Any]:
    return restore(snapshot, targets, Resolver(), "step").objects


def digests(**objects: Any) -> dict[str, str]:
    return component_digests(capture(objects, Resolver(), Counters()).snapshot)


def findings_of(snapshot: Snapshot, **targets: Any) -> list[Finding]:
    """The findings of a refused restore, which must have changed nothing."""
    before = digests(**targets)
    with pytest.raises(ContractError) as caught:
        restored(snapshot, **targets)
    assert digests(**targets) == before
    return list(caught.value.findings)


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


# All or nothing.


def unlucky(**state: Any) -> Box:
    """A box whose first load fails, and whose next ones work."""
    box = Box(**state)
    box.fail_at = frozenset({1})
    return box


@pytest.mark.parametrize("failing", ["a", "m", "z"])
def test_a_load_that_fails_half_way_puts_everything_back(failing: str):
    snapshot = saved({**{name: Box(x=1) for name in "amz"}, "rng": np.random.default_rng(1), "list": [Box(x=1)]})
    objects = {name: unlucky(x=0) if name == failing else Box(x=0) for name in "amz"}
    targets = {**objects, "rng": np.random.default_rng(2), "list": [Box(x=0)]}
    before = digests(**targets)

    with pytest.raises(RestoreError) as caught:
        restored(snapshot, **targets)

    assert str(caught.value) == (
        "step: restoring failed: the disk of cards fell over. The state from before has been put back."
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert digests(**targets) == before
    assert objects[failing].loads == 2


def test_an_interrupt_half_way_puts_everything_back_too():
    """Ctrl-C in a slow load must not leave half of the objects restored: the exception goes on, all is as before."""

    class Interrupted(Box):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.loads += 1
            if self.loads == 1:
                raise KeyboardInterrupt
            self.state = state

    snapshot = saved({"a": Box(x=1), "b": Box(x=1)})
    targets = {"a": Box(x=0), "b": Interrupted(x=0)}
    before = digests(**targets)

    with pytest.raises(KeyboardInterrupt):
        restored(snapshot, **targets)

    assert digests(**targets) == before


def test_what_was_put_back_is_out_of_reach_of_the_objects_own_writes():
    """The state captured before must be a copy: a load that writes in place would change it, too."""

    class InPlace(Box):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.state["w"][:] = state["w"]
            super().load_state_dict(self.state)

    target = InPlace(w=np.zeros(3))
    target.fail_at = frozenset({1})

    with pytest.raises(RestoreError, match="put back"):
        restored(saved({"net": Box(w=np.ones(3))}), net=target)

    assert target.state["w"].tolist() == [0, 0, 0]


def test_a_state_that_cannot_even_be_put_back_is_said():
    target = Box(x=0)
    target.fail_at = frozenset({1, 2})

    with pytest.raises(RestoreError) as caught:
        restored(saved({"net": Box(x=1)}), net=target)

    assert str(caught.value).endswith(
        "Putting the state from before back failed too (the disk of cards fell over): do not go on with these objects."
    )


def test_a_load_that_forgets_is_found_by_capturing_again_and_put_back():
    class Forgetful(Box):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.state = {**state, "count": self.state["count"]}

    target = Forgetful(count=0, w=np.zeros(2))

    with pytest.raises(RestoreError) as caught:
        restored(saved({"net": Box(count=9, w=np.ones(2))}), net=target)

    assert "captured again, 1 leaves differ from the checkpoint (saved | now): net/state/count: 9 | 0" in str(
        caught.value
    )
    assert target.state["w"].tolist() == [0, 0]


# Random number generators.


class Drawing(Box):
    """A user's object whose load draws from a generator, as building a network does."""

    def __init__(self, rng: np.random.Generator, **state: Any) -> None:
        super().__init__(**state)
        self.rng = rng

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rng.normal(size=10)
        super().load_state_dict(state)


@pytest.mark.parametrize("name", ["a_net", "z_net"])
def test_generators_are_restored_last(name: str):
    """Before or after the generator by name, an object that draws while it loads leaves no trace in it."""
    run = np.random.default_rng(1)
    run.normal(size=3)
    snapshot = saved({"m_rng": run, name: Drawing(run, x=1)})
    target = np.random.default_rng(2)

    restored(snapshot, **{"m_rng": target, name: Drawing(target, x=0)})

    assert target.bit_generator.state == run.bit_generator.state


def test_generators_are_put_back_when_a_later_load_fails():
    target = np.random.default_rng(2)
    failing = Drawing(target, x=0)
    failing.fail_at = frozenset({1})
    before = target.bit_generator.state

    with pytest.raises(RestoreError):
        restored(
            saved({"m_rng": np.random.default_rng(1), "z": Drawing(np.random.default_rng(1), x=1)}),
            m_rng=target,
            z=failing,
        )

    assert target.bit_generator.state == before


def test_a_refused_restore_does_not_touch_any_generator():
    rng = np.random.default_rng(2)
    before = (rng.bit_generator.state, random.getstate())

    findings_of(saved({"rng": np.random.default_rng(1), "x": np.zeros(1)}), rng=rng, x=np.zeros(2))

    assert (rng.bit_generator.state, random.getstate()) == before


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
