"""Pieces: a replay buffer of 10^6 frames in runs, and beside Stable-Baselines3's own way to save it; each a process.

`python -m benchmarks.parts.atari_replay PIECE DIRECTORY` prints what it found as one line of JSON. Pieces that restore
need the directory that the piece before them left.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.save_util import load_from_pkl, save_to_pkl

import perdure
from benchmarks.common.scratch import sync

CAPACITY, EVERY, WRAPPED = 1_000_000, 50_000, 5
"""Transitions held, transitions between checkpoints, and checkpoints once the ring is full."""
FRAME = (84, 84)

Found = dict[str, Any]


def ring() -> perdure.Ring:
    """One frame a transition: the next observation is the next row's."""
    kinds = {"frame": (np.uint8, FRAME), "action": np.int64, "reward": np.float32, "done": np.bool_}
    return perdure.Ring(CAPACITY, kinds)


def sb3_buffer() -> ReplayBuffer:
    """The same in the layout of Stable-Baselines3 that keeps each frame once."""
    observation, action = spaces.Box(0, 255, FRAME, np.uint8), spaces.Discrete(4)
    options = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    return ReplayBuffer(CAPACITY, observation, action, "cpu", **options)


def fill_ring(buffer: perdure.Ring, rng: np.random.Generator) -> None:
    """Adds what a cadence brings, 5,000 at a time: frames with few values, as those of games."""
    for _ in range(EVERY // 5_000):
        buffer.extend(
            frame=_frames(rng, 5_000),
            action=rng.integers(4, size=5_000),
            reward=rng.random(5_000, np.float32),
            done=rng.random(5_000) < 0.01,
        )


def fill_sb3(buffer: ReplayBuffer, rng: np.random.Generator, number: int) -> None:
    """The same, written as `add` would, many at once."""
    for _ in range(number // 5_000):
        part = slice(buffer.pos, buffer.pos + 5_000)
        buffer.observations[part, 0] = _frames(rng, 5_000)
        buffer.actions[part, 0, 0] = rng.integers(4, size=5_000)
        buffer.rewards[part, 0] = rng.random(5_000)
        buffer.dones[part, 0] = rng.random(5_000) < 0.01
        buffer.pos = (buffer.pos + 5_000) % CAPACITY
        buffer.full |= buffer.pos == 0


def _frames(rng: np.random.Generator, number: int) -> np.ndarray:
    return np.frombuffer(rng.bytes(number * FRAME[0] * FRAME[1]), np.uint8).reshape(number, *FRAME) & 15


def save_ring(directory: Path) -> Found:
    """A run that fills the ring and goes on; every checkpoint is measured."""
    buffer, rng = ring(), np.random.default_rng(0)
    saves = CAPACITY // EVERY + WRAPPED
    with perdure.Run(directory / "ring", every=perdure.Every(env_steps=EVERY)) as run:
        run.restore(replay=buffer, rng=rng)
        measured = [_checkpoint(run, lambda: fill_ring(buffer, rng)) for _ in range(saves)]
    row_bytes = sum(column[0].nbytes for column in buffer.columns.values())
    return _saves(measured, row_bytes * EVERY)


def save_sb3(directory: Path) -> Found:
    """A run with Stable-Baselines3's buffer: filled at once, then five checkpoints while it overwrites."""
    buffer, rng = sb3_buffer(), np.random.default_rng(0)
    with perdure.Run(directory / "sb3", every=perdure.Every(env_steps=EVERY)) as run:
        run.restore(replay=buffer, rng=rng)
        measured = [_checkpoint(run, lambda: fill_sb3(buffer, rng, CAPACITY))]
        measured += [_checkpoint(run, lambda: fill_sb3(buffer, rng, EVERY)) for _ in range(WRAPPED)]
    columns = (buffer.observations, buffer.actions, buffer.rewards, buffer.dones, buffer.timeouts)
    return _saves(measured[1:], sum(column[0].nbytes for column in columns) * EVERY)


def restore_ring(directory: Path) -> Found:
    """The run's restore in a new process."""
    buffer = ring()
    run = perdure.Run(directory / "ring", mode="resume")
    return _restored(lambda: run.restore(replay=buffer, rng=np.random.default_rng(0)), buffer.columns["frame"].nbytes)


def restore_sb3(directory: Path) -> Found:
    """The same with Stable-Baselines3's buffer."""
    buffer = sb3_buffer()
    run = perdure.Run(directory / "sb3", mode="resume")
    return _restored(lambda: run.restore(replay=buffer, rng=np.random.default_rng(0)), buffer.observations.nbytes)


def pickle_sb3(directory: Path) -> Found:
    """What `save_replay_buffer` does, made durable."""
    buffer = sb3_buffer()
    fill_sb3(buffer, np.random.default_rng(0), CAPACITY)
    path = directory / "buffer.pkl"
    extra, taken = _measured(lambda: (save_to_pkl(path, buffer, 0), sync(path), sync(directory)))
    return {"blocked_s": [taken], "written_bytes": [path.stat().st_size], "extra_bytes": [extra]}


def unpickle_sb3(directory: Path) -> Found:
    """What `load_replay_buffer` does."""
    return _restored(lambda: load_from_pkl(directory / "buffer.pkl"), CAPACITY * FRAME[0] * FRAME[1])


def _checkpoint(run: perdure.Run, collect: Callable[[], object]) -> tuple[float, int, int]:
    """Seconds for which the loop is blocked, bytes that are not shared, and how far the memory rose."""
    collect()
    os.sync()
    extra, taken = _measured(lambda: run.boundary(env_steps=run.env_steps + EVERY))
    newest = sorted((Path(run.directory) / "checkpoints").iterdir())[-1]
    return taken, sum(each.stat().st_size for each in newest.iterdir() if each.stat().st_nlink == 1), extra


def _saves(measured: list[tuple[float, int, int]], new_bytes: int) -> Found:
    taken, written, extra = map(list, zip(*measured, strict=True))
    return {"blocked_s": taken, "written_bytes": written, "extra_bytes": extra, "new_bytes": new_bytes}


def _restored(do: Callable[[], object], ring_bytes: int) -> Found:
    extra, taken = _measured(do)
    return {"restore_s": taken, "extra_bytes": [extra - ring_bytes]}


def _measured(do: Callable[[], object]) -> tuple[int, float]:
    """How far resident memory rose meanwhile, and the seconds it took."""
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    before, started = _status("VmHWM"), time.perf_counter()
    do()
    return _status("VmHWM") - before, time.perf_counter() - started


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if not found:
        raise OSError(f"this system does not tell {field}")
    return int(found[1]) * 1024


PIECES: dict[str, Callable[[Path], Found]] = {
    "save_ring": save_ring,
    "restore_ring": restore_ring,
    "save_sb3": save_sb3,
    "restore_sb3": restore_sb3,
    "pickle_sb3": pickle_sb3,
    "unpickle_sb3": unpickle_sb3,
}


if __name__ == "__main__":
    print(json.dumps(PIECES[sys.argv[1]](Path(sys.argv[2]))))
