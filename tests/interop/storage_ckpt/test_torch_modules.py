"""Modules of PyTorch: the walk, every layout, all or nothing, and what has no form in the format."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.interop.storage_ckpt import (
    Section,
    StorageFileError,
    StorageMismatchError,
    StorageNameError,
    load_params,
    load_params_multi,
    read,
    save_params,
    save_params_multi,
    write,
)

pytestmark = pytest.mark.full

torch = pytest.importorskip("torch")
nn = torch.nn
DATA = Path(__file__).parents[2] / "data" / "storage_ckpt"


@st.composite
def trees(draw: st.DrawFn, depth: int = 2) -> Any:
    """A random sequence of layers, activations and sequences."""
    layers = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["linear", "bare", "norm", "plain", "relu", "deeper"]))
        size = draw(st.integers(1, 4))
        if kind == "deeper" and depth:
            layers.append(draw(trees(depth - 1)))
        else:
            made = {
                "linear": lambda size=size: nn.Linear(size, 3),
                "bare": lambda size=size: nn.Linear(2, size, bias=False),
                "norm": lambda size=size: nn.BatchNorm1d(size),
                "plain": lambda size=size: nn.BatchNorm2d(size, affine=False),
            }
            layers.append(made[kind]() if kind in made else nn.ReLU())
    return nn.Sequential(*layers)


def scrambled(module: Any, seed: int) -> Any:
    """Other numbers of every tensor, and an Adam that knows other moments."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in module.state_dict().values():
            random = torch.rand(tensor.shape, generator=generator) * 100
            tensor.copy_(random)
    parameters = list(module.parameters())
    optimizer = torch.optim.Adam(parameters or [nn.Parameter(torch.zeros(1))])
    for parameter in parameters:
        moments = [torch.rand(parameter.shape, generator=generator) for _ in range(2)]
        optimizer.state[parameter] = {
            "step": torch.tensor(float(seed)),
            "exp_avg": moments[0],
            "exp_avg_sq": moments[1],
        }
    return optimizer if parameters else None


def bits(module: Any, optimizer: Any = None) -> list[bytes]:
    found = [tensor.numpy().tobytes() for tensor in module.state_dict().values()]
    if optimizer is not None:
        for parameter in module.parameters():
            entry = optimizer.state.get(parameter, {})
            found += [entry[name].numpy().tobytes() for name in ("step", "exp_avg", "exp_avg_sq") if name in entry]
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3), st.sampled_from(["one", "plain", "prefixed", "params-then-state"]))
def test_random_modules_come_back_with_their_moments_in_every_layout(
    tmp_path_factory: pytest.TempPathFactory, modules: list[Any], layout: str
):
    path = tmp_path_factory.getbasetemp() / "torch.ckpt"
    names = [f"net{at}" for at in range(len(modules))]
    optimizers = [scrambled(module, 3 + at) for at, module in enumerate(modules)]
    before = [bits(*pair) for pair in zip(modules, optimizers, strict=True)]
    if layout == "one":
        modules, optimizers, before = modules[:1], optimizers[:1], before[:1]
        save_params(modules[0], path, optimizer=optimizers[0])
    else:
        given_modules = modules if layout == "plain" else dict(zip(names, modules, strict=True))
        given_optimizers = optimizers if layout == "plain" else dict(zip(names, optimizers, strict=True))
        order = "params-then-state" if layout == "params-then-state" else "per-module"
        save_params_multi(given_modules, path, optimizers=given_optimizers, order=order)
    fresh = [scrambled(module, 50) for module in modules]
    if layout == "one":
        load_params(modules[0], path, optimizer=fresh[0])
    else:
        load_params_multi(
            modules if layout == "plain" else dict(zip(names, modules, strict=True)),
            path,
            optimizers=fresh if layout == "plain" else dict(zip(names, fresh, strict=True)),
        )
    assert [bits(*pair) for pair in zip(modules, fresh, strict=True)] == before


def mlp() -> Any:
    return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))


def test_noeira_s_weights_stand_as_in_times_out(tmp_path: Path):
    """The file of noeira has y = x W + b with W of (in, out); PyTorch's weight is its transpose."""
    module = mlp()
    report = load_params(module, DATA / "v3_mlp2_weights.ckpt")
    first = read(DATA / "v3_mlp2_weights.ckpt").sections[0].value.reshape(4, 6)

    assert np.array_equal(module[0].weight.detach().numpy(), first.T)
    assert (report.version, report.sections, report.notes) == (3, 4, ())
    save_params(module, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (DATA / "v3_mlp2_weights.ckpt").read_bytes()


def test_a_file_of_noeira_with_adam_s_step_comes_back_byte_for_byte(tmp_path: Path):
    """Values, moments, step and the float32 products that noeira keeps of its betas."""
    module = mlp()
    optimizer = torch.optim.Adam(module.parameters())
    report = load_params(module, DATA / "v3_mlp2_moments_adamK.ckpt", optimizer=optimizer)
    save_params(module, tmp_path / "again", optimizer=optimizer)

    assert report.moments == {"module": "restored"}
    assert report.notes == ()
    assert (tmp_path / "again").read_bytes() == (DATA / "v3_mlp2_moments_adamK.ckpt").read_bytes()
    other = torch.optim.Adam(module.parameters(), betas=(0.5, 0.999))
    (note,) = load_params(module, DATA / "v3_mlp2_moments_adamK.ckpt", optimizer=other).notes
    assert "opt.b1_pow is 0.478297, which is not 0.5 to the power of 7" in note


def test_stale_moments_are_reset_and_said_to_be():
    module = mlp()
    optimizer = scrambled(module, 5)
    report = load_params(module, DATA / "v3_mlp2_weights.ckpt", optimizer=optimizer)
    assert (dict(optimizer.state), report.moments) == ({}, {"module": "reset"})
    assert "no moments of Adam; the optimizer's were reset" in report.notes[0]

    optimizer = scrambled(module, 5)
    report = load_params(module, DATA / "v3_mlp2_moments.ckpt", optimizer=optimizer)
    assert (dict(optimizer.state), report.moments) == ({}, {"module": "reset"})
    assert "Give adam_step=N" in report.notes[0]
    load_params(module, DATA / "v3_mlp2_moments.ckpt", optimizer=optimizer, adam_step=7)
    assert {float(entry["step"]) for entry in optimizer.state.values()} == {7.0}
    m = read(DATA / "v3_mlp2_moments.ckpt").sections[1].m
    assert m is not None
    assert optimizer.state[module[0].bias]["exp_avg"].numpy().tobytes() == m.tobytes()
    assert "no optimizer was given" in load_params(module, DATA / "v3_mlp2_moments.ckpt").notes[0]


def test_a_fused_walk_is_not_a_separate_one(tmp_path: Path):
    separate = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    with pytest.raises(StorageMismatchError, match=r"section 3, byte \d+ is P 1.weight, the model has P 2.weight"):
        load_params(separate, DATA / "v3_mlp2_weights.ckpt")
    load_params(separate, DATA / "v3_mlp2_weights.ckpt", fused=True)
    save_params(separate, tmp_path / "x", fused=True)

    assert (tmp_path / "x").read_bytes() == (DATA / "v3_mlp2_weights.ckpt").read_bytes()


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("bad_duplicate_p_single_model", "NameMismatch"),
        ("bad_section_order", "NameMismatch"),
        ("bad_size_mismatch", "SizeMismatch"),
        ("bad_truncated_payload", "Truncated"),
        ("v3_state_sections", "NameMismatch"),
        ("v3_header_only", "MissingSection"),
    ],
)
def test_a_load_that_is_refused_touches_nothing(file: str, kind: str):
    module = mlp()
    optimizer = scrambled(module, 5)
    before = bits(module, optimizer)
    with pytest.raises((StorageMismatchError, StorageFileError)) as caught:
        load_params(module, DATA / f"{file}.ckpt", optimizer=optimizer)

    assert str(caught.value.kind) == kind
    assert bits(module, optimizer) == before


def test_a_load_that_fails_half_way_puts_everything_back(monkeypatch: pytest.MonkeyPatch):
    from perdure.interop import changes

    module = mlp()
    optimizer = scrambled(module, 5)
    before, copy, calls = bits(module, optimizer), changes._copy, []

    def failing(target: Any, source: Any) -> None:
        calls.append(target)
        if len(calls) == 3:
            raise RuntimeError("the device is gone")
        copy(target, source)

    monkeypatch.setattr(changes, "_copy", failing)
    with pytest.raises(RuntimeError, match=r"the device is gone"):
        load_params(module, DATA / "v3_mlp2_moments_adamK.ckpt", optimizer=optimizer)

    assert bits(module, optimizer) == before
    assert len(calls) > 3


def test_unknown_layers_and_optimizers_are_refused_by_name(tmp_path: Path):
    path = tmp_path / "x"
    with pytest.raises(UsageError, match=r"(?s)1: .*Conv2d holds weight, bias.*Give `walk`"):
        save_params(nn.Sequential(nn.ReLU(), nn.Conv2d(1, 1, 1)), path)
    with pytest.raises(UsageError, match=r"the module itself: .*GRUCell holds weight_ih"):
        save_params(nn.GRUCell(1, 1), path)
    module = mlp()
    with pytest.raises(UsageError, match=r"SGD: the format has a place for Adam's moments only"):
        save_params(module, path, optimizer=torch.optim.SGD(module.parameters(), 0.1))
    with pytest.raises(UsageError, match=r"amsgrad keeps a third moment"):
        save_params(module, path, optimizer=torch.optim.Adam(module.parameters(), amsgrad=True))
    with pytest.raises(UsageError, match=r"1 parameters of the optimizer are in none of the modules"):
        save_params(module, path, optimizer=torch.optim.Adam([*module.parameters(), nn.Parameter(torch.zeros(1))]))
    with pytest.raises(UsageError, match=r"neither a torch.nn.Module nor a flax.nnx.Module"):
        save_params(object(), path)
    optimizer = scrambled(module, 5)
    optimizer.state[module[0].bias]["step"] += 1
    with pytest.raises(UsageError, match=r"another number of steps for one parameter .*0/bias 6"):
        save_params(module, path, optimizer=optimizer)
    assert list(tmp_path.iterdir()) == []


def test_a_user_s_own_walk_names_every_tensor_once(tmp_path: Path):
    module = nn.ModuleDict({"head": nn.Linear(2, 3), "table": nn.Embedding(5, 2)})
    walk = {"task_emb": "table.weight", "q.0.weight": "head.weight", "q.0.bias": "head.bias"}
    save_params(module, tmp_path / "x", walk=walk)
    first, second, _ = read(tmp_path / "x").sections

    assert (first.name, first.value.tolist()) == ("task_emb", module["table"].weight.flatten().tolist())
    assert second.value.tolist() == module["head"].weight.T.flatten().tolist()
    before = bits(module)
    scrambled(module, 9)
    load_params(module, tmp_path / "x", walk=walk)
    assert bits(module) == before
    with pytest.raises(
        UsageError, match=r"walk: left out: head.bias\. Name each tensor of the module once: head.weight"
    ):
        save_params(module, tmp_path / "x", walk=["table.weight", "head.weight"])
    with pytest.raises(UsageError, match=r"walk: no tensor of the module: nose"):
        save_params(module, tmp_path / "x", walk=["nose"])
    with pytest.raises(UsageError, match=r"walk: named twice: head.bias"):
        save_params(module, tmp_path / "x", walk=["table.weight", "head.weight", "head.bias", "head.bias"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_dtypes_are_widened_on_request_only(tmp_path: Path, dtype: str):
    module = mlp().to(getattr(torch, dtype))
    with pytest.raises(UsageError, match=f"0/weight: {dtype}, and the format holds float32. Give widen=True"):
        save_params(module, tmp_path / "x")
    save_params(module, tmp_path / "x", widen=True)
    fresh = mlp().to(getattr(torch, dtype))
    load_params(fresh, tmp_path / "x", widen=True)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), fresh.parameters(), strict=True))
    with pytest.raises(UsageError, match=f"no exact form in {dtype}"):
        load_params(fresh, DATA / "v3_mlp2_weights.ckpt", widen=True)


def test_other_dtypes_are_refused(tmp_path: Path):
    for dtype, name in ((torch.float64, "float64"), (torch.complex64, "complex64")):
        module = mlp()
        module[0].weight = nn.Parameter(torch.zeros(6, 4, dtype=dtype))
        with pytest.raises(UsageError, match=f"0/weight: {name}, and the format holds float32: values would change"):
            save_params(module, tmp_path / "x", widen=True)
        with pytest.raises(UsageError, match=f"0/weight: {name}"):
            load_params(module, DATA / "v3_mlp2_weights.ckpt", widen=True)
    assert list(tmp_path.iterdir()) == []


def test_names_that_repeat_go_by_their_place(tmp_path: Path):
    """SAC's three networks carry no prefix; two critics of one shape never change places."""
    networks = [
        nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2)),
        *(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)) for _ in "12"),
    ]
    report = load_params_multi(networks, DATA / "v3_multi_unprefixed_sac.ckpt")
    values = [each.value for each in read(DATA / "v3_multi_unprefixed_sac.ckpt").sections]

    assert [np.array_equal(networks[at][0].bias.detach(), values[at * 4 + 1]) for at in range(3)] == [True] * 3
    assert report.scalars["alpha.t"] == 400
    (note,) = report.notes
    assert "SAC keeps targets of both critics" in note
    assert "copy target networks from the online ones" in note
    save_params_multi(networks, tmp_path / "x", scalars=report.scalars)
    assert (tmp_path / "x").read_bytes() == (DATA / "v3_multi_unprefixed_sac.ckpt").read_bytes()


def test_one_optimizer_may_train_several_modules(tmp_path: Path):
    pair = {"a": mlp(), "b": mlp()}
    both = nn.ModuleDict(pair)
    optimizer = scrambled(both, 7)
    before = bits(both, optimizer)
    save_params_multi(pair, tmp_path / "x", optimizers=optimizer)
    assert [name for name in read(tmp_path / "x").scalars if name.endswith(".t")] == ["a.opt.t", "b.opt.t"]
    load_params_multi(pair, tmp_path / "x", optimizers=scrambled(both, 8))
    fresh = scrambled(both, 8)
    load_params_multi(pair, tmp_path / "x", optimizers=fresh)

    assert bits(both, fresh) == before


def test_scalars_of_the_caller_s_may_not_take_adam_s_names(tmp_path: Path):
    module = mlp()
    with pytest.raises(StorageNameError, match=r"two scalars have the name opt.t"):
        save_params(module, tmp_path / "x", optimizer=scrambled(module, 3), scalars={"opt.t": 1.0})


def test_parameters_without_moments_keep_none(tmp_path: Path):
    """A parameter that no loss has reached has no state; Adam would begin with it at step 1."""
    module = mlp()
    optimizer = scrambled(module, 5)
    del optimizer.state[module[1].bias]
    before = bits(module, optimizer)
    save_params(module, tmp_path / "x", optimizer=optimizer)
    assert [each.has_moments for each in read(tmp_path / "x").sections] == [True, True, True, False]
    fresh = scrambled(module, 6)
    report = load_params(module, tmp_path / "x", optimizer=fresh)

    assert bits(module, fresh) == before
    assert report.moments == {"module": "restored in part"}
    assert report.notes == ("module: no moments in the file for 1.bias; those were reset.",)
    save_params(module, tmp_path / "y", optimizer=fresh, save_moments=False)
    assert not any(each.has_moments for each in read(tmp_path / "y").sections)


def test_a_tied_weight_must_be_the_same_at_both_places(tmp_path: Path):
    tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    tied[1].weight = tied[0].weight
    save_params(tied, tmp_path / "x")
    load_params(tied, tmp_path / "x")
    ones = np.ones(4, np.float32)
    write(tmp_path / "x", [Section("P", "0.weight", ones), Section("P", "1.weight", ones * 2)])
    with pytest.raises(UsageError, match=r"0.weight and 1.weight are one tensor in the model, and two different ones"):
        load_params(tied, tmp_path / "x")


def test_counts_of_layers_have_names_of_their_own(tmp_path: Path):
    """`1.num_batches_tracked` of module 0 and `0.1.num_batches_tracked` of a module without prefix must not meet."""
    deep = nn.Sequential(nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)), nn.BatchNorm1d(1))
    deep[0][1].num_batches_tracked.fill_(3)
    deep[1].num_batches_tracked.fill_(5)
    save_params_multi([deep, nn.Linear(1, 1)], tmp_path / "x")
    assert dict(read(tmp_path / "x").scalars) == {"0.0.1.num_batches_tracked": 3, "0.1.num_batches_tracked": 5}
    before = bits(deep)
    scrambled(deep, 4)
    load_params_multi([deep, nn.Linear(1, 1)], tmp_path / "x")
    assert bits(deep) == before
    write(tmp_path / "y", read(tmp_path / "x").sections)
    (note,) = load_params_multi([deep, nn.Linear(1, 1)], tmp_path / "y").notes
    assert note.startswith("0/1/num_batches_tracked, 1/num_batches_tracked: not in the file, left as before")


def test_parameters_that_the_optimizer_does_not_train_are_not_called_reset(tmp_path: Path):
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    adam = torch.optim.Adam(net[1].parameters())
    net(torch.ones(1, 2)).sum().backward()
    adam.step()
    save_params(net, tmp_path / "x.ckpt", optimizer=adam)
    alone = load_params(net, tmp_path / "x.ckpt", optimizer=torch.optim.Adam(net[1].parameters()))
    all_of_it = load_params(net, tmp_path / "x.ckpt", optimizer=torch.optim.Adam(net.parameters()))

    assert (alone.moments, alone.notes) == ({"module": "restored"}, ())
    assert all_of_it.moments == {"module": "restored in part"}
    assert all_of_it.notes == ("module: no moments in the file for 0.weight, 0.bias; those were reset.",)
