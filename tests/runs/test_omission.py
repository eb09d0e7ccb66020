"""What `omit` names is in no checkpoint, and the run says what that costs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.checkpoint.opening import read_manifest
from perdure.errors import CaptureError, ContractError, UsageError
from perdure.runs.directory import open_directory


def ring() -> perdure.Ring:
    """A small one, empty."""
    return perdure.Ring(10, {"x": np.int64})


def trained(directory: Path, until: int, **options: Any) -> tuple[perdure.Run, perdure.Ring, Any]:
    """A run that adds to a ring and draws from a generator at every step."""
    replay, rng = ring(), np.random.default_rng(0)
    options = {"omit": ("replay",), "every": perdure.Every(updates=1), **options}
    with perdure.Run(directory, **options) as run:
        restored = run.restore(replay=replay, rng=rng, weight=0.0)
        assert restored.replay is replay
        weight = restored.weight
        while run.env_steps < until:
            replay.add(x=int(rng.integers(9)))
            weight += float(rng.random())
            run.boundary(env_steps=run.env_steps + 1, weight=weight)
    return run, replay, weight


def test_a_component_that_is_left_out_is_fresh_and_the_rest_is_exact(tmp_path: Path):
    """A notice says so, and so does the manifest; the twin without `omit` has everything."""
    trained(tmp_path / "run", 4)
    run, replay, weight = trained(tmp_path / "run", 6)
    _, whole, same = trained(tmp_path / "straight", 6)

    assert weight == same
    assert (replay.total, whole.total) == (2, 6)
    assert run.notices[-1] == "replay is as this start made it: omit leaves it out of checkpoints."
    store = open_directory(tmp_path / "run").store()
    part = read_manifest(store, store.names()[-1])[0].components["replay"]
    assert (part.fidelity, part.reason) == ("statistical", "replay: left out of checkpoints by Run(omit=…)")
    trained(tmp_path / "kept", 4, omit=())
    assert trained(tmp_path / "kept", 6, omit=())[1].total == 6


class Agent:
    """Holds the ring that is a component beside it."""

    def __init__(self, replay: perdure.Ring) -> None:
        self.replay, self.steps = replay, 0

    def state_dict(self) -> dict[str, Any]:
        return {"replay": self.replay, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.replay, self.steps = state["replay"], state["steps"]


@pytest.mark.parametrize("omit", [("replay",), ()])
def test_what_is_left_out_is_not_saved_by_one_that_holds_it(tmp_path: Path, omit: tuple[str, ...]):
    """It stands behind the other by name; the twin that leaves nothing out has all of it."""
    for until in (2, 3):
        replay = ring()
        agent = Agent(replay)
        with perdure.Run(tmp_path / "run", omit=omit, every=perdure.Every(updates=1)) as run:
            run.restore(agent=agent, replay=replay)
            assert agent.replay is replay
            while run.env_steps < until:
                replay.add(x=run.env_steps)
                agent.steps += 1
                run.boundary(env_steps=run.env_steps + 1)
    assert agent.steps == 3
    assert replay.total == (1 if omit else 3)
    files = {path.name for path in (tmp_path / "run" / "checkpoints").rglob("*.safetensors")}
    assert any("0000-" in file for file in files) == (not omit), files


def test_values_can_be_left_out(tmp_path: Path):
    """They need not be handed in again, and may be."""
    for until in (2, 4):
        with perdure.Run(tmp_path / "run", omit=["cache"], every=perdure.Every(updates=1)) as run:
            restored = run.restore(cache={"a": [object()]}, n=0)
            assert list(restored.cache) == ["a"]
            run.boundary(env_steps=until - 1, n=1, cache={"b": object()})
            run.boundary(env_steps=until, n=2)


def test_an_exact_class_cannot_be_had_with_it(tmp_path: Path):
    """Asked for by name, it is refused when the run opens."""
    with pytest.raises(
        CaptureError, match=r"requires='exact-replay', but replay allows statistical \(replay: left out"
    ):
        trained(tmp_path / "run", 1, requires="exact-replay")


def test_a_run_cannot_begin_or_cease_to_leave_it_out(tmp_path: Path):
    """Both are told at the component, with the way out."""
    trained(tmp_path / "without", 2)
    with pytest.raises(
        ContractError,
        match=r"replay: left out of the run's checkpoints in the run, a target here. .*omit=\('replay',\)",
    ):
        trained(tmp_path / "without", 3, omit=(), requires="statistical")
    trained(tmp_path / "with", 2, omit=())
    with pytest.raises(ContractError, match=r"left out by Run\(omit=…\) here. The run saved it: take it out of omit"):
        trained(tmp_path / "with", 3)


@pytest.mark.parametrize(
    ("omit", "message"),
    [("replay", r"omit='replay': a tuple of component names"), (("reply",), r"omit=\['reply'\], but")],
)
def test_wrong_names_are_refused(tmp_path: Path, omit: Any, message: str):
    """Before anything is created."""
    with pytest.raises(UsageError, match=message):
        trained(tmp_path / "run", 1, omit=omit)
    assert not (tmp_path / "run").exists()
