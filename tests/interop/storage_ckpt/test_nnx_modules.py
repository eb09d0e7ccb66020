"""Modules of Flax NNX: the walk, every layout, and the same numbers as in PyTorch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.interop.storage_ckpt import (
    StorageMismatchError,
    load_params,
    load_params_multi,
    read,
    save_params,
    save_params_multi,
)

jax = pytest.importorskip("jax")
nnx = pytest.importorskip("flax.nnx")
optax = pytest.importorskip("optax")
pytestmark = [pytest.mark.jax, pytest.mark.full]

DATA = Path(__file__).parents[2] / "data" / "storage_ckpt"
RNGS = nnx.Rngs(0)


@st.composite
def trees(draw: st.DrawFn, depth: int = 2) -> Any:
    """A random sequence of layers, activations and sequences."""
    layers = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["linear", "bare", "norm", "dropout", "relu", "deeper"]))
        size = draw(st.integers(1, 4))
        if kind == "deeper" and depth:
            layers.append(draw(trees(depth - 1)))
        else:
            made = {
                "linear": lambda size=size: nnx.Linear(size, 3, rngs=RNGS),
                "bare": lambda size=size: nnx.Linear(2, size, use_bias=False, rngs=RNGS),
                "norm": lambda size=size: nnx.BatchNorm(size, rngs=RNGS),
                "dropout": lambda size=size: nnx.Dropout(0.5, rngs=RNGS),
            }
            layers.append(made[kind]() if kind in made else nnx.relu)
    return nnx.Sequential(*layers)


def variables(node: Any) -> list[Any]:
    found = [each for _, each in nnx.iter_graph(node) if isinstance(each, nnx.Variable)]
    return [each for each in found if not isinstance(each, nnx.RngState) and each.get_value() is not None]


def scrambled(module: Any, seed: int) -> Any:
    """Other numbers of every variable, and an Adam that has made `seed` steps."""
    generator = np.random.default_rng(seed)
    optimizer = nnx.Optimizer(module, optax.adam(1e-3), wrt=nnx.Param)
    for variable in variables((module, optimizer)):
        value = variable.get_value()
        is_count = np.issubdtype(value.dtype, np.integer)
        new = np.full(value.shape, seed) if is_count else generator.normal(size=value.shape)
        variable.set_value(jax.numpy.asarray(new, value.dtype))
    return optimizer if any(isinstance(each, nnx.Param) for each in variables(module)) else None


def bits(*nodes: Any) -> list[bytes]:
    return [np.asarray(each.get_value()).tobytes() for node in nodes if node is not None for each in variables(node)]


@settings(max_examples=15, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3), st.sampled_from(["one", "plain", "prefixed", "params-then-state"]))
def test_random_modules_come_back_with_their_moments_in_every_layout(
    tmp_path_factory: pytest.TempPathFactory, modules: list[Any], layout: str
):
    path = tmp_path_factory.getbasetemp() / "nnx.ckpt"
    modules = modules[:1] if layout == "one" else modules
    optimizers = [scrambled(module, 3 + at) for at, module in enumerate(modules)]
    before = bits(*modules, *optimizers)
    names = [f"net{at}" for at in range(len(modules))]

    def named(each: list[Any]) -> Any:
        return each if layout == "plain" else dict(zip(names, each, strict=True))

    order = "params-then-state" if layout == "params-then-state" else "per-module"
    if layout == "one":
        save_params(modules[0], path, optimizer=optimizers[0], prefix="net")
    else:
        save_params_multi(named(modules), path, optimizers=named(optimizers), order=order)
    fresh = [scrambled(module, 50) for module in modules]
    if layout == "one":
        load_params(modules[0], path, optimizer=fresh[0], prefix="net")
    else:
        load_params_multi(named(modules), path, optimizers=named(fresh))
    assert bits(*modules, *fresh) == before


def mlp(*between: Any) -> Any:
    return nnx.Sequential(nnx.Linear(4, 6, rngs=RNGS), *between, nnx.Linear(6, 3, rngs=RNGS))


def test_a_file_of_noeira_with_adam_s_step_comes_back_byte_for_byte(tmp_path: Path):
    """Kernels stand as they are; b1 and b2 are read from what optax's functions bind."""
    module = mlp(nnx.relu)
    chain = optax.chain(optax.clip(1.0), optax.adamw(optax.linear_schedule(1.0, 0.0, 9)))
    optimizer = nnx.Optimizer(module, chain, wrt=nnx.Param)
    report = load_params(module, DATA / "v3_mlp2_moments_adamK.ckpt", optimizer=optimizer, fused=True)
    save_params(module, tmp_path / "again", optimizer=optimizer, fused=True)

    assert (report.moments, report.notes) == ({"module": "restored"}, ())
    assert np.array_equal(module.layers[0].kernel.get_value().ravel(), read(tmp_path / "again").sections[0].value)
    assert (tmp_path / "again").read_bytes() == (DATA / "v3_mlp2_moments_adamK.ckpt").read_bytes()


def test_both_frameworks_write_the_same_bytes_and_compute_the_same(tmp_path: Path):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    theirs(torch.rand(8, 4))
    save_params(theirs, tmp_path / "torch")
    ours = mlp(nnx.BatchNorm(6, rngs=RNGS), nnx.relu)
    report = load_params(ours, tmp_path / "torch")
    save_params(ours, tmp_path / "nnx", scalars=report.scalars)
    assert (tmp_path / "nnx").read_bytes() == (tmp_path / "torch").read_bytes()

    data = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    ours.eval()
    theirs.eval()
    np.testing.assert_allclose(ours(data), theirs(torch.from_numpy(data)).detach(), rtol=1e-5, atol=1e-6)


def test_stale_moments_are_reset_and_said_to_be():
    module = mlp()
    optimizer = scrambled(module, 5)
    report = load_params(module, DATA / "v3_mlp2_weights.ckpt", optimizer=optimizer)

    assert report.moments == {"module": "reset"}
    assert not any(np.asarray(each.get_value()).any() for each in variables(optimizer))


def test_a_load_that_is_refused_touches_nothing():
    module = mlp(nnx.relu)
    optimizer = scrambled(module, 5)
    before = bits(module, optimizer)
    with pytest.raises(StorageMismatchError, match=r"the model has P 2.weight there"):
        load_params(module, DATA / "v3_mlp2_moments_adamK.ckpt", optimizer=optimizer)
    assert bits(module, optimizer) == before


class Unsorted(nnx.Module):
    def __init__(self) -> None:
        self.torso = nnx.Linear(2, 2, rngs=RNGS)
        self.head = nnx.Linear(2, 2, rngs=RNGS)


class Sorted(nnx.Module):
    def __init__(self) -> None:
        self.head = nnx.List([nnx.Linear(2, 2, rngs=RNGS), nnx.Dropout(0.1, rngs=RNGS)])
        self.torso = nnx.Linear(2, 2, rngs=RNGS)
        self.rngs = nnx.Rngs(1)


def test_children_of_a_user_s_module_count_where_nnx_keeps_their_order(tmp_path: Path):
    save_params(Sorted(), tmp_path / "x")
    assert [each.name for each in read(tmp_path / "x").sections] == ["0.0.weight", "0.0.bias", "1.weight", "1.bias"]
    with pytest.raises(UsageError, match=r"children are torso, head now, and head, torso after nnx.merge.*Give `walk`"):
        save_params(Unsorted(), tmp_path / "y")
    walk = ["torso.kernel", "torso.bias", "head.kernel", "head.bias"]
    module = Unsorted()
    save_params(module, tmp_path / "y", walk=walk)
    merged = nnx.merge(*nnx.split(module))
    load_params(merged, tmp_path / "y", walk=walk)
    assert [each.name for each in read(tmp_path / "y").sections] == walk


def test_what_has_no_form_is_refused_by_name(tmp_path: Path):
    module = mlp()
    with pytest.raises(UsageError, match=r"LayerNorm holds scale, bias"):
        save_params(mlp(nnx.LayerNorm(6, rngs=RNGS)), tmp_path / "x")
    with pytest.raises(UsageError, match=r"TraceState keeps state, for which the format has no place"):
        save_params(module, tmp_path / "x", optimizer=nnx.Optimizer(module, optax.sgd(0.1, 0.9), wrt=nnx.Param))
    with pytest.raises(UsageError, match=r"0 states of Adam in the optimizer"):
        save_params(module, tmp_path / "x", optimizer=nnx.Optimizer(module, optax.sgd(0.1), wrt=nnx.Param))
    other = nnx.Optimizer(nnx.Linear(2, 2, rngs=RNGS), optax.adam(0.1), wrt=nnx.Param)
    with pytest.raises(UsageError, match=r"keeps moments of bias, kernel, which the module's walk does not have"):
        save_params(module, tmp_path / "x", optimizer=other)
    shared = scrambled(module, 3)
    with pytest.raises(UsageError, match=r"one optimizer for 0, 1: an nnx.Optimizer is made for one module"):
        save_params_multi([module, mlp()], tmp_path / "x", optimizers=shared)
    shared.step.set_value(jax.numpy.uint32(9))
    with pytest.raises(UsageError, match=r"Adam has made 3 updates, other counts of the optimizer are at \[9\]"):
        save_params(module, tmp_path / "x", optimizer=shared)
    assert list(tmp_path.iterdir()) == []


def test_parameters_that_the_optimizer_does_not_train_are_not_called_reset(tmp_path: Path):
    module = nnx.Sequential(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.Linear(2, 1, rngs=nnx.Rngs(1)))
    last = nnx.All(nnx.Param, nnx.PathContains(1))
    optimizer = nnx.Optimizer(module, optax.adam(1e-3), wrt=last)
    gradients = nnx.grad(lambda each: each(jax.numpy.ones((1, 2))).sum(), argnums=nnx.DiffState(0, last))(module)
    optimizer.update(module, gradients)
    save_params(module, tmp_path / "x.ckpt", optimizer=optimizer)
    report = load_params(module, tmp_path / "x.ckpt", optimizer=optimizer)

    assert [each.has_moments for each in read(tmp_path / "x.ckpt").sections] == [False, False, True, True]
    assert (report.moments, report.notes) == ({"module": "restored"}, ())
