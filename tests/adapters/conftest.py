"""A round trip through a store, for every adapter's tests."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perdure.adapters import Adapter
from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.restore import restore
from perdure.checkpoint.save import About, save
from perdure.errors import ContractError
from perdure.format.state_digest import component_digests
from perdure.store.memory import MemoryStore
from perdure.tree.leaves import Tree
from perdure.tree.snapshot import Component, Snapshot


class Trip:
    """Objects as the component `c`, saved, read back and restored."""

    def __init__(self, extra: Sequence[tuple[type, Adapter]] = ()) -> None:
        self._resolver = Resolver(extra)

    def component(self, obj: Any) -> Component:
        """What capturing `obj` makes."""
        return capture({"c": obj}, self._resolver, Counters()).snapshot.components["c"]

    def tree(self, obj: Any) -> Tree:
        """Its tree."""
        return self.component(obj).tree

    def digest(self, obj: Any) -> str:
        """The digest of its state."""
        return component_digests(capture({"c": obj}, self._resolver, Counters()).snapshot)["c"]

    def saved(self, obj: Any) -> Snapshot:
        """Its snapshot after a round trip through a store."""
        store = MemoryStore()
        save(store, "step", capture({"c": obj}, self._resolver, Counters()).snapshot, About())
        return open_checkpoint(store, "step").snapshot

    def restored(self, obj: Any, target: Any) -> Any:
        """What restoring the saved state of `obj` into `target` gives, proven equal in state."""
        wanted = self.digest(obj)
        result = restore(self.saved(obj), {"c": target}, self._resolver, "step").objects["c"]
        assert self.digest(result) == wanted
        return result

    def findings(self, obj: Any, target: Any) -> list[tuple[str, str, str]]:
        """Why the saved state of `obj` does not fit `target`: (place, saved, found); nothing may have changed."""
        return [(finding.key, finding.saved, finding.found) for finding in self.refusal(obj, target).findings]

    def refusal(self, obj: Any, target: Any) -> ContractError:
        """The same as the exception."""
        snapshot, before = self.saved(obj), self.digest(target)
        with pytest.raises(ContractError) as caught:
            restore(snapshot, {"c": target}, self._resolver, "step")
        assert self.digest(target) == before
        return caught.value

    def fits(self, obj: Any, target: Any) -> bool:
        """Whether the saved state of `obj` can be restored into `target`; where it cannot, that is a finding."""
        try:
            self.restored(obj, target)
        except ContractError:
            return False
        return True


@pytest.fixture
def trip() -> Trip:
    return Trip()


@pytest.fixture
def trip_with() -> Callable[..., Trip]:
    """A trip whose resolver knows a user's own adapters."""
    return Trip
