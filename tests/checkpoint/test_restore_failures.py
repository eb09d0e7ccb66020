"""Restoring that fails half-way: everything is put back, the generators too, which are restored last."""

import random
from typing import Any

import numpy as np
import pytest
from tests.checkpoint.restoring import Box, digests, findings_of, restored, saved

from perdure.errors import RestoreError


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
        f"step: restoring failed: {failing}: Box.load_state_dict() raised ZeroDivisionError: the disk of cards fell "
        "over. The state from before has been put back."
    )
    assert isinstance(getattr(caught.value.__cause__, "__cause__", None), ZeroDivisionError)
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
        "Putting the state from before back failed too (net: Box.load_state_dict() raised ZeroDivisionError: the disk "
        "of cards fell over): do not go on with these objects."
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
