"""States of flashbax's buffers come back bit for bit, and of old time steps only what changed is written."""

import dataclasses
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("flashbax")

import jax
import jax.numpy as jnp

import perdure
from perdure.adapters.flashbax_buffers import LONG_STEPS
from perdure.checkpoint.segments import SMALLEST_SEGMENT_ROWS
from perdure.errors import CaptureError, ContractError

flashbax = import_module("flashbax")
"""By its name: who checks types need not have it."""

ROW = 4 * 3 + 4 + 2 * 2 + 1
"""Bytes of one time step of one lane."""
WORDS = 5_000
"""What a checkpoint writes beside rows and manifest: the other leaves, headers."""


class Extras(NamedTuple):
    """Part of a step."""

    value: Any
    ended: Any


def step() -> dict[str, Any]:
    """What a buffer is built from: several dtypes, nested."""
    extras = Extras(jnp.zeros((2,), jnp.bfloat16), jnp.zeros((), bool))
    return {"observation": jnp.zeros((3,), jnp.float32), "action": jnp.zeros((), jnp.int32), "extras": extras}


def make(kind: str, size: int) -> Any:
    """The buffer's functions; `size` time steps in each lane."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sizes that are not meant to be bytes
        match kind:
            case "item":
                return flashbax.make_item_buffer(size, 32, 32, add_batches=True)
            case "flat":
                return flashbax.make_flat_buffer(4 * size, 32, 32, add_sequences=True, add_batch_size=4)
            case "prioritised":
                return flashbax.make_prioritised_flat_buffer(4 * size, 32, 32, add_sequences=True, add_batch_size=4)
        return flashbax.make_trajectory_buffer(
            max_length_time_axis=size,
            min_length_time_axis=32,
            add_batch_size=4,
            sample_batch_size=32,
            sample_sequence_length=8,
            period=1,
        )


KINDS = ("item", "flat", "trajectory", "prioritised")


def lanes(kind: str) -> int:
    """Transitions in a time step."""
    return 1 if kind == "item" else 4


def add(buffer: Any, kind: str, state: Any, key: Any, steps: int) -> Any:
    """The state with so many time steps more."""
    shape = (steps,) if kind == "item" else (4, steps)

    def drawn(leaf: Any) -> Any:
        bits = jax.random.bits(key, (*shape, *leaf.shape), jnp.uint8)
        return (bits % 100).astype(leaf.dtype)

    state = buffer.add(state, jax.tree.map(drawn, step()))
    return buffer.set_priorities(state, jnp.arange(64), jnp.arange(1.0, 65.0)) if kind == "prioritised" else state


def bits(tree: Any) -> list[tuple[Any, ...]]:
    """All that two trees of arrays can differ in."""
    parts = [(leaf.dtype, leaf.shape, leaf.weak_type, np.asarray(leaf).tobytes()) for leaf in jax.tree.leaves(tree)]
    return [(str(jax.tree.structure(tree)),), *parts]


def trained(directory: Path, kind: str, until: int, stop: int | None = None) -> Any:
    """A run of a buffer, stopped without a word after `stop` steps."""
    buffer = make(kind, LONG_STEPS)
    state, key = buffer.init(step()), jax.random.key(0)
    with perdure.Run(directory, every=perdure.Every(env_steps=3_000), horizon=until) as run:
        restored = run.restore(replay=state, key=key)
        state, key = restored.replay, restored.key
        while run.env_steps < until and run.env_steps != stop:
            key, add_key, sample_key = jax.random.split(key, 3)
            state = add(buffer, kind, state, add_key, 1_500)
            drawn = jax.tree.leaves(buffer.sample(state, sample_key).experience)[0]
            metrics = {"drawn": float(drawn.astype(jnp.float32).sum())}
            run.boundary(env_steps=run.env_steps + 1_500, metrics=metrics, replay=state, key=key)
        if stop is None:
            run.finish()
    return state


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_the_same_wherever_it_was_stopped(tmp_path: Path, kind: str):
    """Before the buffer is full and after; what is drawn is compared, and the whole state."""
    straight = trained(tmp_path / "straight", kind, 15_000)
    for stop in (1_500, 4_500, 10_500):
        trained(tmp_path / "stopped", kind, 15_000, stop)
    stopped = trained(tmp_path / "stopped", kind, 15_000)

    assert bits(stopped) == bits(straight)
    assert bool(stopped.is_full)
    rows = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("straight", "stopped")]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [LONG_STEPS, 64])
@pytest.mark.parametrize("part", [0.0, 0.3, 1.2])
def test_a_state_comes_back_as_a_value(tmp_path: Path, kind: str, size: int, part: float):
    """Empty, in part and full; as rows, or whole where the buffer is short. Neither target nor state changes."""
    buffer = make(kind, size)
    state = buffer.init(step())
    for at in range(2):
        state = add(buffer, kind, state, jax.random.key(at), int(part * size / 2)) if part else state
    target = buffer.init(step())
    before = bits(state), bits(target)
    perdure.save(tmp_path / "a", replay=state)

    back = perdure.load(tmp_path / "a", replay=target)["replay"]

    assert bits(back) == before[0]
    assert (bits(state), bits(target)) == before
    assert type(back) is type(state)
    assert ("flashbax-state" in (tmp_path / "a" / "MANIFEST.json").read_text("utf-8")) == (size == LONG_STEPS)


def written(directory: Path) -> int:
    """Bytes that the newest checkpoint does not share, without its manifest, which has a digest of each block."""
    newest = sorted((directory / "checkpoints").iterdir())[-1]
    files = [file for file in newest.iterdir() if file.name != "MANIFEST.json"]
    return sum(file.stat().st_size for file in files if file.stat().st_nlink == 1)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["item", "trajectory"])
def test_overwriting_writes_what_is_new(tmp_path: Path, kind: str):
    """At most a block more, and a file that is too short, twice where it wraps around; also across a resume."""
    buffer = make(kind, 40_000)
    state = add(buffer, kind, buffer.init(step()), jax.random.key(0), 40_000)
    row, total = ROW * lanes(kind), 0
    for turn in range(4):
        with perdure.Run(tmp_path / "run", every=perdure.Every(env_steps=1)) as run:
            state = run.restore(replay=state if turn == 0 else buffer.init(step())).replay
            for _ in range(2):
                state = add(buffer, kind, state, jax.random.key(run.env_steps), 7_000)
                run.boundary(env_steps=run.env_steps + 1, replay=state)
                more = 2 * (1_024 + SMALLEST_SEGMENT_ROWS)
                assert written(tmp_path / "run") < (7_000 + more) * row + WORDS
                total += written(tmp_path / "run")
    assert total < 8 * (1.25 * 7_000 * row + WORDS)
    assert bits(perdure.Run(tmp_path / "run").restore(replay=buffer.init(step())).replay) == bits(state)


@pytest.mark.full
def test_fifty_thousand_new_steps_are_written_once(tmp_path: Path):
    """Of a buffer of a million: at most 1.05 times their bytes."""
    buffer = make("item", 1_000_000)
    state = add(buffer, "item", buffer.init(step()), jax.random.key(0), 600_000)
    with perdure.Run(tmp_path / "run", every=perdure.Every(env_steps=1)) as run:
        run.restore(replay=state)
        for _ in range(10):  # past its end
            state = add(buffer, "item", state, jax.random.key(run.env_steps), 50_000)
            run.boundary(env_steps=run.env_steps + 1, replay=state)
            assert written(tmp_path / "run") <= 1.05 * 50_000 * ROW


def edited(state: Any, at: int) -> Any:
    """The state with another action at one time step."""
    actions = state.experience["action"]
    experience = {**state.experience, "action": actions.at[0, at].set(77)}
    return dataclasses.replace(state, experience=experience)


def test_an_edit_of_an_old_step_is_found_and_rewritten(tmp_path: Path):
    """Nobody tells of it: the digest of its block does. Everything else stays shared."""
    buffer = make("item", 60_000)
    state = add(buffer, "item", buffer.init(step()), jax.random.key(0), 15_000)
    with perdure.Run(tmp_path / "run", every=perdure.Every(env_steps=1)) as run:
        run.restore(replay=state)
        run.boundary(env_steps=1, replay=state)
        assert written(tmp_path / "run") < WORDS
        state = edited(state, 4_000)
        run.boundary(env_steps=2, replay=state)
        assert 4_096 * ROW < written(tmp_path / "run") < 4_096 * ROW + WORDS
    assert bits(perdure.Run(tmp_path / "run").restore(replay=buffer.init(step())).replay) == bits(state)


def test_steps_that_were_written_past_the_position_are_state(tmp_path: Path):
    """A buffer that somebody filled by hand, and whose position does not say so, comes back whole."""
    state = make("item", LONG_STEPS).init(step())
    filled = dataclasses.replace(edited(state, LONG_STEPS - 1), current_index=jnp.array(100))
    perdure.save(tmp_path / "a", replay=filled)
    assert bits(perdure.load(tmp_path / "a", replay=state)["replay"]) == bits(filled)


@pytest.mark.full
def test_states_that_vmap_made_come_back(tmp_path: Path):
    """One position for each; equal or not."""
    buffer = make("item", LONG_STEPS)
    one = buffer.init(step())
    many = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), add(buffer, "item", one, jax.random.key(0), 500))
    apart = dataclasses.replace(many, current_index=jnp.array([500, 500, 400]))
    for number, state in enumerate((many, apart)):
        perdure.save(tmp_path / str(number), replay=state)
        target = jax.tree.map(jnp.zeros_like, state)
        assert bits(perdure.load(tmp_path / str(number), replay=target)["replay"]) == bits(state)


def test_other_experience_is_taken(tmp_path: Path):
    """A bare array; keys with slashes; weak types; a state that is part of more."""
    for number, experience in enumerate((jnp.zeros((2,)), {"a/b": jnp.zeros(()), "a": {"b": jnp.asarray(0)}})):
        buffer = flashbax.make_item_buffer(LONG_STEPS, 1, 1)
        state = buffer.add(buffer.init(experience), jax.tree.map(lambda leaf: leaf + 1, experience))
        perdure.save(tmp_path / str(number), train={"replay": state, "step": 3})
        back = perdure.load(tmp_path / str(number), train={"replay": buffer.init(experience), "step": 0})["train"]
        assert bits(back["replay"]) == bits(state)
        assert back["step"] == 3


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("item", 2 * LONG_STEPS, "max_length_time_axis 8,192 in the run, max_length_time_axis 16,384 here"),
        ("item", 64, "replay/"),
        ("flat", LONG_STEPS, "replay/experience/"),
        ("prioritised", LONG_STEPS, "replay/sum_tree_state"),
    ],
)
def test_another_buffer_is_refused(tmp_path: Path, kind: str, size: int, message: str):
    """Another size, number of lanes, or kind."""
    buffer = make("item", LONG_STEPS)
    perdure.save(tmp_path / "a", replay=add(buffer, "item", buffer.init(step()), jax.random.key(0), 100))
    with pytest.raises(ContractError, match=message):
        perdure.load(tmp_path / "a", replay=make(kind, size).init(step()))


def test_a_state_that_was_donated_is_refused(tmp_path: Path):
    """Its arrays are gone."""
    state = make("item", LONG_STEPS).init(step())
    state.experience["action"].delete()
    with pytest.raises(CaptureError, match="the array was deleted"):
        perdure.save(tmp_path / "a", replay=state)


LOST: dict[str, Any] = {
    "nothing": lambda state: state,
    "current_index": lambda state: dataclasses.replace(state, current_index=jnp.array(0)),
    "is_full": lambda state: dataclasses.replace(state, is_full=jnp.array(False)),
    "a step": lambda state: edited(state, 5_000),
}


@pytest.mark.parametrize("lost", LOST)
def test_twin_each_part_that_a_resume_forgets_is_seen(tmp_path: Path, lost: str):
    """In the state after the next steps, and in what is drawn."""
    buffer = make("item", LONG_STEPS)
    state = add(buffer, "item", buffer.init(step()), jax.random.key(0), LONG_STEPS - 10)
    state = add(buffer, "item", state, jax.random.key(1), 1_000)
    perdure.save(tmp_path / "a", replay=state)
    back = LOST[lost](perdure.load(tmp_path / "a", replay=buffer.init(step()))["replay"])

    later = [bits(add(buffer, "item", each, jax.random.key(2), 10)) for each in (state, back)]

    assert isinstance(back, type(state))
    assert (later[0] == later[1]) == (lost == "nothing")
