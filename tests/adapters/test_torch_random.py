"""PyTorch's generators go on exactly: those that are handed in, and the process's own, whose states never move."""

import random
import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perdure.adapters import process_rng  # noqa: E402
from perdure.adapters.process_rng import ProcessRng, ProcessRngAdapter  # noqa: E402
from perdure.adapters.resolve import Resolver  # noqa: E402
from perdure.adapters.walk import Walk  # noqa: E402
from perdure.errors import CaptureError  # noqa: E402
from perdure.tree.leaves import Array, Tree  # noqa: E402

pytestmark = pytest.mark.usefixtures("global_generators")


@pytest.fixture(autouse=True)
def torch_generator():
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def draws(generator: Any = None) -> list[float]:
    """An odd number of Gaussians: PyTorch keeps one back."""
    return [*torch.randn(3, generator=generator).tolist(), *torch.rand(2, generator=generator).tolist()]


def test_a_generator_goes_on_exactly_with_its_cached_gaussian(trip):
    source, target = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    torch.randn(1, generator=source)

    assert trip.restored(source, target) is target

    assert draws(target) == draws(source)


def test_a_generator_that_was_drawn_from_once_more_is_seen(trip):
    """The twin."""
    source = torch.Generator().manual_seed(1)
    before = trip.digest(source)

    torch.rand(1, generator=source)

    assert trip.digest(source) != before


def test_capturing_draws_nothing(trip):
    generator = torch.Generator().manual_seed(1)
    before = (generator.get_state().tolist(), torch.get_rng_state().tolist())

    trip.saved({"generator": generator, "process": ProcessRng()})

    assert (generator.get_state().tolist(), torch.get_rng_state().tolist()) == before


def test_something_else_than_a_generator_is_a_finding(trip):
    assert trip.findings([1], [torch.Generator()]) == [("c/0", "1", "a torch.Generator")]


def test_a_generator_of_another_kind_of_device_is_a_finding(trip):
    tree = trip.tree([torch.Generator()])
    tree[0]["device"] = "cuda"

    findings = Walk(Resolver()).check([torch.Generator()], tree, "c")

    assert [(finding.key, finding.saved, finding.found) for finding in findings] == [
        ("c/0", "cuda generator", "cpu generator")
    ]
    assert "torch.Generator('cuda')" in findings[0].advice


# The process's own.


def restore_tree(saved: Tree, target: ProcessRng | None = None) -> ProcessRng:
    target, walk = target or ProcessRng(), Walk(Resolver())
    assert ProcessRngAdapter().check(target, saved, walk) == []
    return ProcessRngAdapter().restore(target, saved, walk)


def test_the_global_generator_goes_on_exactly(trip):
    torch.manual_seed(1)
    torch.randn(1)
    saved = trip.tree(ProcessRng())
    wanted = draws()

    torch.manual_seed(2)
    restore_tree(saved)

    assert draws() == wanted


def test_states_are_kept_as_bytes(trip):
    state = trip.tree(ProcessRng())["torch"]["cpu"]

    assert isinstance(state, Array)
    assert state.value.dtype == np.uint8


def test_a_checkpoint_from_before_pytorch_was_imported_is_restored_and_the_next_one_has_its_state(trip):
    saved = trip.tree(ProcessRng())
    del saved["torch"]

    target = restore_tree(saved)

    assert trip.tree(target).keys() == {"python", "numpy"}
    target.follow_all()
    assert trip.tree(target).keys() == {"python", "numpy", "torch"}


def test_pytorch_is_not_imported_for_its_generator(trip, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "torch")

    assert trip.tree(ProcessRng()).keys() == {"python", "numpy"}


def test_a_checkpoint_with_pytorch_s_state_is_refused_where_there_is_none(trip, monkeypatch: pytest.MonkeyPatch):
    saved = trip.tree(ProcessRng())
    monkeypatch.setattr(process_rng, "find_spec", lambda name: None)

    (finding,) = ProcessRngAdapter().check(ProcessRng(), saved, Walk(Resolver()))

    assert str(finding) == "torch: PyTorch's generator in the run, no PyTorch here. Install PyTorch, as the run had it."


@pytest.mark.parametrize(
    "broken",
    [{}, {"cpu": 1}, {"cpu": Array(np.zeros(3, np.uint8))}, {"cpu": Array(np.zeros(5056, np.uint8)), "cuda": 1}, 5],
    ids=str,
)
def test_states_of_another_size_or_kind_are_findings(trip, broken: Any):
    saved = {**trip.tree(ProcessRng()), "torch": broken}

    (finding,) = ProcessRngAdapter().check(ProcessRng(), saved, Walk(Resolver()))

    assert finding.found == "5056 bytes of PyTorch's CPU generator"


class Cuda:
    """A double of `torch.cuda`: as many devices as it is told, whose states are bytes."""

    def __init__(self, *states: int) -> None:
        self.states = [torch.full((16,), state, dtype=torch.uint8) for state in states]
        self.in_use = bool(states)

    def is_available(self) -> bool:
        return bool(self.states)

    def is_initialized(self) -> bool:
        return self.in_use

    def init(self) -> None:
        self.in_use = True

    def device_count(self) -> int:
        return len(self.states)

    def get_rng_state_all(self) -> list[Any]:
        return [state.clone() for state in self.states]

    def set_rng_state(self, state: Any, device: int) -> None:
        assert state.device.type == "cpu"
        self.states[device] = state.clone()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch):
    def with_devices(*states: int) -> Cuda:
        double = Cuda(*states)
        monkeypatch.setattr(torch, "cuda", double)
        return double

    return with_devices


def cuda_states(tree: Tree) -> list[int]:
    return [state.value[0] for state in tree["torch"].get("cuda", [])]


def test_cuda_s_generators_are_captured_once_cuda_is_in_use(trip, cuda):
    double = cuda(1, 2)
    assert cuda_states(trip.tree(ProcessRng())) == [1, 2]

    double.in_use = False
    assert "cuda" not in trip.tree(ProcessRng())["torch"]


def test_cuda_s_generators_are_restored_from_the_host(trip, cuda):
    cuda(1, 2)
    saved = trip.tree(ProcessRng())
    double = cuda(8, 9)
    double.in_use = False

    target = restore_tree(saved)

    assert [state[0].item() for state in double.states] == [1, 2]
    assert cuda_states(trip.tree(target)) == [1, 2]


@pytest.mark.parametrize("devices", [(), (9,)], ids=["none", "one"])
def test_states_of_devices_that_are_not_here_are_kept_for_a_machine_that_has_them(trip, cuda, devices: tuple[int, ...]):
    cuda(1, 2)
    saved = trip.tree(ProcessRng())
    cuda(*devices)

    target = restore_tree(saved)

    assert cuda_states(trip.tree(target)) == [1, 2]
    target.follow_all()
    assert cuda_states(trip.tree(target)) == [1, 2]


def test_one_process_of_several_is_refused(trip, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)

    for component in (ProcessRng(), torch.nn.Linear(1, 1)):
        with pytest.raises(CaptureError, match=r"^c: this process is one of 2 of a torch.distributed group; a run is"):
            trip.tree(component)


def test_a_group_of_one_is_no_obstacle(trip, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)

    assert "torch" in trip.tree(ProcessRng())


def test_the_other_libraries_generators_are_still_restored(trip):
    random.seed(1)
    saved = trip.tree(ProcessRng())
    wanted = random.random()

    random.seed(2)
    restore_tree(saved)

    assert random.random() == wanted
