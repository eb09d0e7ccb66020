"""The newest intact checkpoint: damage is stepped over and told, a newer perdure's work never."""

import json
from typing import Any

import numpy as np
import pytest

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.save import About, save
from perdure.errors import AllDamagedError, DamagedError, NoCheckpointError, UnsupportedVersionError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.runs.directory import step_name
from perdure.runs.loading import manifest_of_run, newest_intact, open_of_run
from perdure.store.memory import MemoryStore

RUN = "ab" * 16


def store_with(*steps: int, run_id: str = RUN) -> MemoryStore:
    store = MemoryStore()
    for step in steps:
        snapshot = capture({"x": np.full(3, step)}, Resolver(), Counters(step, step, step)).snapshot
        save(store, step_name(step), snapshot, About(run_id=run_id))
    return store


def damage(store: MemoryStore, step: int, file: str = "x.safetensors") -> None:
    data = bytearray(store.entries[step_name(step)][file])
    data[-1 if file.endswith("safetensors") else 5] ^= 1
    store.entries[step_name(step)][file] = bytes(data)


def resigned(store: MemoryStore, step: int, **change: Any) -> None:
    document = {**json.loads(store.entries[step_name(step)]["MANIFEST.json"]), **change}
    del document["digest"]
    data = canonical.encode({**document, "digest": digest_of(canonical.encode(document))})
    store.entries[step_name(step)]["MANIFEST.json"] = data


def test_the_newest_is_taken_when_it_is_intact():
    found = newest_intact(store_with(5, 100, 20), "runs/x", RUN)

    assert (found.opened.name, found.damage) == (step_name(100), {})
    assert found.opened.snapshot.components["x"].tree.value.tolist() == [100, 100, 100]


@pytest.mark.parametrize("file", ["x.safetensors", "MANIFEST.json"])
def test_damaged_ones_are_stepped_over_and_told(file: str):
    store = store_with(5, 20, 100)
    damage(store, 100, file)
    damage(store, 20)

    found = newest_intact(store, "runs/x", RUN)

    assert found.opened.name == step_name(5)
    assert list(found.damage) == [step_name(100), step_name(20)]
    assert found.damage[step_name(20)].startswith(f"{step_name(20)}/x.safetensors: x: bytes ")


def test_all_damaged_lists_what_is_wrong_with_each():
    store = store_with(5, 20)
    damage(store, 5)
    del store.entries[step_name(20)]["MANIFEST.json"]

    with pytest.raises(AllDamagedError) as caught:
        newest_intact(store, "runs/x", RUN)

    lines = str(caught.value).splitlines()
    assert lines[0] == "runs/x: all 2 checkpoints are damaged; nothing was changed."
    assert lines[1] == f"  {step_name(20)}: MANIFEST.json is missing"
    assert lines[2].startswith(f"  {step_name(5)}/x.safetensors: x: bytes ")


def test_no_checkpoint_is_told():
    store = store_with()
    store.entries["step_7"] = {}

    with pytest.raises(NoCheckpointError) as caught:
        newest_intact(store, "runs/x", RUN)

    assert str(caught.value) == ("runs/x: the run has no checkpoint; it was stopped before the first was committed.")


def test_a_checkpoint_from_the_future_is_never_stepped_over():
    store = store_with(5, 20)
    resigned(store, 20, version=1, surprise=True)

    with pytest.raises(UnsupportedVersionError) as caught:
        newest_intact(store, "runs/x", RUN)

    assert str(caught.value) == f"{step_name(20)}: MANIFEST.json: format version 1; this perdure reads 0"


@pytest.mark.parametrize(("old", "new"), [(b'"version":0', b'"version":1'), (b'"version":0', b'"versioo":0')])
def test_a_flipped_bit_in_the_version_is_damage_and_stepped_over(old: bytes, new: bytes):
    """The version is believed only under the document's own digest."""
    store = store_with(5, 20)
    data = store.entries[step_name(20)]["MANIFEST.json"]
    store.entries[step_name(20)]["MANIFEST.json"] = data.replace(old, new)

    found = newest_intact(store, "runs/x", RUN)

    assert found.opened.name == step_name(5)


def test_a_foreign_checkpoint_is_damage():
    store, other = store_with(5), store_with(20, run_id="cd" * 16)
    store.entries |= other.entries

    found = newest_intact(store, "runs/x", RUN)

    assert found.opened.name == step_name(5)
    assert found.damage == {step_name(20): f"{step_name(20)}: belongs to run {'cd' * 16}, not to {RUN}"}


def test_a_one_shot_checkpoint_is_foreign_to_every_run():
    store = store_with(5)
    save(store, step_name(20), capture({}, Resolver(), Counters(20, 0, 0)).snapshot, About())

    assert newest_intact(store, "runs/x", RUN).opened.name == step_name(5)


def test_a_renamed_checkpoint_is_damage():
    store = store_with(5, 20)
    store.entries[step_name(99)] = store.entries.pop(step_name(20))

    found = newest_intact(store, "runs/x", RUN)

    assert found.opened.name == step_name(5)
    assert found.damage == {step_name(99): f"{step_name(99)}: was written as step 20 and renamed"}


def test_one_checkpoint_of_a_run_is_opened_by_name_and_proven_to_stand_where_it_was_written():
    store = store_with(5)
    store.entries[step_name(6)] = store.entries[step_name(5)]

    assert open_of_run(store, step_name(5), RUN).manifest.env_steps == 5
    assert manifest_of_run(store, step_name(5), None).env_steps == 5
    for look in (open_of_run, manifest_of_run):
        with pytest.raises(DamagedError, match="was written as step 5 and renamed"):
            look(store, step_name(6), RUN)
