"""Replay buffers of Stable-Baselines3 come back bit for bit, and of old transitions only what changed is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer

import perdure
from perdure.checkpoint.segments import SMALLEST_SEGMENT_ROWS
from perdure.errors import ContractError

BOX = spaces.Box(-1, 1, (5,), np.float32)
DICT = spaces.Dict({"a": BOX, "b/c": spaces.Box(0, 255, (2, 3), np.uint8)})
ACTION = spaces.Box(-1, 1, (2,), np.float32)
KINDS: dict[str, Any] = {
    "plain": (ReplayBuffer, BOX, {}),
    "memory": (ReplayBuffer, BOX, {"optimize_memory_usage": True, "handle_timeout_termination": False}),
    "dict": (DictReplayBuffer, DICT, {}),
    "n-step": (NStepReplayBuffer, BOX, {"n_steps": 3, "gamma": 0.9}),
    "discrete": (ReplayBuffer, spaces.Discrete(7), {}),
}


def make(kind: str, size: int = 6_000, n_envs: int = 2, **more: Any) -> Any:
    """An empty buffer."""
    cls, space, options = KINDS[kind]
    return cls(size, space, ACTION, "cpu", n_envs, **{**options, **more})


def play(buffer: Any, rng: np.random.Generator, steps: int) -> None:
    """Adds so many steps of all environments."""
    spaces_of = buffer.observation_space.spaces if isinstance(buffer.observation_space, spaces.Dict) else None

    def seen(space: Any) -> np.ndarray:
        if isinstance(space, spaces.Discrete):
            return rng.integers(space.n, size=buffer.n_envs)
        return (rng.random((buffer.n_envs, *space.shape)) * 200).astype(space.dtype)

    def observation() -> Any:
        return {k: seen(s) for k, s in spaces_of.items()} if spaces_of else seen(buffer.observation_space)

    for _ in range(steps):
        done = rng.random(buffer.n_envs) < 0.1
        infos = [{"TimeLimit.truncated": bool(each and rng.random() < 0.5)} for each in done]
        action = rng.random((buffer.n_envs, 2)).astype(np.float32)
        buffer.add(observation(), observation(), action, rng.random(buffer.n_envs), done, infos)


def drawn(buffer: Any) -> list[bytes]:
    """What the next batches hold."""
    np.random.seed(3)
    batches = [buffer.sample(64) for _ in range(5)]
    parts = [part for batch in batches for part in batch if part is not None]
    tensors = [t for part in parts for t in (part.values() if isinstance(part, dict) else [part])]
    return [tensor.numpy().tobytes() for tensor in tensors]


def trained(directory: Path, kind: str, until: int, stop: int | None = None) -> Any:
    """A run of a buffer, stopped without a word after `stop` steps."""
    buffer, rng = make(kind), np.random.default_rng(0)
    with perdure.Run(directory, every=perdure.Every(env_steps=500), horizon=until) as run:
        run.restore(buffer=buffer, rng=rng)
        while run.env_steps < until and run.env_steps != stop:
            play(buffer, rng, 250)
            run.boundary(env_steps=run.env_steps + 250, metrics={"drawn": drawn(buffer)[0].hex()})
        if stop is None:
            run.finish()
    return buffer


@pytest.mark.full
@pytest.mark.usefixtures("global_generators")
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_the_same_wherever_it_was_stopped(tmp_path: Path, kind: str):
    """Before the buffer is full and after; what would be drawn next is compared."""
    straight = trained(tmp_path / "straight", kind, 7_000)
    for stop in (750, 3_250, 5_000):
        trained(tmp_path / "stopped", kind, 7_000, stop)
    stopped = trained(tmp_path / "stopped", kind, 7_000)

    assert drawn(stopped) == drawn(straight)
    assert (stopped.pos, stopped.full) == (straight.pos, straight.full) == (1_000, True)
    rows = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("straight", "stopped")]
    assert rows[0] == rows[1]


@pytest.mark.usefixtures("global_generators")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 700, 3_000, 4_100])
def test_a_buffer_comes_back_in_place(tmp_path: Path, kind: str, steps: int):
    """The very arrays are filled; the twin that lost its last step draws other batches."""
    buffer = make(kind)
    play(buffer, np.random.default_rng(0), steps)
    perdure.save(tmp_path / "a", buffer=buffer)
    fresh, rewards = (target := make(kind)), target.rewards

    assert perdure.load(tmp_path / "a", buffer=fresh)["buffer"] is fresh

    assert fresh.rewards is rewards
    assert drawn(fresh) == drawn(buffer)
    assert (fresh.pos, fresh.full) == (buffer.pos, buffer.full)
    twin = make(kind)
    play(twin, np.random.default_rng(1), steps)
    assert drawn(twin) != drawn(buffer)
    play(buffer, np.random.default_rng(2), 10)
    play(fresh, np.random.default_rng(2), 10)
    assert drawn(fresh) == drawn(buffer)


@pytest.mark.parametrize(
    ("kind", "target", "message"),
    [
        ("plain", {"size": 8_000}, r"buffer/rows: buffer_size // n_envs 3,000 in the run, buffer_size // n_envs 4,000"),
        ("plain", {"size": 9_000, "n_envs": 3}, r"buffer/rows/actions: float32 2×2 in the run, float32 3×2 here"),
        ("plain", {"handle_timeout_termination": False}, "buffer/handle_timeout_termination: True in the run, False"),
        ("n-step", {"n_steps": 5}, "buffer/n_steps: 3 in the run, 5 here"),
    ],
)
def test_another_buffer_is_refused(tmp_path: Path, kind: str, target: dict[str, Any], message: str):
    """Another size or number of environments, or another way to draw; nothing changes."""
    buffer = make(kind)
    play(buffer, np.random.default_rng(0), 100)
    perdure.save(tmp_path / "a", buffer=buffer)
    fresh = make(kind, **target)
    with pytest.raises(ContractError, match=message):
        perdure.load(tmp_path / "a", buffer=fresh)
    assert (fresh.pos, fresh.full) == (0, False)


def written(directory: Path) -> int:
    """Bytes that the newest checkpoint does not share."""
    newest = sorted((directory / "checkpoints").iterdir())[-1]
    return sum(file.stat().st_size for file in newest.iterdir() if file.stat().st_nlink == 1)


def test_an_edit_of_an_old_transition_is_found_and_rewritten(tmp_path: Path):
    """Nobody tells of it: the digest of its block does. Everything else stays shared."""
    buffer = make("plain", 60_000, 1)
    play(buffer, np.random.default_rng(0), 15_000)
    row = sum(column[0].nbytes for column in (buffer.observations, buffer.next_observations, buffer.actions)) + 12
    with perdure.Run(tmp_path / "run", every=perdure.Every(env_steps=1)) as run:
        run.restore(buffer=buffer)
        run.boundary(env_steps=1)
        assert written(tmp_path / "run") < 20_000  # a manifest
        buffer.rewards[4_000] = 77
        run.boundary(env_steps=2)
        assert 4_096 * row < written(tmp_path / "run") < 4_096 * row + 20_000
    fresh = make("plain", 60_000, 1)
    perdure.Run(tmp_path / "run").restore(buffer=fresh)
    assert fresh.rewards[4_000] == 77
    assert drawn(fresh) == drawn(buffer)


def test_overwriting_writes_what_is_new(tmp_path: Path):
    """At most a block more, and a file that is too short; wherever the ring stands and across a resume."""
    buffer, rng = make("plain", 24_000, 1), np.random.default_rng(0)
    row = sum(column[0].nbytes for column in (buffer.observations, buffer.next_observations, buffer.actions)) + 12
    play(buffer, rng, 24_000)
    total = 0
    for turn in range(8):
        with perdure.Run(tmp_path / "run", every=perdure.Every(env_steps=1)) as run:
            run.restore(buffer=buffer if turn == 0 else (buffer := make("plain", 24_000, 1)))
            for _ in range(2):
                play(buffer, rng, 5_000)
                run.boundary(env_steps=run.env_steps + 1)
                assert written(tmp_path / "run") < (5_000 + 1_024 + SMALLEST_SEGMENT_ROWS) * row + 30_000
                total += written(tmp_path / "run")
    assert total < 16 * 1.4 * 5_000 * row
    fresh = make("plain", 24_000, 1)
    perdure.Run(tmp_path / "run").restore(buffer=fresh)
    assert drawn(fresh) == drawn(buffer)


def test_a_subclass_is_not_taken_for_the_buffer_alone(tmp_path: Path):
    """It may hold more: all its attributes are saved, its arrays as a whole."""

    class More(ReplayBuffer):
        def __init__(self) -> None:
            super().__init__(3, BOX, ACTION)
            self.seen = 0

    buffer, fresh = More(), More()
    buffer.seen, buffer.pos = 5, 2
    buffer.rewards[:] = 7
    perdure.save(tmp_path / "saved", buffer=buffer)
    perdure.load(tmp_path / "saved", buffer=fresh)

    assert (fresh.seen, fresh.pos, fresh.rewards.tolist()) == (5, 2, buffer.rewards.tolist())
    assert "rows" not in (tmp_path / "saved" / "MANIFEST.json").read_text("utf-8")


LOST: dict[str, Any] = {
    "nothing": lambda buffer: None,
    "pos": lambda buffer: setattr(buffer, "pos", 0),
    "full": lambda buffer: setattr(buffer, "full", False),
    "timeouts": lambda buffer: buffer.timeouts.fill(0),
    "the oldest rows": lambda buffer: buffer.rewards[buffer.pos : buffer.pos + 200].fill(0),
    "the next observation of the newest": lambda buffer: buffer.observations[buffer.pos].fill(0),
}


@pytest.mark.usefixtures("global_generators")
@pytest.mark.parametrize("lost", LOST)
def test_twin_each_part_that_a_resume_forgets_is_seen(tmp_path: Path, lost: str):
    """In what is drawn from then on; the last one where observations are kept once, in a buffer that is not full."""
    kind, steps = ("memory", 500) if lost.startswith("the next") else ("plain", 4_100)
    buffer, fresh = make(kind), make(kind)
    play(buffer, np.random.default_rng(0), steps)
    perdure.save(tmp_path / "a", buffer=buffer)
    perdure.load(tmp_path / "a", buffer=fresh)

    LOST[lost](fresh)

    now = [_whole(each) for each in (buffer, fresh)]
    for each in (buffer, fresh):
        play(each, np.random.default_rng(2), 10)
    later = [_whole(each) for each in (buffer, fresh)]
    assert (now[0] == now[1] and later[0] == later[1]) == (lost == "nothing")


def _whole(buffer: Any) -> list[bytes]:
    """Every transition that can be drawn, by the buffer's own way to look it up."""
    np.random.seed(0)
    places = np.arange(buffer.size() - (buffer.optimize_memory_usage and buffer.full))
    return [part.numpy().tobytes() for part in buffer._get_samples(places) if part is not None]
