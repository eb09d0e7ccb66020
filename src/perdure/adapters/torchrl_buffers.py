"""Replay buffers of TorchRL: storage, writer, sampler and generator, part by part.

Their own `state_dict` loses where the last write ended, which slice samplers go by, holds C++ objects for priorities
and memory that was never written, and says which keys are nested in an attribute of an `OrderedDict`, which a tree does
not hold. So each class is taken by its known attributes; a class or an attribute that is not known is refused.
"""

import sys
from math import prod
from typing import Any

import torch

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.row_checks import check_rows
from perdure.adapters.torch_dtypes import array_of, tensor_from
from perdure.adapters.torchrl_storages import fill, forget, knows, lay_out, layout_of, refused, rows_of
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree
from perdure.tree.rows import Rows

ROWS, LAYOUT, LENGTH, LAST = "rows", "layout", "length", "last_cursor"
WRITER, SAMPLER, RNG, BATCH = "writer", "sampler", "rng", "batch_size"

_BUFFERS = frozenset(
    {"PrioritizedReplayBuffer", "ReplayBuffer", "TensorDictPrioritizedReplayBuffer", "TensorDictReplayBuffer"}
)
_WRITERS = frozenset({"RoundRobinWriter", "TensorDictRoundRobinWriter"})
_SAMPLERS = frozenset(
    {
        *("RandomSampler", "SamplerWithoutReplacement", "SliceSampler", "SliceSamplerWithoutReplacement"),
        *("PrioritizedSampler", "PrioritizedSliceSampler"),
    }
)
_STATE = frozenset(
    {
        *("_sample_list", "len_storage", "_ran_out", "_remaining_batches", "_storage_len_buffer"),
        *("_max_priority", "_alpha", "_beta", "_fetch_traj", "_traj_key_auto", "traj_key"),
        *("__used_traj_key", "__used_end_key"),
    }
)
_TREES = frozenset({"_sum_tree", "_min_tree"})
_CHOSEN = frozenset(
    {
        *("drop_last", "shuffle", "num_slices", "slice_len", "step_key", "end_key", "end_keys", "truncated_key"),
        *("init_key", "strict_length", "pad_output", "span", "cache_values", "reduction", "dtype"),
        *("_max_capacity", "_eps", "_max_priority_within_buffer"),
    }
)
"""Arguments of samplers: compared, not restored."""
_NO_STATE = frozenset(
    {"_rng", "_cache", "fragmented", "_fragmented_index", "compile", "use_gpu", "_gpu_device", "_device"}
)
"""The cache is filled again from the storage; `_refuse_sampler` sees to the others."""


class Buffer(ExactAdapter):
    """`ReplayBuffer` and `TensorDictReplayBuffer`, prioritised or not, over storages of tensors.

    Not over a `ListStorage`, whose elements are objects of any kind.
    """

    id = "torchrl-replay-buffer"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The rows, borrowed, and the state of the other parts.

        Raises:
            CaptureError: a part or an argument that is not known.
        """
        _refuse_buffer(obj, walk)
        for part in (obj._storage, obj._writer, obj._sampler):
            if not walk.claim(part):
                kind = type(part).__qualname__
                raise refused(walk, f"a {kind} that two buffers share", "Give each buffer its own")
        walk.facts[(walk.path[0], "torchrl")] = sys.modules["torchrl"].__version__
        storage, writer = obj._storage, obj._writer
        walk.fact(repr(getattr(obj, "priority_key", None)), "priority_key")
        walk.fact(repr(storage.ndim), "ndim")
        return {
            ROWS: rows_of(storage, writer._cursor, walk),
            LAYOUT: layout_of(storage),
            LENGTH: storage._len,
            LAST: storage._last_cursor_index,  # of `_last_cursor`, which may be long, everyone reads the last index
            WRITER: [writer._cursor, writer._write_count],
            SAMPLER: walk.at(SAMPLER, lambda: _capture_sampler(obj._sampler, walk)),
            BATCH: obj._batch_size,
            RNG: walk.capture(obj._rng, RNG),
        }

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same size and columns, where there are any, and the same kind of sampler."""
        _refuse_buffer(obj, walk)
        parts = {ROWS, LAYOUT, LENGTH, LAST, WRITER, SAMPLER, BATCH, RNG}
        if not isinstance(tree, dict) or tree.keys() != parts:
            return [walk.finding(summary(tree), type(obj).__name__, "Build the buffer as the run did.")]
        own, saved = rows_of(obj._storage, 0, walk), tree[ROWS]
        findings = walk.check(obj._rng, tree[RNG], RNG)
        if saved is not None and own is not None:
            findings += check_rows(own, saved, walk, ROWS, capacity="max_size")
        elif saved is not None:
            findings += _other_size(obj._storage, saved, walk)
        kinds = [sorted(name for name in tree[SAMPLER] if name in _TREES), sorted(_TREES & vars(obj._sampler).keys())]
        if kinds[0] != kinds[1]:
            findings.append(walk.finding(*map(repr, kinds), "Build it with the run's sampler.", SAMPLER))
        return findings

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place; an empty storage is laid out first. What a sampler kept in its cache, it looks for again."""
        storage = obj._storage
        _restore_rows(storage, tree, walk)
        storage._set_last_cursor(tree[LAST])
        storage._bump_mutation_revision()
        obj._writer._cursor, obj._writer._write_count = tree[WRITER]
        obj._batch_size = tree[BATCH]
        walk.at(SAMPLER, lambda: _restore_sampler(obj._sampler, tree[SAMPLER], walk))
        walk.restore(obj._rng, tree[RNG], RNG)
        return obj


def _other_size(storage: Any, saved: Rows, walk: Walk) -> list[Finding]:
    """Of an empty storage: rows stand where they stood, so there must be as many."""
    inner = prod(next(iter(saved.columns.values())).shape[1 : storage.ndim])
    if -(-storage.max_size // inner) == saved.capacity:
        return []
    sizes = (f"max_size {saved.capacity * inner:,}", f"max_size {storage.max_size:,}")
    return [walk.finding(*sizes, "Build it with the run's max_size: rows stand where they stood.", ROWS)]


def _restore_rows(storage: Any, tree: Tree, walk: Walk) -> None:
    saved = tree[ROWS]
    if saved is None:
        if storage.initialized:
            forget(storage)
        return
    if not storage.initialized:
        lay_out(storage, tree[LAYOUT], saved)
    own = rows_of(storage, 0, walk)
    if own is not None:
        fill(storage, saved, own)
    storage._len = tree[LENGTH]


def _capture_sampler(sampler: Any, walk: Walk) -> Tree:
    held = vars(sampler)
    walk.fact(type(sampler).__qualname__)
    for name in sorted(_CHOSEN & held.keys()):
        walk.fact(repr(held[name]), name)
    state = {name: walk.capture(held[name], name) for name in sorted(_STATE & held.keys())}
    return state | {name: array_of(held[name][_places(held[name])]) for name in sorted(_TREES & held.keys())}


def _restore_sampler(sampler: Any, tree: Tree, walk: Walk) -> None:
    held = vars(sampler)
    for name in _STATE & held.keys() - tree.keys():
        del held[name]
    for name, saved in tree.items():
        if name in _TREES:
            held[name][_places(held[name])] = tensor_from(saved.value)  # each sum is added up from its two parts anew
        else:
            held[name] = walk.rebuild_at(saved, name)
    held.get("_cache", {}).clear()


def _places(tree: Any) -> torch.Tensor:
    return torch.arange(len(tree))


def _refuse_buffer(obj: Any, walk: Walk) -> None:
    """What is not known would be lost in silence.

    Raises:
        CaptureError: with the way out.
    """
    _refuse_class(obj, _BUFFERS, walk)
    if not obj._initialized:
        raise refused(walk, "a buffer whose initialisation is delayed", "Build it without delayed_init")
    _refuse_class(obj._writer, _WRITERS, walk)
    _refuse_class(obj._sampler, _SAMPLERS, walk)
    if obj._prefetch_cap:
        raise refused(walk, "batches that threads drew ahead of time", "Build the buffer with prefetch=0")
    if not knows(obj._storage):
        kind = type(obj._storage).__qualname__
        raise refused(walk, f"a storage of the class {kind}", "Use a LazyTensorStorage or a LazyMemmapStorage")
    for name in ("_sample_unit", "_update_executor"):
        if getattr(obj, name, None) is not None:
            raise refused(walk, f"a buffer with {name}", "Build it without")
    if len(obj._transform):
        raise refused(walk, "the transforms of a buffer, which may hold state", "Transform what goes in and comes out")
    if obj._writer._track_generations:
        raise refused(walk, "a writer with track_generations", "Build it without")
    _refuse_sampler(obj._sampler, walk)


def _refuse_class(part: Any, known: frozenset[str], walk: Walk) -> None:
    """A subclass may hold more."""
    kind = type(part)
    if not kind.__module__.startswith("torchrl.data.") or kind.__qualname__ not in known:
        raise refused(walk, f"a {kind.__qualname__} of TorchRL", f"It knows {', '.join(sorted(known))}")


def _refuse_sampler(sampler: Any, walk: Walk) -> None:
    held = vars(sampler)
    for name in ("fragmented", "compile", "use_gpu", "_device"):
        if held.get(name):
            raise refused(walk, f"a sampler with {name}", "Build it without")
    unknown = sorted(held.keys() - _STATE - _TREES - _CHOSEN - _NO_STATE)
    if unknown:
        raise refused(walk, f"{unknown} of a {type(sampler).__qualname__}", "They came with another TorchRL than 0.14")
    if "static-stop-and-length" in held.get("_cache", ()):
        raise refused(walk, "a sampler with ends or trajectories of its own", "Give it a traj_key or an end_key")
