"""NumPy's random number generators, restored in place, with the spawn count of their seed sequence."""

from typing import Any

import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import PLAIN_TYPES, Alias, Array, Tree


class Generator(ExactAdapter):
    """`np.random.Generator`: all its state is its bit generator's, which two generators may share."""

    id = "numpy-generator"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The bit generator's tree."""
        return {"bit_generator": walk.capture(obj.bit_generator, "bit_generator")}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The bit generator's findings."""
        if not isinstance(tree, dict) or tree.keys() != {"bit_generator"}:
            return [walk.finding(summary(tree), "a numpy Generator", "Hand in a Generator, as the run did.")]
        return walk.check(obj.bit_generator, tree["bit_generator"], "bit_generator")

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Restores the bit generator in place."""
        walk.restore(obj.bit_generator, tree["bit_generator"], "bit_generator")
        return obj


_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


class BitGenerator(ExactAdapter):
    """Any NumPy bit generator: by name, state and seed sequence."""

    id = "numpy-bit-generator"
    kind: Kind = "live"
    is_rng = True
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Name, state (copied by NumPy) and seed sequence with its spawn count."""
        return {"state": _from_numpy(obj.state), "seed_sequence": walk.capture(obj.seed_seq, "seed_sequence")}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same kind of bit generator."""
        if not isinstance(tree, dict) or tree.keys() != {"state", "seed_sequence"}:
            return [walk.finding(summary(tree), "a bit generator", "Hand in a bit generator, as the run did.")]
        saved, found = tree["state"]["bit_generator"], type(obj).__name__
        if saved != found:
            return [walk.finding(saved, found, f"Build it with np.random.{saved}.")]
        return walk.check(obj.seed_seq, tree["seed_sequence"], "seed_sequence")

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets state and seed sequence in place."""
        sequence = walk.restore(obj.seed_seq, tree["seed_sequence"], "seed_sequence")
        if sequence is obj.seed_seq:
            obj.state = walk.rebuild(tree["state"])
        else:
            obj.__setstate__((walk.rebuild(tree["state"]), sequence))  # the only way to change a seed sequence
        return obj


class SeedSequence(ExactAdapter):
    """Seed sequences: entropy, spawn key, and how many children were spawned."""

    id = "numpy-seed-sequence"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """Everything that decides its children; a sequence of a user's own class by its entropy alone."""
        return {
            "entropy": _from_numpy(obj.entropy),
            "spawn_key": tuple(int(part) for part in obj.spawn_key),
            "pool_size": obj.pool_size,
            "n_children_spawned": obj.n_children_spawned,
        }

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The kind must be the same; the values are restored."""
        parts = {"entropy", "spawn_key", "pool_size", "n_children_spawned"}
        if isinstance(tree, dict) and tree.keys() == parts:
            return []
        return [walk.finding(summary(tree), "a SeedSequence", "Hand in a SeedSequence, as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The target, advanced, where it is the same sequence (others may hold it); else a new one."""
        saved = walk.rebuild(tree)
        same = all(np.array_equal(getattr(obj, name), saved[name]) for name in ("entropy", "spawn_key", "pool_size"))
        behind = saved["n_children_spawned"] - obj.n_children_spawned
        if same and behind >= 0:
            obj.spawn(behind)
            return obj
        return np.random.SeedSequence(**saved)


class RandomState(ExactAdapter):
    """The legacy `np.random.RandomState`, with its cached Gaussian."""

    id = "numpy-random-state"
    kind: Kind = "live"
    is_rng = True
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The full state dict, which NumPy copies."""
        return _from_numpy(obj.get_state(legacy=False))

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same kind of bit generator."""
        found = obj.get_state(legacy=False)["bit_generator"]
        if isinstance(tree, dict) and tree.get("bit_generator") == found:
            return []
        return [walk.finding(summary(tree), f"RandomState on {found}", "Hand in a RandomState, as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the state in place."""
        obj.set_state(walk.rebuild(tree))
        return obj


def _from_numpy(state: Any) -> Tree:
    if type(state) in PLAIN_TYPES:  # most parts are
        return state
    if isinstance(state, dict):
        return {key: _from_numpy(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(map(_from_numpy, state))
    if isinstance(state, np.ndarray):
        return Array(state.copy())
    return state.item() if isinstance(state, np.generic) else state


def new_generator(saved: Tree) -> np.random.Generator:
    """A Generator of the saved kind, in whatever state."""
    return np.random.Generator(getattr(np.random, bit_generator_of(saved) or "PCG64")())


def bit_generator_of(saved: Tree) -> str | None:
    """The kind of bit generator of a saved Generator; None if something else was saved."""
    if isinstance(saved, Alias | Array) or not isinstance(saved, dict):
        return None
    inner = saved.get("bit_generator")
    state = inner.get("state") if isinstance(inner, dict) and inner.keys() == {"state", "seed_sequence"} else None
    kind = state.get("bit_generator") if isinstance(state, dict) else None
    return kind if kind in _BIT_GENERATORS else None
