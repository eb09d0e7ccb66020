"""Pins: checkpoints that stay whatever the policy says."""

from pathlib import Path

import pytest

import perdure
from perdure.errors import DamagedError, NoCheckpointError
from perdure.runs.directory import open_directory
from perdure.runs.pins import read_pins


def steps(run: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in (run / "checkpoints").iterdir())


def train(path: Path, until: int, **options: object) -> perdure.Run:
    with perdure.Run(path, every=perdure.Every(updates=1), **options) as run:  # type: ignore[arg-type]
        run.restore(x=0)
        for step in range(run.env_steps + 1, until + 1):
            run.boundary(env_steps=step, x=step)
        run.finish(x=until)
    return run


def test_a_pinned_checkpoint_stays_until_it_is_unpinned(tmp_path: Path) -> None:
    keep = perdure.Keep(last=1)
    train(tmp_path / "run", 2, keep=perdure.Keep(last=2))
    perdure.pin(tmp_path / "run", 1)

    train(tmp_path / "run", 4, keep=keep)
    assert steps(tmp_path / "run") == [1, 4]

    perdure.unpin(tmp_path / "run", 1)
    train(tmp_path / "run", 5, keep=keep)
    assert steps(tmp_path / "run") == [5]


def test_a_process_that_trains_sees_a_new_pin(tmp_path: Path) -> None:
    """Pins are read at each commit; no lock is needed to pin."""
    with perdure.Run(
        tmp_path / "run", every=perdure.Every(updates=1), keep=perdure.Keep(last=1), background=False
    ) as run:
        run.restore(x=0)
        run.boundary(env_steps=1, x=1)
        perdure.pin(tmp_path / "run", 1)
        run.boundary(env_steps=2, x=2)
        run.boundary(env_steps=3, x=3)

    assert steps(tmp_path / "run") == [1, 3]


def test_pinning_twice_is_pinning_and_unpinning_what_is_not_pinned_is_nothing(tmp_path: Path) -> None:
    train(tmp_path / "run", 1, keep=None)
    perdure.pin(tmp_path / "run", 1)
    perdure.pin(tmp_path / "run", 1)
    perdure.pin(tmp_path / "run", 0)
    assert read_pins(open_directory(tmp_path / "run")) == {"step_0000000000", "step_0000000001"}

    perdure.unpin(tmp_path / "run", 1)
    perdure.unpin(tmp_path / "run", 1)
    perdure.unpin(tmp_path / "run", 77)
    assert read_pins(open_directory(tmp_path / "run")) == {"step_0000000000"}


def test_what_is_not_there_cannot_be_pinned(tmp_path: Path) -> None:
    train(tmp_path / "run", 1, keep=None)

    with pytest.raises(NoCheckpointError, match="no checkpoint at 7 env-steps to pin"):
        perdure.pin(tmp_path / "run", 7)
    assert read_pins(open_directory(tmp_path / "run")) == frozenset()


@pytest.mark.parametrize("text", [b"", b"{}\n", b"[1]\n", b'["a" ]\n', b"\x80\x04N."])
def test_damaged_pins_are_told(tmp_path: Path, text: bytes) -> None:
    train(tmp_path / "run", 1, keep=None)
    (tmp_path / "run" / "pins.json").write_bytes(text)

    with pytest.raises(DamagedError, match=r"pins\.json"):
        perdure.pin(tmp_path / "run", 1)
    assert (tmp_path / "run" / "pins.json").read_bytes() == text


def test_with_damaged_pins_nothing_is_removed_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can tell what was pinned: everything stays, which is logged and noted in the lineage."""
    train(tmp_path / "run", 1, keep=perdure.Keep(last=5))
    (tmp_path / "run" / "pins.json").write_bytes(b"{")

    train(tmp_path / "run", 3, keep=perdure.Keep(last=1))

    assert steps(tmp_path / "run") == [0, 1, 2, 3]
    assert "retention failed for step_0000000003: DamagedError" in caplog.text
    assert b'"retention_failed"' in (tmp_path / "run" / "lineage.jsonl").read_bytes()
