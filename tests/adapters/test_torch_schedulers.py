"""Every learning-rate scheduler goes on exactly with its optimizer; so do gradient scalers."""

import inspect
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.optim import lr_scheduler, swa_utils  # noqa: E402

from perdure.errors import CaptureError  # noqa: E402


class Warmup:
    """A callable object: what it holds is state."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.calls = 0

    def __call__(self, epoch: int) -> float:
        self.calls += 1
        return min(1.0, (epoch + 1) / self.steps) * 0.99**self.calls


MAKERS: dict[str, Any] = {
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=3),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=6),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4, 4]),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 12),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 8, 2.0),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1, threshold=0.5),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.5), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.5), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.01, anneal_epochs=4),
    "LambdaLR with an object": lambda o: lr_scheduler.LambdaLR(o, Warmup(4)),
    "CyclicLR with a function": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, scale_fn=lambda x: 0.5, step_size_up=3),
    "LambdaLR of two groups": lambda o: lr_scheduler.LambdaLR(o, [lambda epoch: 0.9**epoch, Warmup(3)]),
}


def test_every_scheduler_of_this_pytorch_is_among_them():
    found = {
        name
        for name, kind in vars(lr_scheduler).items()
        if inspect.isclass(kind) and issubclass(kind, lr_scheduler.LRScheduler) and not name.startswith("_")
    }

    assert found - {"LRScheduler"} <= MAKERS.keys()


def made(kind: str) -> dict[str, Any]:
    """A scheduler whose name comes before its optimizer's."""
    parameters = [torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
    groups = [{"params": parameters}] if "two groups" not in kind else [{"params": [each]} for each in parameters]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
    return {"a_scheduler": MAKERS[kind](optimizer), "optimizer": optimizer, "parameters": parameters}


def step(parts: dict[str, Any], at: int) -> list[float]:
    parts["optimizer"].zero_grad()
    torch.cat(parts["parameters"]).mul(at + 1).sum().backward()
    parts["optimizer"].step()
    plateau = isinstance(parts["a_scheduler"], lr_scheduler.ReduceLROnPlateau)
    parts["a_scheduler"].step(*([1.0 / (at + 1)] if plateau else []))
    rates = [group["lr"] for group in parts["optimizer"].param_groups]
    return [float(rate) for rate in rates] + [part.sum().item() for part in parts["parameters"]]


def at_step(kind: str, stop: int) -> dict[str, Any]:
    parts = made(kind)
    for at in range(stop):
        step(parts, at)
    return parts


@pytest.mark.parametrize("stop", [0, 1, 3, 5])
@pytest.mark.parametrize("kind", MAKERS)
def test_every_scheduler_goes_on_exactly(trip, kind: str, stop: int):
    source, target = at_step(kind, stop), made(kind)

    trip.restored(source, target)

    assert target["a_scheduler"].optimizer is target["optimizer"]
    assert [step(target, at) for at in range(stop, stop + 6)] == [step(source, at) for at in range(stop, stop + 6)]
    assert trip.digest(target) == trip.digest(source)


@pytest.mark.parametrize("kind", sorted(MAKERS.keys() - {"MultiplicativeLR", "ExponentialLR"}))
def test_a_scheduler_that_is_not_restored_goes_elsewhere(trip, kind: str):
    """The twin: optimizer and parameters come back, the scheduler stays fresh (these two look at the rate alone)."""
    source, target = at_step(kind, 3), made(kind)
    parts = ("optimizer", "parameters")

    trip.restored({name: source[name] for name in parts}, {name: target[name] for name in parts})

    assert [step(target, at) for at in range(3, 9)] != [step(source, at) for at in range(3, 9)]


def test_a_callable_object_is_restored_in_place(trip):
    source, target = at_step("LambdaLR with an object", 3), made("LambdaLR with an object")
    warmup = target["a_scheduler"].lr_lambdas[0]

    trip.restored(source, target)

    assert target["a_scheduler"].lr_lambdas == [warmup]
    assert warmup.calls == 4


def test_milestones_stay_counted(trip):
    source, target = at_step("MultiStepLR", 1), made("MultiStepLR")

    trip.restored(source, target)

    assert target["a_scheduler"].milestones == source["a_scheduler"].milestones
    assert type(target["a_scheduler"].milestones) is type(source["a_scheduler"].milestones)


def test_a_scheduler_alone_brings_its_optimizer(trip):
    source, target = at_step("StepLR", 3), made("StepLR")

    trip.restored(source["a_scheduler"], target["a_scheduler"])

    assert target["optimizer"].param_groups[0]["lr"] == source["optimizer"].param_groups[0]["lr"]
    assert target["parameters"][0].tolist() == source["parameters"][0].tolist()


@pytest.mark.parametrize(
    ("saved", "target", "key"),
    [
        ("StepLR", "ExponentialLR", "c/a_scheduler"),
        ("LambdaLR", "LambdaLR with an object", "c/a_scheduler/lr_lambdas/0"),
        ("ConstantLR", "SequentialLR", "c/a_scheduler"),
    ],
)
def test_another_scheduler_is_a_finding(trip, saved: str, target: str, key: str):
    assert key in [place for place, *_ in trip.findings(made(saved), made(target))]


def test_a_changed_function_is_a_finding_by_what_it_binds(trip):
    def decaying(rate: float) -> Any:
        parts = made("StepLR")
        return {**parts, "a_scheduler": lr_scheduler.LambdaLR(parts["optimizer"], lambda epoch: rate**epoch)}

    assert trip.findings(decaying(0.9), decaying(0.8)) == [("c/a_scheduler/lr_lambdas/0/rate", "0.9", "0.8")]


# Gradient scalers.


def scaled(parts: Any, gradient: float) -> None:
    scaler, optimizer, parameter = parts
    optimizer.zero_grad()
    scaler.scale((parameter * gradient).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def scaler_parts() -> Any:
    parameter = torch.ones(1, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    return [scaler, torch.optim.SGD([parameter], lr=0.1), parameter]


GRADIENTS = [1.0, 2.0, math.inf, 1.0, 1.0, 1.0, 3.0]


@pytest.mark.parametrize("stop", range(len(GRADIENTS)))
def test_a_gradient_scaler_goes_on_exactly(trip, stop: int):
    source, target = scaler_parts(), scaler_parts()
    for gradient in GRADIENTS[:stop]:
        scaled(source, gradient)

    trip.restored(source, target)

    for gradient in GRADIENTS[stop:]:
        scaled(source, gradient)
        scaled(target, gradient)
        assert target[0].state_dict() == source[0].state_dict()
    assert target[2].tolist() == source[2].tolist()


def test_a_scaler_whose_growth_was_lost_is_seen(trip):
    source = scaler_parts()
    scaled(source, 1.0)

    assert trip.digest(source[0]) != trip.digest(scaler_parts()[0])


def test_a_scaler_in_mid_step_is_refused(trip):
    scaler, optimizer, parameter = scaler_parts()
    scaler.scale(parameter.sum()).backward()
    scaler.unscale_(optimizer)

    with pytest.raises(CaptureError, match=r"^c: the GradScaler stands between unscale_ or step and update"):
        trip.tree(scaler)
