"""PyTorch trainings resume exactly at every boundary, in this process and in new ones; each lost part is seen."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

KINDS = ("mlp", "lstm", "tied")
UPDATES = 8
KILLED = -9


@pytest.fixture(scope="module")
def torch_loop() -> ModuleType:
    import torch
    from tests.conftest import load_beside

    torch.set_num_threads(1)
    return load_beside("resume/torch_loop")


@pytest.fixture(autouse=True)
def generators_afterwards(global_generators: None):
    import torch

    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


@pytest.fixture(scope="module")
def straight(torch_loop: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each kind that was never stopped."""
    runs = {kind: tmp_path_factory.mktemp(kind) / "run" for kind in KINDS}
    for kind, directory in runs.items():
        torch_loop.train(directory, kind)
    return runs


FAST = {("mlp", 3), ("lstm", 5), ("tied", 0)}


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        pytest.param(kind, at, marks=[] if (kind, at) in FAST else pytest.mark.full)
        for kind in KINDS
        for at in range(UPDATES)
    ],
)
def test_a_resume_at_every_boundary_equals_the_run_never_stopped(
    kind: str, at: int, straight: dict[str, Path], torch_loop: ModuleType, comparing: ModuleType, tmp_path: Path
):
    """Every leaf and generator of every later boundary, whatever seed the resumed script builds its networks from."""
    comparing.stopped_at(straight[kind], at, tmp_path / "run")

    torch_loop.train(tmp_path / "run", kind, seed=99)

    assert comparing.differences(straight[kind], tmp_path / "run") == []
    assert sorted(comparing.checkpoints(tmp_path / "run")) == list(range(UPDATES + 1))


def loop(*words: str) -> int:
    script = Path(__file__).with_name("torch_loop.py")
    return subprocess.run([sys.executable, script, *words], check=False, capture_output=True).returncode


@pytest.mark.full
@pytest.mark.parametrize(("kind", "at"), [("mlp", 2), ("lstm", 5), ("tied", 1)])
def test_a_killed_process_resumed_in_a_new_one_equals_the_run_never_stopped(
    kind: str, at: int, straight: dict[str, Path], comparing: ModuleType, tmp_path: Path
):
    run = tmp_path / "run"
    assert loop(str(run), "--kind", kind, "--kill-at-boundary", str(at)) == KILLED
    assert sorted(comparing.checkpoints(run)) == list(range(at + 1))

    assert loop(str(run), "--kind", kind, "--seed", "99") == 0

    assert comparing.differences(straight[kind], run) == []
    assert comparing.state_digests(run) == comparing.state_digests(straight[kind])


def _load(name: str) -> Any:
    return lambda t, fresh: getattr(t, name).load_state_dict(getattr(fresh, name).state_dict())


def _set(name: str) -> Any:
    return lambda t, fresh: setattr(t, name, getattr(fresh, name))


def _log_alpha(t: Any, fresh: Any) -> None:
    t.log_alpha.data.copy_(fresh.log_alpha.data)


FORGOTTEN: dict[str, Any] = {
    "weights and statistics": _load("net"),
    "log_alpha": _log_alpha,
    "moments": _load("optimizer"),
    "momentum of log_alpha": _load("alpha_optimizer"),
    "schedule": _load("schedule"),
    "plateau": _load("plateau"),
    "average": _load("average"),
    "generator": lambda t, fresh: t.generator.set_state(fresh.generator.get_state()),
    "global generator": lambda t, fresh: _torch().manual_seed(3),
    "a buffer that is not persistent": lambda t, fresh: t.net.mean.zero_(),
    "a counter of the module": lambda t, fresh: setattr(t.net, "calls", 0),
    "the average's count": lambda t, fresh: t.average.n_averaged.zero_(),
    "observation": _set("observation"),
    "best": _set("best"),
    "recent": _set("recent"),
}
"""What common scripts lose: nothing but the first is in the files that `torch.save(net.state_dict())` makes."""


def _torch() -> Any:
    import torch

    return torch


@pytest.mark.full
@pytest.mark.parametrize("part", FORGOTTEN)
def test_twin_each_part_that_a_resume_forgets_is_seen(
    part: str, straight: dict[str, Path], torch_loop: ModuleType, comparing: ModuleType, tmp_path: Path
):
    comparing.stopped_at(straight["mlp"], 4, tmp_path / "run")

    torch_loop.train(tmp_path / "run", "mlp", forget=FORGOTTEN[part])

    later = [line for line in comparing.differences(straight["mlp"], tmp_path / "run") if "boundary 8" in line]
    assert any(": net/" in line for line in later), "it has no say in the weights"


@pytest.mark.full
def test_twin_a_lost_carry_is_seen(
    straight: dict[str, Path], torch_loop: ModuleType, comparing: ModuleType, tmp_path: Path
):
    comparing.stopped_at(straight["lstm"], 4, tmp_path / "run")

    torch_loop.train(tmp_path / "run", "lstm", forget=_set("carry"))

    later = [line for line in comparing.differences(straight["lstm"], tmp_path / "run") if "boundary 8" in line]
    assert any(": net/" in line for line in later)


@pytest.mark.full
def test_twin_a_tied_weight_that_came_back_untied_is_seen(
    straight: dict[str, Path], torch_loop: ModuleType, comparing: ModuleType, tmp_path: Path
):
    comparing.stopped_at(straight["tied"], 4, tmp_path / "run")

    def untie(t: Any, fresh: Any) -> None:
        t.net.head.weight = _torch().nn.Parameter(t.net.head.weight.detach().clone())

    torch_loop.train(tmp_path / "run", "tied", forget=untie)

    later = [line for line in comparing.differences(straight["tied"], tmp_path / "run") if "boundary 8" in line]
    assert any(": net/head.weight" in line for line in later)


def test_what_the_background_writer_writes_is_the_state_at_the_boundary(torch_loop: ModuleType, tmp_path: Path):
    """CASES 13: parameters are overwritten in place while the writer is at work."""
    import torch

    import perdure

    net = torch.nn.Linear(300, 300)
    wanted = net.weight.detach().clone()
    with perdure.Run(tmp_path / "run", config={}, every=perdure.Every(updates=1)) as run:
        run.restore(net=net)
        run.boundary(env_steps=1)
        with torch.no_grad():
            net.weight.zero_()
        run.finish(env_steps=2)

    saved = perdure.read(tmp_path / "run" / "checkpoints" / "step_0000000001")
    assert saved["net"]["weight"].tobytes() == wanted.numpy().tobytes()


def test_a_checkpoint_of_a_gpu_machine_loads_here_and_says_so(torch_loop: ModuleType, tmp_path: Path):
    """The manifest is made to say what a GPU machine would: its device, and the states of its generators."""
    import torch

    import perdure
    from perdure.checkpoint.opening import read_manifest
    from perdure.contract import arithmetic
    from perdure.runs.directory import open_directory

    def start(device: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        monkeypatch.setattr(arithmetic, "_torch_device", lambda torch: device)
        with perdure.Run(tmp_path / "run", config={}, background=False) as run:
            run.restore(net=torch.nn.Linear(2, 2))
            run.finish(env_steps=1 + run.env_steps)
        return list(run.notices)

    with pytest.MonkeyPatch.context() as monkeypatch:
        assert start("NVIDIA A100-SXM4-40GB", monkeypatch) == []
        notices = start("cpu", monkeypatch)

    store = open_directory(tmp_path / "run").store()
    assert read_manifest(store, max(store.names()))[0].arithmetic["torch device"] == "cpu"
    assert notices == [
        "arithmetic changed: torch device: NVIDIA A100-SXM4-40GB then, cpu now. "
        "The last bits of results may differ from here on."
    ]
