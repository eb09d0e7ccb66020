"""State that an optimizer lost between two checkpoints is found at the save. CASES 3."""

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import CaptureError, Every, Run

torch = pytest.importorskip("torch")

LOST = (
    r"^optimizer: this optimizer held state at the last checkpoint and holds none now: it was lost\. "
    r"If it is meant to begin anew, let it make a step before the boundary; else do not clear optimizer\.state\."
)


def make(kind: Any = torch.optim.Adam) -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = torch.nn.Linear(2, 1)
    return net, kind(net.parameters(), lr=0.1)


def step(net: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def opened(directory: Path, net: Any, optimizer: Any) -> Run:
    run = Run(directory, every=Every(updates=1))
    run.restore(net=net, optimizer=optimizer)
    return run


def saved_state(run: Path) -> Any:
    return perdure.read(max((run / "checkpoints").glob("step_*")))["optimizer"]["state"]


def test_an_adam_that_lost_its_moments_is_not_saved(tmp_path: Path):
    net, optimizer = make()
    run = opened(tmp_path / "run", net, optimizer)
    step(net, optimizer)
    run.boundary(env_steps=1, metrics={"loss": 1.0})
    optimizer.state.clear()

    with pytest.raises(CaptureError, match=LOST):
        run.boundary(env_steps=2, metrics={"loss": 2.0})

    run.close()
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1
    assert saved_state(tmp_path / "run")


def test_one_that_lost_them_after_a_resume_is_not_saved(tmp_path: Path):
    first = make()
    with opened(tmp_path / "run", *first) as run:
        step(*first)
        run.boundary(env_steps=1)
    net, optimizer = make()
    run = opened(tmp_path / "run", net, optimizer)
    assert run.resumed
    optimizer.state.clear()

    with pytest.raises(CaptureError, match=LOST):
        run.boundary(env_steps=2)
    run.close()


def test_a_warm_up_without_steps_and_a_new_beginning_with_one_are_saved(tmp_path: Path):
    net, optimizer = make()
    with opened(tmp_path / "run", net, optimizer) as run:
        run.boundary(env_steps=1)
        step(net, optimizer)
        run.boundary(env_steps=2)
        optimizer.state.clear()
        step(net, optimizer)
        run.boundary(env_steps=3)

    saved = saved_state(tmp_path / "run")
    assert [float(entry["step"]) for entry in saved.values()] == [1.0, 1.0]


def test_an_sgd_without_momentum_never_has_any(tmp_path: Path):
    net, optimizer = make(torch.optim.SGD)
    with opened(tmp_path / "run", net, optimizer) as run:
        for at in range(1, 3):
            step(net, optimizer)
            run.boundary(env_steps=at)
    assert saved_state(tmp_path / "run") == {}
