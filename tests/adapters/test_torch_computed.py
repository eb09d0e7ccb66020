"""Tensors that a module computes from its parameters, and those that look into another's memory, are right after it."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

X = torch.arange(6.0).reshape(2, 3)
OLDER: dict[str, Callable[[], Any]] = {
    "spectral norm": lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(3, 3))),
    "weight norm": lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 3))),
    "pruned": lambda: nn.Sequential(prune.l1_unstructured(nn.Linear(3, 3), "weight", 2)),
}


def learn(net: Any, steps: int) -> list[Any]:
    """Outputs, and the weight as it is seen after each step, before the next forward pass computes it anew."""
    optimizer, seen = torch.optim.SGD(net.parameters(), lr=0.1), []
    for _ in range(steps):
        output = net(X)
        optimizer.zero_grad()
        output.square().sum().backward()
        optimizer.step()
        seen += [output.tolist(), net[0].weight.tolist()]
    return seen


@pytest.mark.parametrize("used", [0, 1, 3])
@pytest.mark.parametrize("twin_used", [0, 2])
@pytest.mark.parametrize("kind", OLDER)
def test_the_older_norms_go_on_exactly(trip, kind: str, twin_used: int, used: int):
    source, target = OLDER[kind](), OLDER[kind]()
    learn(source, used)
    learn(target, twin_used)

    trip.restored(source, target)

    assert target[0].weight.tolist() == source[0].weight.tolist()
    assert learn(target, 3) == learn(source, 3)
    assert target.eval()(X).tolist() == source.eval()(X).tolist()


@pytest.mark.parametrize("lost", ["weight_orig", "weight_u", "weight"])
def test_the_digest_sees_each_tensor_of_spectral_norm(trip, lost: str):
    net = OLDER["spectral norm"]()
    learn(net, 1)
    before = trip.digest(net)
    with torch.no_grad():
        getattr(net[0], lost).add_(1)

    assert trip.digest(net) != before


def test_a_weight_that_shows_the_parameter_s_own_memory_goes_on_showing_it(trip):
    """As `spectral_norm` has it before the first forward pass."""
    target = OLDER["spectral norm"]()

    trip.restored(OLDER["spectral norm"](), target)

    assert target[0].weight.data_ptr() == target[0].weight_orig.data_ptr()


class Looking(nn.Module):
    """Keeps what its weights were at some time; at the start, the weights themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.kept = self.layer.weight.detach()


def test_an_attribute_that_has_left_the_parameter_s_memory_comes_back_outside_it(trip):
    source, target = Looking(), Looking()
    source.kept = source.kept.clone()
    with torch.no_grad():
        source.layer.weight.add_(1)

    trip.restored(source, target)

    assert torch.equal(target.kept, source.kept)
    assert torch.equal(target.layer.weight, source.layer.weight)


def test_buffers_that_are_slices_of_one_tensor_stay_slices(trip):
    def sliced(x: float) -> Any:
        flat, made = torch.full((4,), x), nn.Module()
        made.register_buffer("a", flat[:2])
        made.register_buffer("b", flat[2:])
        return made, flat

    (source, flat), (target, target_flat) = sliced(1.0), sliced(0.0)
    flat[3] = 5

    trip.restored(source, target)

    assert target_flat.tolist() == [1, 1, 1, 5]
