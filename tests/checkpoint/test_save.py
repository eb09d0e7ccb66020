"""Save: the same snapshot out of every store; what cannot be committed leaves nothing."""

import random
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.opening import open_checkpoint, read_manifest
from perdure.checkpoint.save import PIECE_BYTES, About, save
from perdure.errors import CommitError, UnsupportedLeafError
from perdure.format.digests import digest_of
from perdure.store.local import LocalStore
from perdure.store.memory import MemoryStaging, MemoryStore
from perdure.store.store import Bytes, Store
from perdure.tree.diff import diff_snapshots
from perdure.tree.leaves import Alias, Array, PRNGKey
from perdure.tree.snapshot import Component, Snapshot


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "checkpoints", tmp_path / "damaged")


def broad_state() -> dict[str, Any]:
    frame = np.arange(4, dtype=np.uint8)
    return {
        "arrays": {
            "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            "big": np.arange(3, dtype=">f4"),
            "bf16": np.arange(3).astype(ml_dtypes.bfloat16),
            "int4": np.arange(3).astype(ml_dtypes.int4),
            "c16": np.array([1 + 2j, complex(-0.0, float("nan"))]),
            "bool": np.array([[True], [False]]),
            "when": np.array(["2020-01-01", "NaT"], "M8[s]"),
            "names": np.array(["a", "übung"]),
            "empty": np.zeros((0, 3)),
            "scalar": np.asarray(3.0),
            "gaps": np.arange(10)[::3],
            "broadcast": np.broadcast_to(np.arange(3), (2, 3)),
        },
        "numbers": [None, True, -(2**80), -0.0, float("nan"), 1j, "tëxt", b"\x00", np.float32(1.5), np.bool_(True)],
        "shared": (frame, [frame], {"frame": frame, 3: 1, "3": 2}),
        "history": deque([1.0, 2.0], maxlen=5),
        "rng": [np.random.default_rng(3), random.Random(4), np.random.RandomState(5)],
        "nothing": None,
    }


def snapshot_of(state: dict[str, Any], counters: Counters = Counters(100, 10, 5)) -> Snapshot:  # noqa: B008 - frozen
    return capture(state, Resolver(), counters).snapshot


def keys_and_weak_types() -> Snapshot:
    """What only frameworks hold, as the tree that their adapters make."""
    tree = {
        "key": PRNGKey("threefry2x32", Array(np.array([[1, 2], [3, 4]], np.uint32))),
        "weak": Array(np.ones((), np.float32), weak_type=True),
        "again": Alias(("c", "weak")),
    }
    return Snapshot({"c": Component("x-own", tree, {"fn": "function a:b"}, "exact-replay", "c: opaque")}, 1, 2, 3)


@pytest.mark.parametrize(
    "snapshot", [snapshot_of(broad_state()), keys_and_weak_types(), snapshot_of({})], ids=["broad", "keys", "empty"]
)
def test_a_snapshot_comes_back_bit_by_bit(store: Store, snapshot: Snapshot):
    saved = save(store, "step", snapshot, About())
    opened = open_checkpoint(store, "step")

    assert diff_snapshots(opened.snapshot, snapshot) == []
    assert (opened.name, opened.digest, opened.manifest.state_digest) == ("step", saved.digest, saved.state_digest)
    for name, component in snapshot.components.items():
        back = opened.snapshot.components[name]
        assert (back.adapter, back.facts, back.fidelity, back.reason, back.made) == (
            *(component.adapter, component.facts, component.fidelity),
            *(component.reason, component.made),
        )


def test_arrays_of_an_opened_checkpoint_belong_to_nobody_else(store: Store):
    save(store, "step", snapshot_of({"x": np.zeros(3)}), About())

    first, second = open_checkpoint(store, "step"), open_checkpoint(store, "step")
    first.snapshot.components["x"].tree.value[:] = 7

    assert second.snapshot.components["x"].tree.value.tolist() == [0, 0, 0]
    assert open_checkpoint(store, "step").snapshot.components["x"].tree.value.tolist() == [0, 0, 0]


def test_an_opened_array_is_aligned(store: Store):
    save(store, "step", snapshot_of({"c": {"t": np.array(["abc"]), "x": np.zeros(3)}}), About())

    assert open_checkpoint(store, "step").snapshot.components["c"].tree["x"].value.flags.aligned


def test_the_manifest_says_what_it_was_given(store: Store):
    about = About(
        run_id="ab" * 16,
        parent=digest_of(b"before"),
        contract={"seed": {"seed": 1}},
        arithmetic={"python": "3"},
        metrics={"offset": 0, "digest": digest_of(b"")},
        scores={"return": 0.5, "episodes": 3},
    )
    saved = save(store, "step", snapshot_of({"x": np.zeros(3), "n": 1}), about)

    manifest, digest = read_manifest(store, "step")
    assert digest == saved.digest
    assert (manifest.env_steps, manifest.updates, manifest.boundary) == (100, 10, 5)
    assert (manifest.run_id, manifest.parent, manifest.contract) == (about.run_id, about.parent, about.contract)
    assert (manifest.arithmetic, manifest.metrics, manifest.scores) == (about.arithmetic, about.metrics, about.scores)
    assert set(manifest.files) == {"x.safetensors"}
    assert saved.size_bytes == sum(store.files("step").values())


def test_the_state_digest_does_not_depend_on_who_saved_when(store: Store):
    snapshot = snapshot_of(broad_state())

    first = save(store, "first", snapshot, About(run_id="a", parent=None))
    second = save(store, "second", snapshot, About(run_id="b", parent=first.digest, contract={"seed": {"seed": 2}}))

    assert first.state_digest == second.state_digest
    assert first.digest != second.digest


def test_a_component_without_arrays_has_no_file(store: Store):
    save(store, "step", snapshot_of({"a": 1, "b": [], "c": np.zeros(1)}), About())

    assert set(store.files("step")) == {"MANIFEST.json", "c.safetensors"}


def test_large_arrays_go_out_in_pieces():
    class Watched(MemoryStaging):
        largest = 0

        def write(self, file: str, pieces: Iterable[Bytes]) -> None:
            parts = [bytes(piece) for piece in pieces]
            Watched.largest = max(Watched.largest, *map(len, parts))
            super().write(file, parts)

    class WatchedStore(MemoryStore):
        def stage(self, name: str) -> MemoryStaging:
            return Watched(self.entries, name)

    store = WatchedStore()
    value = np.arange(9 << 20, dtype=np.uint8).reshape(3, -1)
    save(store, "step", snapshot_of({"x": value}), About())

    assert Watched.largest == PIECE_BYTES == 1 << 20
    assert open_checkpoint(store, "step").snapshot.components["x"].tree.value.tobytes() == value.tobytes()


def test_a_taken_name_is_a_commit_error_and_changes_nothing(store: Store):
    first = save(store, "step", snapshot_of({"x": 1}), About())

    with pytest.raises(
        CommitError, match=r"^checkpoint step was not committed: .*exists\. Earlier checkpoints are untouched"
    ):
        save(store, "step", snapshot_of({"x": 2}), About())

    assert open_checkpoint(store, "step").digest == first.digest


def test_a_store_that_fails_is_a_commit_error():
    class Full(MemoryStore):
        def stage(self, name: str) -> MemoryStaging:
            raise OSError(28, "No space left on device")

    with pytest.raises(CommitError) as caught:
        save(Full(), "step", snapshot_of({"x": 1}), About())

    expected = (
        "checkpoint step was not committed: [Errno 28] No space left on device. Earlier checkpoints are untouched."
    )
    assert str(caught.value) == expected
    assert isinstance(caught.value, OSError)


def test_a_leaf_that_cannot_be_stored_leaves_nothing_and_its_path_is_named(store: Store):
    snapshot = Snapshot({"c": Component("x-own", {"text": Array(np.zeros(1, np.dtypes.StringDType()))})}, 0, 0, 0)

    with pytest.raises(UnsupportedLeafError, match=r"c/text"):
        save(store, "step", snapshot, About())
    assert store.names() == []
    assert store.remove_leftovers() == []
