"""A checkpoint with every kind of node, to be changed by somebody who wants to do harm."""

from functools import cache

import numpy as np

from perdure.checkpoint.save import About, save
from perdure.format.digests import digest_of
from perdure.store.memory import MemoryStore
from perdure.tree.leaves import Alias, Array, PRNGKey
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Component, Snapshot

RING = {"obs": np.arange(40, dtype=np.float32).reshape(20, 2)}


@cache
def files() -> dict[str, bytes]:
    """A checkpoint with every kind of node."""
    components = {
        "counts": Component("dict", {"n": 2**70, "x": -0.0, "b": b"\0", "c": 1j}, {"f": "fn g"}),
        "keys": Component("dict", {"k": PRNGKey("threefry2x32", Array(np.arange(2, dtype=np.uint32)))}),
        "replay": Component("x-ring", {"rows": Rows(3, 17, RING)}),
        "shared": Component("dict", {"w": Alias(("weights", "kernel")), "l": [1, (2,)]}, made={("w",): "x-mine"}),
        "weights": Component("dict", {"kernel": Array(np.asfortranarray(np.ones((3, 2)))), "b": Array(np.ones(2))}),
    }
    store = MemoryStore()
    about = About(
        run_id="r",
        contract={"env": {"id": "x"}},
        metrics={"offset": 0, "digest": digest_of(b"")},
        scores={"r": 1.0},
        amended=["env.id=y:x"],
        trained_s=1.5,
    )
    save(store, "c", Snapshot(components, 1, 1, 1), about)
    return store.entries["c"]
