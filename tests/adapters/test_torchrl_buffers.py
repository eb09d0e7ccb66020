"""Replay buffers of TorchRL go on drawing what they would have drawn; of old rows only what changed is written."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrl")

import torch

import perdure
from perdure.errors import CaptureError, ContractError

torch.set_num_threads(1)

data = import_module("torchrl.data")
"""By its name: who checks types need not have it."""

samplers = data.replay_buffers.samplers
TensorDict, ReplayBuffer = import_module("tensordict").TensorDict, data.ReplayBuffer
LazyMemmapStorage, LazyTensorStorage = data.LazyMemmapStorage, data.LazyTensorStorage

SIZE = 500
SLICES: dict[str, Any] = {"num_slices": 4, "traj_key": "episode", "strict_length": False}
SAMPLERS: dict[str, Any] = {
    "random": lambda size: samplers.RandomSampler(),
    "without-replacement": lambda size: samplers.SamplerWithoutReplacement(),
    "slices": lambda size: samplers.SliceSampler(**SLICES),
    "cached-slices": lambda size: samplers.SliceSampler(**SLICES, cache_values=True),
    "slices-by-end": lambda size: samplers.SliceSampler(num_slices=4, end_key=("next", "done"), strict_length=False),
    "slices-without-replacement": lambda size: samplers.SliceSamplerWithoutReplacement(**SLICES),
    "prioritised": lambda size: samplers.PrioritizedSampler(size, 0.7, 0.5),
    "prioritised-within": lambda size: samplers.PrioritizedSampler(size, 0.7, 0.5, max_priority_within_buffer=True),
    "prioritised-slices": lambda size: samplers.PrioritizedSliceSampler(size, 0.7, 0.5, **SLICES),
}
STORAGES: dict[str, Any] = {"tensor": LazyTensorStorage, "memmap": LazyMemmapStorage}
NO_TREES = pytest.mark.skipif(
    samplers.prioritized.SumSegmentTreeFp32 is None, reason="TorchRL's extension does not load with this PyTorch"
)
KINDS = [pytest.param(name, marks=NO_TREES if name.startswith("prioritised") else ()) for name in SAMPLERS]


def make(sampler: str = "random", storage: Any = LazyTensorStorage, size: int = SIZE, **more: Any) -> Any:
    """An empty buffer with a generator of its own."""
    options = {"generator": torch.Generator().manual_seed(3), "priority_key": "td_error", "batch_size": 32, **more}
    return data.TensorDictReplayBuffer(storage=storage(size), sampler=SAMPLERS[sampler](size), **options)


def rows(generator: torch.Generator, number: int) -> Any:
    """Transitions, of several dtypes and nested."""
    ended = torch.rand(number, 1, generator=generator) < 0.1
    after = {"reward": torch.randn(number, 1, generator=generator).bfloat16(), "done": ended}
    return TensorDict(
        {
            "observation": torch.randn(number, 4, generator=generator),
            "next": TensorDict(after, [number]),
            "action": torch.randint(5, (number,), generator=generator),
            "episode": ended.cumsum(0).squeeze(-1),
        },
        [number],
    )


def play(buffer: Any, generator: torch.Generator) -> str:
    """Adds rows and draws two batches, with new priorities; what was drawn."""
    buffer.extend(rows(generator, 45))
    drawn = []
    for _ in range(2):
        batch = buffer.sample()
        drawn += [batch[key].float().numpy().tobytes().hex() for key in ("observation", ("next", "reward"), "index")]
        if isinstance(buffer.sampler, samplers.PrioritizedSampler):
            drawn.append(batch["priority_weight"].numpy().tobytes().hex())
            batch["td_error"] = 2 * torch.rand(len(batch), generator=generator)
            buffer.update_tensordict_priority(batch)
    return "".join(drawn)


def trained(directory: Path, sampler: str, storage: Any, stop: int | None = None, **more: Any) -> list[str]:
    """What a run of twenty steps draws since it was started, stopped without a word after the step `stop`."""
    torch.manual_seed(0)
    np.random.seed(0)
    buffer, generator = make(sampler, storage, **more), torch.Generator().manual_seed(1)
    drawn = []
    with perdure.Run(directory, every=perdure.Every(updates=1), horizon=20) as run:
        run.restore(buffer=buffer, generator=generator)
        while run.env_steps < 20 and run.env_steps != stop:
            drawn.append(play(buffer, generator))
            run.boundary(env_steps=run.env_steps + 1)
    return drawn


@pytest.mark.full
@pytest.mark.usefixtures("global_generators")
@pytest.mark.parametrize("sampler", KINDS)
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("own", [True, False])
def test_a_run_draws_the_same_wherever_it_was_stopped(tmp_path: Path, sampler: str, storage: str, own: bool):
    """Before the buffer is full (at step 12) and after; with a generator of its own and with the process's."""
    more: dict[str, Any] = {} if own else {"generator": None}
    kind = STORAGES[storage]
    straight = trained(tmp_path / "straight", sampler, kind, **more)
    for stop in (5, 14):
        trained(tmp_path / "stopped", sampler, kind, stop, **more)

    assert trained(tmp_path / "stopped", sampler, kind, **more) == straight[14:]


def filled(sampler: str = "slices-by-end", steps: int = 14) -> Any:
    """A buffer in use."""
    buffer, generator = make(sampler), torch.Generator().manual_seed(1)
    for _ in range(steps):
        play(buffer, generator)
    return buffer


def later(buffer: Any) -> list[str]:
    """What is drawn before the next write, and after it."""
    before = buffer.sample()["index"].numpy().tobytes().hex()
    return [before, *(play(buffer, torch.Generator().manual_seed(7)) for _ in range(10))]


LOST: dict[str, Any] = {
    "nothing": lambda buffer: None,
    "where the last write ended": lambda buffer: buffer.storage._set_last_cursor(None),
    "the cursor": lambda buffer: setattr(buffer.writer, "_cursor", 0),
    "the generator": lambda buffer: buffer.set_rng(torch.Generator().manual_seed(4)),
    "the length": lambda buffer: setattr(buffer.storage, "_len", 100),
    "a row": lambda buffer: buffer.storage._storage["observation"][:].zero_(),
}


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("is_new", [True, False])
def test_twin_each_part_that_a_resume_forgets_is_seen(tmp_path: Path, lost: str, is_new: bool):
    """In what is drawn from then on; into an empty buffer and into one that holds other rows."""
    buffer = filled()
    perdure.save(tmp_path / "a", buffer=buffer)
    fresh = make("slices-by-end") if is_new else filled(steps=3)
    assert perdure.load(tmp_path / "a", buffer=fresh)["buffer"] is fresh

    LOST[lost](fresh)

    assert (later(buffer) == later(fresh)) == (lost == "nothing")


@NO_TREES
@pytest.mark.parametrize("lost", ["nothing", "_sum_tree", "_min_tree", "_max_priority", "_beta"])
def test_twin_priorities_that_a_resume_forgets_are_seen(tmp_path: Path, lost: str):
    """In what is drawn from then on, and how it is weighed."""
    buffer, fresh = filled("prioritised"), make("prioritised")
    perdure.save(tmp_path / "a", buffer=buffer)
    perdure.load(tmp_path / "a", buffer=fresh)

    tree = fresh.sampler._sum_tree
    assert tree.query(0, len(tree)) == buffer.sampler._sum_tree.query(0, len(tree))
    match lost:
        case "_sum_tree" | "_min_tree":
            getattr(fresh.sampler, lost)[torch.arange(SIZE)] = 1e-3
        case "_max_priority":
            fresh.sampler._max_priority = None
        case "_beta":
            fresh.sampler._beta = 0.4

    assert (later(buffer) == later(fresh)) == (lost == "nothing")


def test_an_empty_buffer_comes_back_empty(tmp_path: Path):
    """Also into one that is in use."""
    perdure.save(tmp_path / "a", buffer=make())
    used = filled("random", 3)
    perdure.load(tmp_path / "a", buffer=used)
    assert (len(used), used.storage.initialized, used.writer._cursor) == (0, False, 0)
    assert play(used, torch.Generator().manual_seed(1)) == play(make(), torch.Generator().manual_seed(1))


def test_single_tensors_and_two_dimensions_come_back(tmp_path: Path):
    """A storage of one tensor; one whose rows hold a transition of each environment."""
    one, other = (ReplayBuffer(storage=LazyTensorStorage(50), batch_size=4) for _ in range(2))
    one.extend(torch.arange(60.0).reshape(30, 2))
    perdure.save(tmp_path / "one", buffer=one)
    perdure.load(tmp_path / "one", buffer=other)
    assert other[:].equal(one[:])

    two, empty = (ReplayBuffer(storage=LazyTensorStorage(60, ndim=2), batch_size=4, dim_extend=0) for _ in range(2))
    two.extend(TensorDict({"a": torch.arange(36).reshape(6, 3, 2)}, [6, 3]))
    perdure.save(tmp_path / "two", buffer=two)
    perdure.load(tmp_path / "two", buffer=empty)
    assert empty.storage.shape == two.storage.shape
    assert empty[:]["a"].equal(two[:]["a"])


def written(directory: Path) -> int:
    """Bytes that the newest checkpoint does not share, without its manifest."""
    newest = sorted((directory / "checkpoints").iterdir())[-1]
    files = [file for file in newest.iterdir() if file.name != "MANIFEST.json"]
    return sum(file.stat().st_size for file in files if file.stat().st_nlink == 1)


ROW = 4 * 4 + 2 + 1 + 8 + 8 + 8
"""Bytes; TorchRL adds an index."""


@pytest.mark.parametrize("storage", STORAGES)
def test_overwriting_writes_what_is_new(tmp_path: Path, storage: str):
    """With 50,000 new rows at most 1.05 times their bytes; also across a resume."""
    kind, generator = STORAGES[storage], torch.Generator().manual_seed(1)
    buffer = make(storage=kind, size=200_000)
    buffer.extend(rows(generator, 150_000))
    for turn in range(4):
        with perdure.Run(tmp_path / "run", every=perdure.Every(env_steps=1)) as run:
            run.restore(buffer=buffer if turn == 0 else (buffer := make(storage=kind, size=200_000)))
            buffer.extend(rows(generator, 50_000))
            run.boundary(env_steps=run.env_steps + 1)
            assert written(tmp_path / "run") <= 1.05 * 50_000 * ROW
    fresh = make(storage=kind, size=200_000)
    perdure.Run(tmp_path / "run").restore(buffer=fresh)
    assert (fresh[:] == buffer[:]).all()


def test_an_edit_of_an_old_row_is_found_and_rewritten(tmp_path: Path):
    """Nobody tells of it: the digest of its block does."""
    buffer = make(size=60_000)
    buffer.extend(rows(torch.Generator().manual_seed(1), 15_000))
    with perdure.Run(tmp_path / "run", every=perdure.Every(env_steps=1)) as run:
        run.restore(buffer=buffer)
        run.boundary(env_steps=1)
        assert written(tmp_path / "run") < 10_000
        buffer.storage._storage["action"][4_000] = 77
        run.boundary(env_steps=2)
        assert 4_096 * ROW < written(tmp_path / "run") < 4_096 * ROW + 10_000
    fresh = make(size=60_000)
    perdure.Run(tmp_path / "run").restore(buffer=fresh)
    assert fresh.storage._storage["action"][4_000] == 77
    assert (fresh[:] == buffer[:]).all()


def test_a_named_folder_is_filled_again(tmp_path: Path):
    """`LazyMemmapStorage(scratch_dir=…, existsok=True)`: the files are rolled back to the checkpoint."""

    def storage(size: int) -> Any:
        return LazyMemmapStorage(size, scratch_dir=tmp_path / "files", existsok=True)

    buffer, generator = make(storage=storage), torch.Generator().manual_seed(1)
    play(buffer, generator)
    perdure.save(tmp_path / "a", buffer=buffer)
    expected = buffer[:].clone()
    play(buffer, generator)
    fresh = make(storage=storage)
    perdure.load(tmp_path / "a", buffer=fresh)
    assert len(fresh) == 45
    assert (fresh[:] == expected).all()


class More(data.TensorDictReplayBuffer):
    """May hold more."""


def sliced(**options: Any) -> Any:
    """A buffer that draws slices."""
    sampler = samplers.SliceSampler(num_slices=2, strict_length=False, **options)
    return ReplayBuffer(storage=LazyTensorStorage(5), sampler=sampler, batch_size=4)


REFUSED: dict[str, Any] = {
    "batches that threads drew ahead of time": lambda: make(prefetch=2),
    "the transforms of a buffer": lambda: make(transform=torch.nn.Identity()),
    "a writer with track_generations": lambda: make(writer=data.RoundRobinWriter(track_generations=True)),
    "a More of TorchRL": lambda: More(storage=LazyTensorStorage(5)),
    "a storage of the class ListStorage": lambda: make(storage=data.ListStorage),
    "whose initialisation is delayed": lambda: make(delayed_init=True),
    "a ConsumingSampler of TorchRL": lambda: make(consume_after_n_samples=1),
    "a sampler with fragmented": lambda: sliced(traj_key="episode", fragmented=True),
    "a sampler with compile": lambda: sliced(traj_key="episode", compile=True),
    "a sampler with ends or trajectories of its own": lambda: sliced(ends=torch.ones(5).bool(), cache_values=True),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # of TorchRL's compile
@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_known_is_refused(tmp_path: Path, message: str):
    """With the way out, before anything is written."""
    with pytest.raises(CaptureError, match=message):
        perdure.save(tmp_path / "a", buffer=REFUSED[message]())
    assert not (tmp_path / "a").exists()


def test_two_buffers_on_one_storage_are_refused(tmp_path: Path):
    """They would come back as two that no longer see each other's rows."""
    storage = LazyTensorStorage(5)
    one, other = (ReplayBuffer(storage=storage, batch_size=4) for _ in range(2))
    with pytest.raises(CaptureError, match="a LazyTensorStorage that two buffers share"):
        perdure.save(tmp_path / "a", one=one, other=other)
    perdure.save(tmp_path / "a", one=one, same=one)


def test_another_size_of_two_axes_changes_nothing(tmp_path: Path):
    def two(size: int) -> Any:
        return ReplayBuffer(storage=LazyTensorStorage(size, ndim=2), batch_size=4)

    full, fresh = two(40), two(12)
    full.extend(TensorDict({"x": torch.ones(5, 4, 3)}, [5, 4]))
    perdure.save(tmp_path / "a", buffer=full)
    with pytest.raises(ContractError, match="buffer/rows: max_size 40 in the run, max_size 12 here"):
        perdure.load(tmp_path / "a", buffer=fresh)
    assert (fresh.storage.max_size, fresh.storage.initialized) == (12, False)


def test_an_attribute_that_is_not_known_is_refused(tmp_path: Path):
    """Of another version, say, or of the user's."""
    buffer = make()
    buffer.sampler.more = 3
    with pytest.raises(CaptureError, match=r"does not save \['more'\] of a RandomSampler"):
        perdure.save(tmp_path / "a", buffer=buffer)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda: make(size=600), "buffer/rows: max_size 500 in the run, max_size 600 here"),
        (lambda: make("without-replacement"), "buffer/sampler: RandomSampler in the run, SamplerWithoutReplacement"),
        (lambda: make(generator=None), "buffer/rng"),
        (lambda: make(priority_key="loss"), "buffer/priority_key: 'td_error' in the run, 'loss' here"),
    ],
)
def test_another_buffer_is_refused(tmp_path: Path, target: Any, message: str):
    """Nothing changes."""
    perdure.save(tmp_path / "a", buffer=filled("random", 2))
    fresh = target()
    with pytest.raises(ContractError, match=message):
        perdure.load(tmp_path / "a", buffer=fresh)
    assert len(fresh) == 0


@pytest.mark.filterwarnings("ignore:Loading the storage on an uninitialized TensorDict")
def test_why_their_own_state_is_not_asked():
    """It loses where the last write ended, and which keys are nested stands in an attribute of an OrderedDict."""
    full, empty = filled("random", 3), make()
    state = full.state_dict()
    empty.load_state_dict(state)
    assert (full.storage._last_cursor_index, empty.storage._last_cursor_index) == (3 * 45 - 1, None)

    flat = state["_storage"]["_storage"]
    assert "next.reward" in flat
    assert "next" in vars(flat)["_metadata"]
