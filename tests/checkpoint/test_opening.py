"""Open: nothing is believed before its digest matched; any damage is named."""

from typing import Any

import numpy as np
import pytest

from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.save import About, Saved, save
from perdure.errors import DamagedError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.store.memory import MemoryStore
from perdure.tree.snapshot import Snapshot

STATE = {"net": {"w": np.arange(6.0), "b": np.ones(2, np.float32)}, "envs": np.arange(5, dtype=np.int8), "step": 12}


def snapshot_of(state: dict[str, Any]) -> Snapshot:
    return capture(state, Resolver(), Counters(100, 10, 5)).snapshot


@pytest.fixture
def saved() -> tuple[MemoryStore, Saved]:
    memory = MemoryStore()
    return memory, save(memory, "step", snapshot_of(STATE), About())


def open_with(memory: MemoryStore, file: str, data: bytes | None) -> None:
    """Opens the checkpoint with one of its files replaced or removed."""
    entry = dict(memory.entries["step"])
    if data is None:
        del entry[file]
    else:
        entry[file] = data
    changed = MemoryStore()
    changed.entries["step"] = entry
    open_checkpoint(changed, "step")


@pytest.mark.parametrize("file", ["net.safetensors", "envs.safetensors", "MANIFEST.json"])
def test_every_flipped_bit_is_found_and_its_file_or_leaf_named(saved: tuple[MemoryStore, Saved], file: str):
    data = saved[0].entries["step"][file]
    names = "MANIFEST.json" if file == "MANIFEST.json" else file.removesuffix(".safetensors")
    for at in range(0, 8 * len(data), 7):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(DamagedError, match=rf"^step.*{names}"):
            open_with(saved[0], file, bytes(flipped))


@pytest.mark.parametrize(
    ("component", "path", "where"), [("net", "net/w", (0, 48)), ("net", "net/b", (48, 56)), ("envs", "envs", (0, 5))]
)
def test_a_damaged_array_is_named_by_its_path(
    saved: tuple[MemoryStore, Saved], component: str, path: str, where: tuple[int, int]
):
    file = f"{component}.safetensors"
    data = bytearray(saved[0].entries["step"][file])
    header = 8 + int.from_bytes(data[:8], "little")
    data[header + where[0]] ^= 1

    with pytest.raises(DamagedError) as caught:
        open_with(saved[0], file, bytes(data))

    start, end = (header + at for at in where)
    expected = f"step/{file}: {path}: bytes {start} to {end} are not what was written"
    assert str(caught.value) == expected


def test_a_damaged_header_is_named(saved: tuple[MemoryStore, Saved]):
    data = bytearray(saved[0].entries["step"]["envs.safetensors"])
    data[20] ^= 1

    with pytest.raises(DamagedError) as caught:
        open_with(saved[0], "envs.safetensors", bytes(data))

    assert str(caught.value) == "step/envs.safetensors: its header is not what was written"


@pytest.mark.parametrize(("change", "found"), [(-1, None), (1, None), (None, "missing")])
def test_a_cut_grown_or_missing_file_is_named(saved: tuple[MemoryStore, Saved], change: int | None, found: str | None):
    data = saved[0].entries["step"]["net.safetensors"]
    other = None if change is None else (data + b"x")[: len(data) + change]

    with pytest.raises(DamagedError) as caught:
        open_with(saved[0], "net.safetensors", other)

    number = found or f"{len(data) + (change or 0)} bytes"
    assert str(caught.value) == f"step/net.safetensors: {len(data)} bytes were written, found {number}"


def test_swapped_files_are_found(saved: tuple[MemoryStore, Saved]):
    memory = saved[0]
    save(
        memory, "other", snapshot_of({**STATE, "net": {"w": np.arange(6.0) + 1, "b": np.ones(2, np.float32)}}), About()
    )

    with pytest.raises(DamagedError, match=r"^step/net\.safetensors: net/w: bytes .* are not what was written$"):
        open_with(memory, "net.safetensors", memory.entries["other"]["net.safetensors"])


def test_a_missing_manifest_is_named(saved: tuple[MemoryStore, Saved]):
    with pytest.raises(DamagedError) as caught:
        open_with(saved[0], "MANIFEST.json", None)

    assert str(caught.value) == "step: MANIFEST.json is missing"


def resigned(memory: MemoryStore, change: dict[str, Any]) -> bytes:
    """The checkpoint's manifest with changes and the digest that belongs to them."""
    document = canonical.decode(memory.entries["step"]["MANIFEST.json"], "doc")
    del document["digest"]
    document = {**document, **change}
    return canonical.encode({**document, "digest": digest_of(canonical.encode(document))})


@pytest.mark.parametrize("counter", ["env_steps", "updates", "boundary"])
def test_an_edited_counter_is_found_even_with_a_fresh_digest(saved: tuple[MemoryStore, Saved], counter: str):
    with pytest.raises(DamagedError) as caught:
        open_with(saved[0], "MANIFEST.json", resigned(saved[0], {counter: 999}))

    assert str(caught.value) == "step: the state does not have the digest that was saved"


def test_an_edited_leaf_is_found_even_with_a_fresh_digest(saved: tuple[MemoryStore, Saved]):
    document = canonical.decode(saved[0].entries["step"]["MANIFEST.json"], "doc")
    document["components"]["step"]["tree"] = 13

    with pytest.raises(DamagedError) as caught:
        open_with(saved[0], "MANIFEST.json", resigned(saved[0], {"components": document["components"]}))

    assert str(caught.value) == "step/step: its state does not have the digest that was saved"


def test_a_component_taken_out_is_found_even_with_a_fresh_digest(saved: tuple[MemoryStore, Saved]):
    document = canonical.decode(saved[0].entries["step"]["MANIFEST.json"], "doc")
    del document["components"]["step"]

    with pytest.raises(DamagedError, match="the state does not have the digest that was saved"):
        open_with(saved[0], "MANIFEST.json", resigned(saved[0], {"components": document["components"]}))


def test_an_array_outside_of_its_file_is_refused_before_it_is_read(saved: tuple[MemoryStore, Saved]):
    document = canonical.decode(saved[0].entries["step"]["MANIFEST.json"], "doc")
    document["components"]["envs"]["tree"]["array"]["offset"] = 2**40

    with pytest.raises(DamagedError) as caught:
        open_with(saved[0], "MANIFEST.json", resigned(saved[0], {"components": document["components"]}))

    assert str(caught.value) == "step/envs: envs: lies outside of 'envs.safetensors'"


def test_a_manifest_too_large_to_be_one_is_refused_before_it_is_read():
    class Huge(MemoryStore):
        def files(self, name: str) -> dict[str, int]:
            return {"MANIFEST.json": 2**31}

        def read(self, name: str, file: str) -> np.ndarray:
            raise AssertionError("was read")

    with pytest.raises(DamagedError) as caught:
        open_checkpoint(Huge(), "step")

    assert str(caught.value) == f"step: MANIFEST.json has {2**31} bytes, more than any that perdure writes"


def test_a_file_that_cannot_be_read_is_damage_with_the_reason(saved: tuple[MemoryStore, Saved]):
    class Broken(MemoryStore):
        def read(self, name: str, file: str) -> np.ndarray:
            if file == "net.safetensors":
                raise OSError(5, "Input/output error")
            return super().read(name, file)

    broken = Broken()
    broken.entries.update(saved[0].entries)

    with pytest.raises(DamagedError) as caught:
        open_checkpoint(broken, "step")

    assert str(caught.value) == "step/net.safetensors: cannot be read ([Errno 5] Input/output error)"


def test_an_entry_that_does_not_exist_cannot_be_listed():
    with pytest.raises(DamagedError, match=r"^step: cannot be listed \(step\)$"):
        open_checkpoint(MemoryStore(), "step")
