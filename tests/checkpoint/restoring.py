"""A state on its way through a store and back into objects: shared by the tests of restoring."""

from typing import Any

import pytest

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.restore import restore
from perdure.checkpoint.save import About, save
from perdure.errors import ContractError, Finding
from perdure.format.state_digest import component_digests
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
