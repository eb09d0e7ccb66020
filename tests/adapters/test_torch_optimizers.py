"""Every optimizer of torch.optim goes on exactly, in its own tensors, and never with another parameter's state."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import perdure  # noqa: E402
from perdure.errors import CaptureError  # noqa: E402
from perdure.tree.leaves import Alias  # noqa: E402

OPTIMIZERS: dict[str, Any] = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
}
"""Found by looking, so that one that a later PyTorch brings is tested as well."""

VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"lr": 0.05} for name in OPTIMIZERS},
    "SGD momentum": {"lr": 0.005, "momentum": 0.9, "nesterov": True, "kind": "SGD"},
    "Adam amsgrad": {"lr": 0.05, "amsgrad": True, "kind": "Adam"},
    "AdamW fused": {"lr": 0.05, "fused": True, "kind": "AdamW"},
    "Adam, the rate a tensor": {"lr": "tensor", "capturable": False, "foreach": False, "kind": "Adam"},
    "RMSprop centered": {"lr": 0.05, "centered": True, "momentum": 0.9, "kind": "RMSprop"},
    "Adadelta capturable": {"lr": 0.05, "capturable": False, "kind": "Adadelta"},
    "LBFGS strong Wolfe": {"lr": 0.5, "line_search_fn": "strong_wolfe", "kind": "LBFGS"},
    "SGD alone": {"lr": 0.05, "kind": "SGD"},
}


class Net(nn.Module):
    def __init__(self, name: str, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embed = nn.Embedding(6, 3, sparse=name == "SparseAdam")
        # Muon takes matrices only, SparseAdam sparse gradients only.
        self.rest = nn.ParameterList([] if name == "SparseAdam" else [nn.Parameter(torch.zeros(3, 3))])
        if name not in ("SparseAdam", "Muon"):
            self.rest.append(nn.Parameter(torch.zeros(3)))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))

    def loss(self, step: int) -> Any:
        rows = self.embed(torch.tensor([step % 6, (step + 2) % 6]))
        for part in self.rest:
            rows = rows @ part if part.ndim == 2 else rows * part
        return ((rows - 1) ** 2).sum()


def made(variant: str, seed: int) -> dict[str, Any]:
    options = dict(VARIANTS[variant])
    name = options.pop("kind", variant)
    if options["lr"] == "tensor":
        options["lr"] = torch.tensor(0.05)
    net = Net(name, seed)
    return {"net": net, "optimizer": OPTIMIZERS[name](net.parameters(), **options)}


def step(parts: dict[str, Any], at: int) -> None:
    def closure() -> Any:
        parts["optimizer"].zero_grad()
        loss = parts["net"].loss(at)
        loss.backward()
        return loss

    closure()
    parts["optimizer"].step(closure)


def weights(parts: dict[str, Any]) -> list[Any]:
    return [parameter.tolist() for parameter in parts["net"].parameters()]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("stop", [0, 1, 4])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_optimizer_goes_on_exactly(trip, variant: str, stop: int):
    source, target = made(variant, 1), made(variant, 2)
    for at in range(stop):
        step(source, at)

    trip.restored(source, target)

    for at in range(stop, stop + 3):
        step(source, at)
        step(target, at)
    assert weights(target) == weights(source)
    assert all(parameter.isfinite().all() for parameter in target["net"].parameters())
    assert trip.digest(target) == trip.digest(source)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("variant", sorted(VARIANTS.keys() - {"SGD", "SGD alone"}))
def test_an_optimizer_that_loses_its_state_goes_elsewhere(trip, variant: str):
    """The twin of the test above."""
    source, target = made(variant, 1), made(variant, 2)
    for at in range(4):
        step(source, at)
    trip.restored(source, target)

    fresh = made(variant, 2)["optimizer"]
    target["optimizer"].state.clear()
    target["optimizer"].state.update({})
    for ours, theirs in zip(_parameters(target["optimizer"]), _parameters(fresh), strict=True):
        if theirs in fresh.state:  # some kinds make theirs at once
            target["optimizer"].state[ours] = fresh.state[theirs]

    for at in range(4, 9):
        step(source, at)
        step(target, at)
    assert weights(target) != weights(source)


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def adam(net: Any, kind: str = "Adam", **options: Any) -> Any:
    return OPTIMIZERS[kind](net.parameters(), lr=0.05, **options)


def trained(seed: int = 1, make: Callable[[Any], Any] = adam) -> dict[str, Any]:
    net = Net("Adam", seed)
    parts = {"net": net, "optimizer": make(net)}
    step(parts, 0)
    return parts


def fresh(make: Callable[[Any], Any] = adam) -> dict[str, Any]:
    net = Net("Adam", 2)
    return {"net": net, "optimizer": make(net)}


def test_moments_that_are_there_keep_their_storage(trip):
    source, target = trained(1), trained(2)
    before = [entry["exp_avg"].data_ptr() for entry in target["optimizer"].state.values()]

    trip.restored(source, target)

    assert [entry["exp_avg"].data_ptr() for entry in target["optimizer"].state.values()] == before


def test_moments_lie_in_memory_as_they_did(trip):
    def conv() -> Any:
        net: Any = nn.Conv2d(2, 2, 3)
        net.to(memory_format=torch.channels_last)
        return {"net": net, "optimizer": adam(net)}

    source, target = conv(), conv()
    source["net"](torch.ones(1, 2, 4, 4)).sum().backward()
    source["optimizer"].step()

    trip.restored(source, target)

    (strides,) = {parts["optimizer"].state[parts["net"].weight]["exp_avg"].stride() for parts in (source, target)}
    assert strides == source["net"].weight.stride()


def test_parameters_of_modules_stand_with_the_module(trip):
    tree = trip.tree(trained())["optimizer"]

    assert tree["parameters"][0] == Alias(("c", "net", "embed.weight"))
    assert sorted(tree["state"][0]) == ["exp_avg", "exp_avg_sq", "step"]
    assert tree["groups"][0]["parameters"] == 3


def test_weights_stand_in_the_module_s_file_though_the_optimizer_s_name_comes_first(tmp_path: Path):
    parts = trained()

    perdure.save(tmp_path / "c", a_optimizer=parts["optimizer"], net=parts["net"])

    saved = perdure.read(tmp_path / "c")
    assert saved["net"]["embed.weight"].tolist() == parts["net"].embed.weight.tolist()
    target = fresh()
    perdure.load(tmp_path / "c", a_optimizer=target["optimizer"], net=target["net"])
    assert weights(target) == weights(parts)


# Refusals.


class Twins(nn.Module):
    """Two parameters that a shape cannot tell apart."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)


def test_reordered_parameters_of_one_shape_are_refused(trip):
    def parts(order: str) -> dict[str, Any]:
        net = Twins()
        return {"net": net, "optimizer": torch.optim.Adam([getattr(net, name).weight for name in order], lr=0.1)}

    assert trip.findings(parts("ab"), parts("ba")) == [
        ("c/optimizer/parameters/0", "the same object as c/net/a.weight", "the same object as c/net/b.weight"),
        ("c/optimizer/parameters/1", "the same object as c/net/b.weight", "the same object as c/net/a.weight"),
    ]


def test_reordered_parameters_are_refused_by_their_names_where_no_module_is_handed_in(tmp_path: Path):
    def start(order: str) -> None:
        net = Twins()
        named = [(name, getattr(net, name).weight) for name in order]
        with perdure.Run(tmp_path / "r", config={}, background=False) as run:
            run.restore(optimizer=torch.optim.Adam(named, lr=0.1))
            run.finish(env_steps=1 + run.env_steps)

    start("ab")

    with pytest.raises(perdure.ContractError, match=r"optimizer/groups/0/param_names/0: 'a' in the run, 'b' here"):
        start("ba")


def groups(*sizes: int) -> Callable[[Any], Any]:
    def make(net: Any) -> Any:
        parameters = list(net.parameters())
        cut = [parameters[sum(sizes[:at]) : sum(sizes[: at + 1])] for at in range(len(sizes))]
        return torch.optim.Adam([{"params": part} for part in cut], lr=0.05)

    return make


@pytest.mark.parametrize(
    ("make", "finding"),
    [
        (groups(1, 2), ("c/optimizer/groups", "1 groups", "2 groups")),
        (groups(2), ("c/optimizer/groups/0/parameters", "3 parameters", "2 parameters")),
        (lambda net: adam(net, "AdamW"), ("c/optimizer", "class torch:Adam", "class torch:AdamW")),
        (lambda net: adam(net, "Adamax"), ("c/optimizer/groups/0/amsgrad", "False", "missing")),
    ],
    ids=["groups", "fewer parameters", "class", "options"],
)
def test_another_optimizer_is_refused(trip, make: Any, finding: tuple[str, str, str]):
    assert finding in trip.findings(trained(), fresh(make))


def run_once(directory: Path, rate: float, *, wanted: float | None = None) -> None:
    """Begins, or resumes; the rate decays with every update."""
    net = Net("Adam", 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    with perdure.Run(directory, config={}, background=False) as run:
        run.restore(net=net, optimizer=optimizer)
        if wanted is not None:
            assert optimizer.param_groups[0]["lr"] == wanted
        step({"net": net, "optimizer": optimizer}, 0)
        optimizer.param_groups[0]["lr"] *= 0.5
        run.finish(env_steps=1 + run.env_steps)


def test_a_rate_is_state_and_the_script_s_rate_is_contract(tmp_path: Path):
    """CASES 4 and 20: the adapted rate comes back; another one in the script is found."""
    run_once(tmp_path / "r", 0.08)
    run_once(tmp_path / "r", 0.08, wanted=0.04)

    with pytest.raises(perdure.ContractError, match=r"optimizer/groups/0/lr: 0.08 in the run, 0.01 here"):
        run_once(tmp_path / "r", 0.01)


def test_an_accepted_rate_goes_into_the_state_and_leaves_the_moments(tmp_path: Path):
    def start(rate: float, accept: tuple[str, ...] = ()) -> Any:
        net = Net("Adam", 1)
        optimizer = torch.optim.Adam(net.parameters(), lr=rate)
        with perdure.Run(tmp_path / "r", config={}, background=False, accept=accept) as run:
            run.restore(net=net, optimizer=optimizer)
            restored = (optimizer.param_groups[0]["lr"], len(optimizer.state))
            step({"net": net, "optimizer": optimizer}, 0)
            run.finish(env_steps=1 + run.env_steps)
        return restored

    assert start(0.08) == (0.08, 0)

    assert start(0.01, ("optimizer/groups/0/lr=0.08:0.01",)) == (0.01, 3)


def test_a_rate_that_is_a_tensor_keeps_its_storage(trip):
    def make(net: Any) -> Any:
        return torch.optim.Adam(net.parameters(), lr=torch.tensor(0.05), foreach=False)

    source, target = trained(1, make), fresh(make)
    source["optimizer"].param_groups[0]["lr"].fill_(0.5)
    rate = target["optimizer"].param_groups[0]["lr"]

    trip.restored(source, target)

    assert target["optimizer"].param_groups[0]["lr"] is rate
    assert rate == 0.5


def test_a_leaf_that_the_optimizer_holds_alone_is_restored_through_it(trip):
    """SAC's log_alpha, whether it is handed in or not."""

    def parts() -> dict[str, Any]:
        log_alpha = torch.zeros(1, requires_grad=True)
        return {"optimizer": torch.optim.Adam([log_alpha], lr=0.1), "log_alpha": log_alpha}

    source, target = parts(), parts()
    (source["log_alpha"] * 2).sum().backward()
    source["optimizer"].step()

    trip.restored(source["optimizer"], target["optimizer"])
    assert target["log_alpha"].tolist() == source["log_alpha"].tolist() != [0.0]

    target = parts()
    back = trip.restored(source, target)
    assert back["log_alpha"] is target["log_alpha"]


# State that was lost. CASES 3.


def test_moments_lost_for_one_parameter_are_refused_at_the_save(trip):
    parts = trained()
    del parts["optimizer"].state[parts["net"].embed.weight]["exp_avg"]

    problem = "the Adam holds exp_avg for other parameters of this group, and not for this one: it was lost"
    with pytest.raises(CaptureError, match=rf"^c/optimizer/state/0: {problem}"):
        trip.tree(parts)


def test_state_emptied_after_steps_is_refused_at_the_save(trip):
    net = Net("Adam", 1)
    optimizer = adam(net)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    step({"net": net, "optimizer": optimizer}, 0)
    scheduler.step()
    optimizer.state.clear()

    with pytest.raises(CaptureError, match=r"^c: the Adam has stepped, but holds no state for any parameter"):
        trip.tree(optimizer)


def test_an_optimizer_of_tensors_that_were_replaced_is_refused_at_the_save(trip):
    parts = trained()
    parts["optimizer"].param_groups[0]["params"][0] = nn.Parameter(torch.zeros(6, 3))

    with pytest.raises(CaptureError, match=r"^c/optimizer: it holds state for a tensor that is none of its parameters"):
        trip.tree(parts)


def test_looking_at_the_state_of_a_parameter_changes_nothing(trip):
    source, looked_at = fresh(), fresh()
    assert looked_at["optimizer"].state[looked_at["net"].embed.weight] == {}

    assert trip.digest(looked_at) == trip.digest(source)


# Other people's optimizers.


class Lookahead(torch.optim.Optimizer):
    """State of its own beside the parameters', attributes, nested containers."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})
        self.calls = 0

    def step(self, closure: Any = None) -> None:
        self.calls += 1
        self.state["shared"] = {"calls": self.calls}
        for group in self.param_groups:
            for parameter in group["params"]:
                entry = self.state[parameter]
                entry.setdefault("slow", [parameter.detach().clone(), (torch.zeros(1), 0)])
                parameter.data.add_(parameter.grad, alpha=-group["lr"] / self.calls)
                entry["slow"] = [entry["slow"][0] * 0.5 + parameter.data * 0.5, (entry["slow"][1][0] + 1, self.calls)]


def test_an_optimizer_of_a_user_s_own_comes_back(trip):
    def make(net: Any) -> Any:
        return Lookahead(net.parameters(), 0.1)

    source, target = trained(1, make), fresh(make)
    trip.restored(source, target)

    for at in range(1, 4):
        step(source, at)
        step(target, at)
    assert weights(target) == weights(source)
    assert target["optimizer"].calls == 4
    assert target["optimizer"].state["shared"] == {"calls": 4}


def test_a_tensor_that_stands_twice_in_the_state_is_refused(trip):
    parts = trained()
    first, second = list(parts["optimizer"].state.values())[:2]
    second["exp_avg"] = first["exp_avg"]

    with pytest.raises(CaptureError, match=r"^c/optimizer/state/1/exp_avg: the same object as elsewhere in the run"):
        trip.tree(parts)


def test_a_failed_restore_puts_back_an_optimizer_without_state(trip):
    class Unlucky:
        def state_dict(self) -> dict[str, int]:
            return {"x": 1}

        def load_state_dict(self, state: dict[str, int]) -> None:
            raise ValueError("no")

    parts = fresh()
    before = weights(parts)

    with pytest.raises(perdure.RestoreError, match=r"failed: c/z: .*load_state_dict\(\) raised ValueError: no"):
        trip.restored({**trained(), "z": Unlucky()}, {**parts, "z": Unlucky()})

    assert weights(parts) == before
    assert len(parts["optimizer"].state) == 0


# Gradients.


def take_turns(parts: dict[str, Any], at: int, *, set_to_none: bool) -> None:
    """An update that reaches one of two heads."""
    trunk, *heads = parts["net"]
    parts["optimizer"].zero_grad(set_to_none=set_to_none)
    heads[at % 2](trunk(torch.ones(1, 2))).sum().backward()
    parts["optimizer"].step()


def with_heads() -> dict[str, Any]:
    torch.manual_seed(0)
    net = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(2, 1)])
    return {"net": net, "optimizer": torch.optim.Adam(net.parameters(), lr=0.1)}


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_parameter_that_the_next_update_does_not_reach_moves_on_as_it_would_have(trip, set_to_none: bool):
    source, target = with_heads(), with_heads()
    for at in range(3):
        take_turns(source, at, set_to_none=set_to_none)
    trip.restored(source, target)

    for at in range(3, 6):
        take_turns(source, at, set_to_none=set_to_none)
        take_turns(target, at, set_to_none=set_to_none)
    assert weights(target) == weights(source)


def test_without_the_gradients_of_zeros_it_would_not(trip):
    source, target = with_heads(), with_heads()
    for at in range(3):
        take_turns(source, at, set_to_none=False)
    trip.restored(source, target)
    target["optimizer"].zero_grad(set_to_none=True)

    take_turns(source, 3, set_to_none=False)
    take_turns(target, 3, set_to_none=False)
    assert weights(target) != weights(source)


def test_a_gradient_that_the_run_did_not_have_is_taken_away(trip):
    target = with_heads()
    take_turns(target, 0, set_to_none=True)
    trip.restored(with_heads(), target)

    assert [each.grad for each in target["net"].parameters()] == [None] * 6
