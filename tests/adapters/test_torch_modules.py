"""PyTorch modules are restored in place: all that `state_dict` holds, under its names, and all that it leaves out."""

import copy
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

import perdure  # noqa: E402
from perdure.errors import CaptureError, ContractError, UnknownObjectError, UnsupportedLeafError  # noqa: E402
from perdure.tree.leaves import Alias  # noqa: E402


class Agent(nn.Module):
    """A bit of everything."""

    gain = 0.5

    def __init__(self, seed: int = 0, *, width: int = 4) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.trunk = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.25))
        self.heads = nn.ModuleDict({"policy": nn.Linear(width, 2), "value": nn.Linear(width, 1, bias=False)})
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(()))])
        self.table = nn.ParameterDict({"a": nn.Parameter(torch.ones(1))})
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("noise", torch.zeros(2), persistent=False)
        self.step = 0
        self.best = None
        self.history: list[float] = []
        self.mean = np.zeros(3)
        self.carry = torch.zeros(2)
        self.activation = torch.tanh
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))

    def forward(self, x: Any) -> Any:
        self.step += 1
        self.seen += x.mean(0)
        self.noise += 1
        self.mean += 1.0
        self.carry = self.carry * 0.5 + 1
        self.history.append(float(self.step))
        self.best = float(self.step)
        return self.heads["policy"](self.trunk(x)) * self.scales[0] * self.gain


X = torch.arange(12.0).reshape(4, 3)


def used(seed: int) -> Any:
    agent = Agent(seed)
    agent(X)
    agent(X)
    return agent


def addresses(module: Any) -> dict[str, int]:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.data_ptr() for name, tensor in tensors if not tensor.is_sparse}


def output(module: Any) -> bytes:
    torch.manual_seed(7)
    return module(X).detach().numpy().tobytes()


def test_a_module_is_restored_in_its_own_storage_and_goes_on_exactly(trip):
    source, target = used(1), Agent(2)
    before = addresses(target)

    assert trip.restored(source, target) is target

    assert addresses(target) == before
    assert output(target) == output(source)
    assert trip.digest(target) == trip.digest(source)


def test_arrays_bear_the_names_of_state_dict_and_what_it_leaves_out_stands_beside(trip):
    tree = trip.tree(used(1))

    assert {name for name in tree if hasattr(tree[name], "value")} == set(used(1).state_dict())
    assert tree["."]["step"] == 2
    assert tree["."]["noise"].value.tolist() == [2, 2]
    assert tree["trunk.3"] == {"inplace": False, "p": 0.25, "training": True}


LOSSES: dict[str, Any] = {
    "a weight": lambda m: m.trunk[0].weight.data.add_(1),
    "a batch statistic": lambda m: m.trunk[1].running_mean.add_(1),
    "a count of batches": lambda m: m.trunk[1].num_batches_tracked.add_(1),
    "a buffer": lambda m: m.seen.add_(1),
    "a buffer that is not persistent": lambda m: m.noise.add_(1),
    "a parameter in a list": lambda m: m.scales[1].data.add_(1),
    "a parameter in a dict": lambda m: m.table["a"].data.add_(1),
    "a counter": lambda m: setattr(m, "step", 0),
    "a value that began as None": lambda m: setattr(m, "best", None),
    "a list that grew": lambda m: m.history.clear(),
    "a NumPy array": lambda m: m.mean.fill(0),
    "a tensor that is no buffer": lambda m: m.carry.zero_(),
    "a rate": lambda m: setattr(m.trunk[3], "p", 0.5),
    "the mode": lambda m: m.trunk.eval(),
    "a frozen parameter": lambda m: m.trunk[0].weight.requires_grad_(False),
    "a negative zero": lambda m: m.noise.fill_(-0.0),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_the_digest_sees_every_part(trip, loss: str):
    """The twin of the round trip: each of these, lost or reset, would be found."""
    agent = used(1)
    agent.noise.zero_()
    before = trip.digest(agent)

    LOSSES[loss](agent)

    assert trip.digest(agent) != before


def test_a_frozen_parameter_stays_frozen_and_a_freed_one_free(trip):
    source, target = Agent(1), Agent(2)
    source.trunk[0].weight.requires_grad_(False)
    target.heads["policy"].bias.requires_grad_(False)

    trip.restored(source, target)

    frozen = [name for name, parameter in target.named_parameters() if not parameter.requires_grad]
    assert frozen == ["trunk.0.weight"]


# Weight files.


def weights(module: nn.Module, directory: Path) -> Path:
    perdure.save(directory / "c", net=module)
    return directory / "c" / "net.safetensors"


def channels_last(module: Any) -> Any:
    return module.to(memory_format=torch.channels_last)


PLAIN: dict[str, Any] = {
    "mlp": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
    "one layer": lambda: nn.Linear(2, 2),
    "batch norm": lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)),
    "lstm": lambda: nn.LSTM(2, 3, num_layers=2, bidirectional=True),
    "parameter list": lambda: nn.ParameterList([torch.randn(2), torch.randn(3)]),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8),
    "bfloat16": lambda: nn.Linear(2, 2, dtype=torch.bfloat16),
    "channels last": lambda: channels_last(nn.Conv2d(3, 3, 3)),
    "transposed square": lambda: _with_transposed(),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    "expanded buffer": lambda: _with_buffer(torch.rand(3).expand(4, 3)),
    "sparse buffer": lambda: _with_buffer(torch.eye(2).mul(torch.rand(1)).to_sparse()),
    "pruned": lambda: prune.random_unstructured(nn.Linear(3, 3), "weight", 0.5),
    "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)),
}


def _with_transposed() -> nn.Module:
    module = nn.Linear(3, 3)
    module.weight = nn.Parameter(torch.randn(3, 3).t())
    module.register_buffer("mask", torch.arange(9.0).reshape(3, 3).t())
    return module


def _with_buffer(buffer: Any) -> nn.Module:
    module = nn.Linear(2, 2)
    module.register_buffer("extra", buffer)
    return module


NOT_PLAIN = {"sparse buffer", "expanded buffer", "pruned"}
"""Their `state_dict` leaves out a tensor, or holds one that no tensor file holds or `load_state_dict` cannot write."""


@pytest.mark.parametrize("kind", [kind for kind in PLAIN if kind not in NOT_PLAIN])
def test_stock_safetensors_and_load_state_dict_read_the_weights(tmp_path: Path, kind: str):
    source, target = PLAIN[kind](), PLAIN[kind]()

    target.load_state_dict(safetensors.load_file(weights(source, tmp_path)), strict=True)

    for (name, ours), theirs in zip(target.state_dict().items(), source.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("kind", PLAIN)
def test_common_modules_come_back(trip, kind: str):
    source, target = PLAIN[kind](), PLAIN[kind]()
    before = addresses(target)

    trip.restored(source, target)

    assert kind == "sparse buffer" or addresses(target) == before
    for (name, ours), theirs in zip(target.state_dict().items(), source.state_dict().values(), strict=True):
        assert torch.equal(ours.to_dense(), theirs.to_dense()), name
    trip.restored(source, target)


class Tied(nn.Module):
    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.out = nn.Linear(3, 5, bias=False)
        if tied:
            self.out.weight = self.embed.weight


def test_tied_weights_are_stored_once_and_stay_tied(trip, tmp_path: Path):
    source, target = Tied(), Tied()

    assert trip.tree(source)["out.weight"] == Alias(("c", "embed.weight"))
    trip.restored(source, target)
    assert target.out.weight is target.embed.weight
    assert torch.equal(target.embed.weight, source.embed.weight)

    other = Tied()
    safetensors.load_model(other, weights(source, tmp_path), strict=True)
    assert torch.equal(other.out.weight, source.out.weight)


def test_weights_that_are_no_longer_tied_are_refused(trip):
    assert trip.findings(Tied(), Tied(tied=False)) == [
        ("c/out.weight", "the same object as c/embed.weight", "an object of its own")
    ]


def test_a_submodule_at_two_places_is_restored_once(trip):
    def shared() -> Any:
        layer = nn.Linear(2, 2)
        return nn.Sequential(layer, nn.Tanh(), layer)

    source, target = shared(), shared()

    trip.restored(source, target)

    assert torch.equal(target[2].weight, source[0].weight)
    assert target[0] is target[2]


# Wrappers.


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda m: torch.compile(m, backend="eager"), id="compile"),
        pytest.param(nn.DataParallel, id="DataParallel"),
    ],
)
def test_wrappers_leave_no_trace_in_names(trip, wrap: Any):
    source, target = PLAIN["mlp"](), PLAIN["mlp"]()

    assert trip.tree(wrap(source)).keys() == trip.tree(source).keys()
    trip.restored(wrap(source), target)
    assert torch.equal(target[0].weight, source[0].weight)
    trip.restored(source, wrap(target))


def test_a_data_parallel_module_of_one_process_leaves_no_trace_in_names(trip):
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        source, target = nn.parallel.DistributedDataParallel(PLAIN["mlp"]()), PLAIN["mlp"]()

        trip.restored(source, target)

        assert torch.equal(target[0].weight, source.module[0].weight)
    finally:
        torch.distributed.destroy_process_group()


def test_a_compiled_part_leaves_no_trace_in_names(trip):
    source, target = PLAIN["mlp"](), PLAIN["mlp"]()
    source[0] = torch.compile(source[0], backend="eager")

    assert "0.weight" in trip.tree(source)
    trip.restored(source, target)
    assert torch.equal(target[0].weight, source[0]._orig_mod.weight)


def test_a_module_compiled_in_place_comes_back(trip):
    source, target = PLAIN["mlp"](), PLAIN["mlp"]()
    target.compile(backend="eager")

    trip.restored(source, target)

    assert torch.equal(target[0].weight, source[0].weight)


# Extra state and own methods.


class WithExtra(nn.Linear):
    def __init__(self, seen: int = 0) -> None:
        super().__init__(2, 2)
        self._table = {(0, 1): seen}  # which no adapter would take

    def get_extra_state(self) -> Any:
        return {"seen": self._table[0, 1], "tensor": torch.full((2,), float(self._table[0, 1]))}

    def set_extra_state(self, state: Any) -> None:
        assert state["tensor"].tolist() == [state["seen"]] * 2
        self._table[0, 1] = state["seen"]


def test_extra_state_is_captured_and_handed_back(trip):
    source, target = nn.Sequential(WithExtra(5)), nn.Sequential(WithExtra(0))

    assert trip.tree(source)["0._extra_state"]["seen"] == 5
    trip.restored(source, target)
    assert target[0]._table == {(0, 1): 5}


class OwnStateDict(nn.Linear):
    """What SB3 and others do: their own idea of what belongs in a state dict."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.frozen = torch.zeros(2)
        self.updates = 0

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {"renamed": super().state_dict(*args, **kwargs)["weight"]}

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("not needed")


def test_a_module_with_a_state_dict_of_its_own_loses_nothing(trip):
    source, target = OwnStateDict(), OwnStateDict()
    source.frozen += 3
    source.updates = 9

    trip.restored(source, target)

    assert torch.equal(target.bias, source.bias)
    assert (target.frozen.tolist(), target.updates) == ([3, 3], 9)


# Refusals.


def test_a_lazy_module_is_refused_until_it_knows_its_sizes(trip):
    lazy = nn.Sequential(nn.LazyLinear(2))

    with pytest.raises(CaptureError, match=r"^c/0\.weight: the lazy tensor is not initialised yet.*one forward pass"):
        trip.tree(lazy)

    lazy(torch.ones(1, 3))
    assert trip.tree(lazy)["0.weight"].value.shape == (2, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_torchscript_module_is_refused(trip):
    with pytest.raises(CaptureError, match=r"^c/a: a TorchScript module .* Hand in the module it was made of"):
        trip.tree(nn.ModuleDict({"a": torch.jit.script(nn.Linear(1, 1))}))


def test_an_unknown_attribute_is_refused_with_its_path(trip):
    class Tokenizer:
        pass

    agent: Any = Agent()
    agent.heads["policy"].tokenizer = Tokenizer()

    with pytest.raises(UnknownObjectError, match=r"^c/heads\.policy/tokenizer: no adapter knows a .*Tokenizer"):
        trip.tree(agent)


class Renamed(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        setattr(self, name, nn.Linear(2, 2))


CHANGES = {
    "missing parameter": (
        lambda: nn.Linear(2, 2),
        lambda: nn.Linear(2, 2, bias=False),
        ("c/bias", "float32 2", "missing"),
    ),
    "extra parameter": (
        lambda: nn.Linear(2, 2, bias=False),
        lambda: nn.Linear(2, 2),
        ("c/bias", "missing", "Parameter"),
    ),
    "renamed": (lambda: Renamed("a"), lambda: Renamed("b"), ("c/a.weight", "float32 2×2", "missing")),
    "shape": (lambda: nn.Linear(2, 3), lambda: nn.Linear(2, 4), ("c/weight", "float32 3×2", "float32 4×2")),
    "dtype": (
        lambda: nn.Linear(2, 2),
        lambda: nn.Linear(2, 2, dtype=torch.float64),
        ("c/weight", "float32 2×2", "float64 2×2"),
    ),
    "layer": (
        lambda: nn.Sequential(nn.Tanh()),
        lambda: nn.Sequential(nn.Sigmoid()),
        ("c/0", "class torch:Tanh", "class torch:Sigmoid"),
    ),
    "memory order": (
        lambda: channels_last(nn.Conv2d(2, 2, 3)),
        lambda: nn.Conv2d(2, 2, 3),
        ("c/weight", "memory order (0, 2, 3, 1)", "no function"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_structure_is_a_finding_that_names_the_parameter(trip, change: str):
    saved, target, finding = CHANGES[change]

    assert finding in trip.findings(saved(), target())


def test_a_changed_activation_or_class_attribute_is_refused(trip):
    other = Agent()
    other.activation = torch.relu

    found = trip.findings(Agent(), other)

    assert [key for key, *_ in found] == ["c/./activation"]


def test_plain_attributes_that_were_chosen_are_compared_with_a_fresh_start(tmp_path: Path):
    def start(rate: float) -> None:
        with perdure.Run(tmp_path / "r", config={}, background=False) as run:
            run.restore(net=nn.Sequential(nn.Linear(2, 2), nn.Dropout(rate)))
            if not run.resumed:
                run.boundary(env_steps=1)
            run.finish(env_steps=2)

    start(0.1)

    with pytest.raises(perdure.ContractError, match=r"net/1/p: 0.1 in the run, 0.2 here"):
        start(0.2)


# Attributes of many kinds.


def test_attributes_of_many_kinds_come_back(trip):
    def module(x: float) -> Any:
        made: Any = nn.Module()
        made.device, made.dtype, made.size = torch.device("cpu"), torch.float16, torch.Size((int(x),))
        made.prior = torch.distributions.Normal(torch.full((2,), x), torch.ones(2))
        made.generator = torch.Generator().manual_seed(int(x))
        made.function = partial(torch.clamp, min=x)
        made.hidden = (torch.full((1,), x), torch.zeros(1))
        made.unregistered = [nn.Linear(1, 1)]
        return made

    source, target = module(2.0), module(2.0)
    source.prior.loc += 1
    source.hidden = (torch.full((1,), 5.0), torch.ones(1))
    torch.rand(3, generator=source.generator)

    trip.restored(source, target)

    assert target.prior.loc.tolist() == [3, 3]
    assert [part.tolist() for part in target.hidden] == [[5.0], [1.0]]
    assert torch.equal(target.unregistered[0].weight, source.unregistered[0].weight)
    assert torch.rand(1, generator=target.generator) == torch.rand(1, generator=source.generator)


def test_a_sparse_parameter_is_refused(trip):
    module = nn.Module()
    module.register_parameter("p", nn.Parameter(torch.eye(2).to_sparse()))

    with pytest.raises(UnsupportedLeafError, match=r"^c/p: a sparse parameter cannot be restored in its own storage"):
        trip.tree(module)


def test_an_optimizer_that_a_module_holds_knows_its_parameters(trip):
    """As in the policies of Stable-Baselines3."""

    def policy() -> Any:
        made: Any = nn.Sequential(nn.Linear(2, 2))
        made.optimizer = torch.optim.Adam(made.parameters())
        return made

    source, target = policy(), policy()
    source(torch.ones(1, 2)).sum().backward()
    source.optimizer.step()

    assert trip.tree(source)["."]["optimizer"]["parameters"][0] == Alias(("c", "0.weight"))
    trip.restored(source, target)
    assert target.optimizer.state[target[0].bias]["step"] == 1


def test_an_averaged_model_comes_back_with_its_count(trip):
    def averaged(decay: float = 0.5) -> Any:
        ema = torch.optim.swa_utils.get_ema_multi_avg_fn(decay)
        return torch.optim.swa_utils.AveragedModel(nn.Linear(2, 2), multi_avg_fn=ema, use_buffers=True)

    source, target = averaged(), averaged()
    source.update_parameters(nn.Linear(2, 2))
    source.update_parameters(nn.Linear(2, 2))

    trip.restored(source, target)

    assert target.n_averaged.item() == 2
    assert torch.equal(target.module.weight, source.module.weight)
    assert [key for key, *_ in trip.findings(source, averaged(0.9))] == ["c/./multi_avg_fn/func/decay"]


def test_options_that_a_module_keeps_come_back_and_are_compared(trip):
    """`self.args = args`, as scripts do: what was chosen is compared, what the script changes there is state."""

    def keeping(**options: Any) -> Any:
        net: Any = nn.Linear(1, 1)
        net.args = Namespace(**options)
        return net

    source, target = keeping(learning_rate=0.1, moments=np.ones(2)), keeping(learning_rate=0.1, moments=np.zeros(2))
    trip.restored(source, target)
    assert vars(target.args)["moments"].tolist() == [1, 1]
    assert trip.component(source).tree["."]["args"].keys() == {"learning_rate", "moments"}

    missing = trip.findings(source, keeping(learning_rate=0.1))
    assert missing == [("c/./args/moments", "float64 2", "missing")]


def test_another_option_in_a_module_refuses_the_resume(tmp_path: Path):
    def start(learning_rate: float) -> None:
        net: Any = nn.Linear(1, 1)
        net.args = Namespace(learning_rate=learning_rate)
        with perdure.Run(tmp_path / "run", background=False) as run:
            run.restore(net=net)
            run.finish(env_steps=run.env_steps + 1)

    start(0.1)
    start(0.1)
    with pytest.raises(ContractError, match=r"net/\./args/learning_rate: 0\.1 in the run, 0\.2 here"):
        start(0.2)


def test_a_copied_target_network_is_its_own(trip):
    online: Any = Agent(1)
    source = {"online": online, "target": copy.deepcopy(online)}
    with torch.no_grad():
        online.trunk[0].weight.add_(1)
    fresh = Agent(2)
    target = {"online": fresh, "target": copy.deepcopy(fresh)}

    trip.restored(source, target)

    assert torch.equal(target["target"].trunk[0].weight, source["target"].trunk[0].weight)
    assert not torch.equal(target["target"].trunk[0].weight, target["online"].trunk[0].weight)
