"""Directories of torch.distributed.checkpoint come as torch loads them; chunks that do not fit are refused."""

import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from tests.interop.torch_files import assert_same, raw
from torch.distributed.checkpoint import metadata as told
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from perdure.errors import DamagedError, NoCheckpointError
from perdure.interop import convert
from perdure.interop.kinds.torch_distributed import KIND
from perdure.interop.recognition import kind_of

pytestmark = pytest.mark.filterwarnings("ignore:.*(no_dist|single process|TypedStorage|weights_only|world_size)")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def saved(state: dict[str, Any], directory: Path, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no group of processes is there
        save(state, checkpoint_id=str(directory), no_dist=True, **options)
    return directory


def state_of_training() -> dict[str, Any]:
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return {
        "model": dict(network.state_dict()),
        "optimizer": {"moments": [torch.randn(2, 3), torch.randn(4)], "lr": 0.1},
        "half": torch.randn(3).to(torch.bfloat16),
        "view": torch.randn(4, 5).t()[1:],
        "none": torch.empty(0, 3),
        "step": 3,
        "words": ["a", {"b": 2}],
    }


def test_what_was_saved_comes_as_it_was(tmp_path: Path):
    state = state_of_training()
    directory = saved(state, tmp_path / "x")
    carried = KIND.read(directory)

    assert kind_of(directory) is KIND
    assert carried.tree.keys() == state.keys()
    assert assert_same({key: carried.tree[key] for key in state}, state) == 9
    assert carried.losses == ()
    target = {key: torch.zeros_like(value) for key, value in state["model"].items()}
    load({"model": target}, checkpoint_id=str(directory), no_dist=True)
    assert_same(carried.tree["model"], target)


def test_what_it_says_of_itself(tmp_path: Path):
    contents = KIND.contents(saved(state_of_training(), tmp_path / "x"))

    assert contents.kind == "torch.distributed.checkpoint 1.0.0"
    lines = {leaf.name: (leaf.what, leaf.size_bytes) for leaf in contents.leaves}
    assert lines["model/0.weight"] == ("float32 4×3", 48)
    assert lines["optimizer/moments/0"] == ("float32 2×3", 24)
    assert (lines["step"], lines["words/1/b"], lines["half"]) == (("3", 0), ("2", 0), ("bfloat16 3", 6))


def test_it_converts_to_torch_and_safetensors(tmp_path: Path):
    directory = saved({"model": {"w": torch.randn(3, 2)}, "step": 3}, tmp_path / "x")
    convert(directory, tmp_path / "x.pt")
    convert(directory, tmp_path / "x.safetensors")
    convert(tmp_path / "x.safetensors", tmp_path / "flat.pt")

    whole = torch.load(tmp_path / "x.pt", weights_only=True)
    assert_same(KIND.read(directory).tree, whole)
    assert raw(torch.load(tmp_path / "flat.pt")["model.w"]) == raw(whole["model"]["w"])


def test_a_flipped_bit_in_a_tensor_is_found(tmp_path: Path):
    directory = saved({"w": torch.full((100,), 7.0)}, tmp_path / "x")
    file = directory / "__0_0.distcp"
    data = bytearray(file.read_bytes())
    data[data.index(np.full(100, 7, np.float32).tobytes()) + 5] ^= 1
    file.write_bytes(data)

    with pytest.raises(DamagedError, match=r"__0_0\.distcp: w: archive/data/0: its bytes are not those"):
        KIND.read(directory)
    assert [leaf.what for leaf in KIND.contents(directory).leaves] == ["float32 100"]


Boxes = list[tuple[tuple[int, ...], tuple[int, ...]]]
WHOLE = torch.arange(24.0).reshape(4, 6)
QUARTERS: Boxes = [((0, 0), (3, 4)), ((0, 4), (4, 2)), ((3, 0), (1, 4)), ((4, 0), (0, 6))]


def sharded(directory: Path, boxes: Boxes, change: Callable[[told.Metadata], Any] | None = None) -> Path:
    """As several processes write it: each its part of one tensor, in a file of its own."""
    directory.mkdir()
    chunks, places = [], {}
    for rank, (offsets, sizes) in enumerate(boxes):
        ends = [at + size for at, size in zip(offsets, sizes, strict=True)]
        torch.save(WHOLE[tuple(map(slice, offsets, ends))].clone(), directory / f"__{rank}_0.distcp")
        length = (directory / f"__{rank}_0.distcp").stat().st_size
        chunks.append(told.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
        places[told.MetadataIndex("w", offsets)] = _StorageInfo(f"__{rank}_0.distcp", 0, length)
    properties = told.TensorProperties(dtype=torch.float32)
    entry = told.TensorStorageMetadata(properties, torch.Size((4, 6)), chunks)
    metadata = told.Metadata({"w": entry}, None, places)
    if change:
        change(metadata)
    (directory / ".metadata").write_bytes(pickle.dumps(metadata))
    return directory


def test_chunks_of_several_processes_become_one_array(tmp_path: Path):
    directory = sharded(tmp_path / "x", QUARTERS)
    target = {"w": torch.zeros(4, 6)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(target, checkpoint_id=str(directory), no_dist=True)

    assert_same(KIND.read(directory).tree, target)
    assert_same(target, {"w": WHOLE})


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        (QUARTERS[:2], "'w': its chunks hold 20 elements of 24: they leave a hole"),
        ([], "'w': its chunks hold 0 elements of 24: they leave a hole"),
        ([*QUARTERS[:2], ((2, 0), (2, 4))], "overlaps another one"),
        ([((0, 0), (4, 6)), ((1, 1), (1, 1))], r"'w': the chunk \(4, 6\) at \(0, 0\) overlaps another one"),
        ([((0, 0), (4, 6)), ((4, 0), (1, 6))], r"'w': the chunk \(1, 6\) at \(4, 0\) is not inside of \(4, 6\)"),
    ],
)
def test_chunks_with_holes_or_overlaps_are_refused(tmp_path: Path, boxes: Boxes, message: str):
    directory = sharded(tmp_path / "x", boxes)
    for look in (KIND.contents, KIND.read):
        with pytest.raises(DamagedError, match=message):
            look(directory)


def place(**fields: Any) -> Callable[[told.Metadata], None]:
    def change(metadata: told.Metadata) -> None:
        for name, value in fields.items():
            setattr(next(iter(metadata.storage_data.values())), name, value)

    return change


def entry(**fields: Any) -> Callable[[told.Metadata], None]:
    def change(metadata: told.Metadata) -> None:
        for name, value in fields.items():
            setattr(metadata.state_dict_metadata["w"], name, value)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (place(relative_path="../x/__0_0.distcp"), "'../x/__0_0.distcp' is no name of a file in the directory"),
        (place(relative_path="/etc/passwd"), "'/etc/passwd' is no name of a file in the directory"),
        (place(relative_path="a\x1b"), "'a\\x1b' is no name of a file in the directory"),
        (place(relative_path="__7_0.distcp"), "__7_0.distcp is missing, or ends before byte"),
        (place(offset=1), "__0_0.distcp is missing, or ends before byte"),
        (place(offset=-1), "'w': no place in __0_0.distcp"),
        (place(length=1 << 60), "ends before byte 1,152,921,504,606,846,976"),
        (place(length=100), "no whole zip archive"),
        (place(transform_descriptors=["zstd"]), "was compressed or changed by extensions while it was written"),
        (entry(size=torch.Size((4, 7))), "its chunks hold 24 elements of 28: they leave a hole"),
        (entry(size=(1 << 40, 1 << 40)), "which no memory holds"),
        (entry(size=(4, -6)), "-6 where a size, a stride or an offset belongs"),
        (entry(properties=told.TensorProperties(dtype=torch.int32)), "float32 3×4, where .metadata says int32 3×4"),
        (entry(chunks=7), "'w': no dtype, or no list"),
        (lambda metadata: metadata.storage_data.popitem(), "it does not say where the chunk at (4, 0) stands"),
        (lambda metadata: setattr(metadata, "storage_data", None), "it does not say what was saved, or where"),
        (lambda metadata: setattr(metadata, "planner_data", {"w": 7}), "'w': no path in the dict that was saved"),
        (lambda metadata: setattr(metadata, "planner_data", {"w": ("a",) * 99}), "'w': no path in the dict"),
    ],
)
def test_metadata_that_cannot_be_is_refused(tmp_path: Path, change: Callable[[told.Metadata], None], message: str):
    directory = sharded(tmp_path / "x", QUARTERS, change)
    with pytest.raises(DamagedError) as caught:
        KIND.read(directory)

    assert str(caught.value).startswith(str(directory))
    assert message in str(caught.value)


def test_two_items_at_one_place_are_refused(tmp_path: Path):
    def double(metadata: told.Metadata) -> None:
        metadata.state_dict_metadata["v"] = metadata.state_dict_metadata["w"]
        metadata.storage_data |= {
            told.MetadataIndex("v", key.offset): value for key, value in metadata.storage_data.items()
        }
        metadata.planner_data = {"v": ("a", "b"), "w": ("a",)}

    directory = sharded(tmp_path / "y", QUARTERS, double)
    with pytest.raises(DamagedError, match=r"\.metadata: a/b: stands there twice"):
        KIND.read(directory)


def test_a_save_that_was_stopped_is_told(tmp_path: Path):
    directory = saved({"w": torch.ones(2)}, tmp_path / "x")
    (directory / ".metadata").unlink()

    assert kind_of(directory) is KIND
    with pytest.raises(DamagedError, match=r"\.metadata: is missing\. torch\.distributed\.checkpoint writes it last"):
        KIND.contents(directory)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".metadata").write_text("of something else")
    with pytest.raises(NoCheckpointError, match="of no kind that is known here"):
        kind_of(tmp_path / "other")


class Harm:
    """Pickled by a call of `os.system`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch harmed",)


def test_nothing_in_a_pickle_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    directory = saved({"w": torch.ones(2), "harm": Harm()}, tmp_path / "x")
    carried = KIND.read(directory)
    harmful = sharded(tmp_path / "y", QUARTERS, lambda metadata: setattr(metadata, "planner_data", Harm()))
    KIND.read(harmful)
    in_metadata = sharded(tmp_path / "z", QUARTERS, entry(size=Harm()))
    with pytest.raises(DamagedError, match="a Record where sizes or strides belong"):
        KIND.read(in_metadata)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y", "z"]
    assert carried.losses == ("harm: an object of posix.system, not read.",)
    assert_same(carried.tree, {"w": torch.ones(2)})
    pickle.loads((directory / ".metadata").read_bytes())
    pickle.loads((harmful / ".metadata").read_bytes())
    assert (tmp_path / "harmed").exists()
