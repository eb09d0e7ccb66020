"""Weights of any readable kind go into live modules by name, bit for bit; whatever does not fit changes nothing."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import perdure
from perdure.errors import DamagedError, NoCheckpointError, UsageError
from perdure.interop import convert, load_into

FIXTURE = Path(__file__).parent.parent / "data" / "nnx_ppo" / "mlp" / "step_0000000480"


def raw(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Random bits: NaNs with payloads, infinities, denormals."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.random.default_rng(size + seed).integers(0, 256, size, np.uint8).view(dtype).reshape(shape)


def same(first: Any, second: Any) -> bool:
    a, b = np.asarray(first), np.asarray(second)
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def file_of(tmp_path: Path, **arrays: np.ndarray) -> Path:
    file = tmp_path / "w"
    safetensors.numpy.save_file(dict(arrays), file)
    return file


# Nested dicts: no framework is needed.


def target() -> dict[str, Any]:
    return {
        "w": np.zeros((2, 3), np.float32),
        "layers": [{"b": np.zeros(2, ml_dtypes.bfloat16)}],
        "n": np.zeros((), np.int64),
    }


def weights() -> dict[str, np.ndarray]:
    return {"w": raw(2, 3), "layers.0.b": raw(2, dtype=ml_dtypes.bfloat16), "n": np.array(7)}


def test_a_dict_takes_them_in_place(tmp_path: Path):
    into, given = target(), weights()
    held = into["w"]
    done = load_into(file_of(tmp_path, **given), into)

    assert into["w"] is held
    assert same(held, given["w"])
    assert same(into["layers"][0]["b"], given["layers.0.b"])
    assert same(into["n"], given["n"])
    assert [leaf.name for leaf in done.leaves] == ["w", "layers.0.b", "n"]
    assert (done.source, done.target, done.losses) == ("a safetensors file", "the dict", ())


def test_a_twin_that_loses_one_bit_is_found(tmp_path: Path):
    into, given = target(), weights()
    load_into(file_of(tmp_path, **given), into)
    into["w"].view(np.uint32)[1, 1] ^= 1

    assert not same(into["w"], given["w"])


def test_everything_that_does_not_fit_is_named_and_nothing_changes(tmp_path: Path):
    into = target() | {"plain": 3, "closed": (1,), "odd": object()}
    given = {
        "w": raw(3, 2),
        "layers.0.b": raw(2, dtype=np.float16),
        "more": raw(1),
        "plain": raw(1),
        "closed.0": raw(1),
    }
    given["odd"] = raw(1)
    file = file_of(tmp_path, **given)
    with pytest.raises(UsageError) as caught:
        load_into(file, into)

    head, *lines = str(caught.value).split("\n  ")
    assert head == (
        f"{file} does not fit the dict: 7 of the leaves; nothing was changed. Give names=['PATTERN=NEW'] for other "
        "names, an empty NEW (with a PATTERN that fits the whole name) or strict=False for leaves that the module does "
        "not have, component=... for one component, or build the module as the file's was."
    )
    assert lines == [
        "w: float32 3×2 in the file, float32 2×3 in the module.",
        "layers.0.b: float16 2 in the file, bfloat16 2 in the module.",
        "n: int64 scalar in the module, nothing in the file.",
        "plain: float32 1 in the file, a plain int in the module.",
        "closed.0: stands in a tuple, in which nothing can be replaced; use a list or a dict.",
        "odd: holds a object in the module; only arrays and plain values are loaded.",
        "more: float32 1 in the file, nothing of this name in the module.",
    ]
    assert same(into["w"], np.zeros((2, 3), np.float32))


def test_names_are_mapped_and_more_leaves_are_allowed_on_request(tmp_path: Path):
    given = {"net.w": raw(2, 3), "net.b": raw(2, dtype=ml_dtypes.bfloat16), "n": np.array(7), "more": raw(1)}
    file = file_of(tmp_path, **given)
    rules = [r"^net\.b$=layers.0.b", r"^net\.(w)$=\1"]
    with pytest.raises(UsageError, match="more: float32 1 in the file, nothing of this name in the module"):
        load_into(file, target(), names=rules)
    into = target()
    done = load_into(file, into, names=rules, strict=False)

    assert same(into["layers"][0]["b"], given["net.b"])
    assert dict(zip((leaf.name for leaf in done.leaves), done.origins, strict=True)) == {
        "w": "net.w", "layers.0.b": "net.b", "n": "n",
    }  # fmt: skip
    assert done.losses == ("more: has no place in the module; it is left out.",)


def test_a_dry_run_says_the_same_and_changes_nothing(tmp_path: Path):
    file, into = file_of(tmp_path, **weights()), target()
    dry = load_into(file, into, dry_run=True)

    assert same(into["w"], np.zeros((2, 3), np.float32))
    assert dry == load_into(file, into)


def test_a_component_of_a_checkpoint_with_plain_values(tmp_path: Path):
    perdure.save(tmp_path / "saved", network={"w": raw(2), "rate": 0.5, "name": "x"}, other={"x": raw(1)})
    into: dict[str, Any] = {"w": np.zeros(2, np.float32), "rate": 0.0, "name": ""}
    load_into(tmp_path / "saved", into, component="network")

    assert same(into.pop("w"), raw(2))
    assert into == {"rate": 0.5, "name": "x"}
    with pytest.raises(UsageError, match=r"rate: 0\.5, a plain float, in the file, a plain int in the module"):
        load_into(tmp_path / "saved", {"w": np.zeros(2, np.float32), "rate": 0, "name": ""}, component="network")


def test_what_is_no_file_or_no_module_is_told(tmp_path: Path):
    file = file_of(tmp_path, w=raw(1))
    with pytest.raises(UsageError, match=r"^int: weights can be loaded into a PyTorch module, an NNX module"):
        load_into(file, 3)
    with pytest.raises(NoCheckpointError, match=r"nowhere: there is nothing\."):
        load_into(tmp_path / "nowhere", {})
    file.write_bytes(file.read_bytes()[:-1])
    into = {"w": np.zeros(1, np.float32)}
    with pytest.raises(DamagedError):
        load_into(file, into)
    assert into["w"][0] == 0


def test_it_loads_no_framework(tmp_path: Path):
    file = file_of(tmp_path, w=raw(1))
    program = (
        "import sys, numpy; from perdure.interop import load_into\n"
        f"load_into({str(file)!r}, {{'w': numpy.zeros(1, numpy.float32)}})\n"
        "print(sorted({'jax', 'flax', 'orbax', 'torch', 'tensorstore'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "[]\n"


# PyTorch.


@pytest.mark.full
def test_a_module_of_pytorch_keeps_its_parameters(tmp_path: Path):
    import torch

    def made() -> Any:
        module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
        next(module[2].parameters()).requires_grad_(False)
        return module.append(torch.nn.Linear(3, 3).to(torch.bfloat16))

    module = made()
    parameters = list(module.parameters())
    given = {
        name: raw(*t.shape, dtype=np.float32) for name, t in module.state_dict().items() if t.dtype == torch.float32
    }
    given |= {f"3.{name}": raw(*s, dtype=ml_dtypes.bfloat16) for name, s in {"weight": (3, 3), "bias": (3,)}.items()}
    given["1.num_batches_tracked"] = np.array(5)
    done = load_into(file_of(tmp_path, **given), module)

    state = module.state_dict()
    assert all(one is other for one, other in zip(module.parameters(), parameters, strict=True))
    assert not module[2].weight.requires_grad
    for name, value in given.items():
        held = state[name].view(torch.int16).numpy().view(ml_dtypes.bfloat16) if name[0] == "3" else state[name].numpy()
        assert same(held, value), name
    assert done.target == "the PyTorch module"
    with pytest.raises(UsageError, match=r"0\.weight: float32 3×2 in the file, float64 3×2 in the module"):
        load_into(tmp_path / "w", made().double(), dry_run=True)


def test_a_file_without_shapes_names_what_knows_them(tmp_path: Path):
    torch = pytest.importorskip("torch")
    from perdure.interop.storage_ckpt import load_params, save_params

    module = torch.nn.Linear(3, 2)
    save_params(module, tmp_path / "w.ckpt")
    before = module.weight.detach().clone()
    with pytest.raises(UsageError) as caught:
        load_into(tmp_path / "w.ckpt", module)

    assert f"{tmp_path / 'w.ckpt'} does not fit" in str(caught.value)
    way_out = "This format has no shapes: perdure.interop.storage_ckpt.load_params(module, path) knows how modules lie"
    assert way_out in str(caught.value)
    assert torch.equal(module.weight, before)
    load_params(module, tmp_path / "w.ckpt")


def test_tied_lazy_and_absent_parameters_of_pytorch(tmp_path: Path):
    import torch

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Linear(2, 2, bias=False)
            self.b = torch.nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def get_extra_state(self) -> dict[str, int]:
            return {"x": 1}

        def set_extra_state(self, state: Any) -> None:
            raise AssertionError(state)

    module = Tied()
    done = load_into(file_of(tmp_path, **{"b.weight": raw(2, 2)}), module)
    assert same(module.a.weight.detach().numpy(), raw(2, 2))
    assert done.losses == ("_extra_state: what get_extra_state gives; it stays as it is.",)
    both = file_of(tmp_path, **{"a.weight": raw(2, 2), "b.weight": raw(2, 2, seed=1)})
    with pytest.raises(UsageError, match=r"b.weight: other numbers than a.weight, which is the same parameter"):
        load_into(both, module)
    assert same(module.a.weight.detach().numpy(), raw(2, 2))
    weight = file_of(tmp_path, weight=raw(2, 2), bias=raw(2))
    with pytest.raises(UsageError, match="weight: has no shape yet in the module; run the module once on a batch"):
        load_into(weight, torch.nn.LazyLinear(2))
    with pytest.raises(UsageError, match=r"weight: stands on the meta device, without memory; call module\.to_empty"):
        load_into(weight, torch.nn.Linear(2, 2, device="meta"))


# NNX.


def variables_of(module: Any) -> dict[str, np.ndarray]:
    import jax
    from flax import nnx

    def plain(leaf: Any) -> np.ndarray:
        return np.asarray(jax.random.key_data(leaf) if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)

    state = nnx.to_flat_state(nnx.state(module))
    return {".".join(map(str, path)): plain(variable.get_value()) for path, variable in state}


def nnx_module(seed: int) -> Any:
    from flax import nnx

    rngs = nnx.Rngs(seed)
    half = nnx.Linear(3, 2, param_dtype=ml_dtypes.bfloat16, rngs=rngs)
    return nnx.Sequential(nnx.Linear(2, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs), half)


@pytest.mark.full
@pytest.mark.jax
def test_a_module_of_nnx_takes_what_orbax_perdure_and_safetensors_hold(tmp_path: Path):
    import orbax.checkpoint as orbax
    from flax import nnx

    start = nnx_module(1)
    wanted = variables_of(start)
    with orbax.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "orbax", nnx.state(start))
    perdure.save(tmp_path / "ours", network=nnx.state(start))
    convert(tmp_path / "ours", tmp_path / "x.safetensors", component="network")

    for source, component in (("orbax", None), ("ours", "network"), ("x.safetensors", None)):
        module = nnx_module(2)
        weight = module.layers[0].kernel
        assert not same(variables_of(module)["layers.0.kernel"], wanted["layers.0.kernel"])
        done = load_into(tmp_path / source, module, component=component)
        found = variables_of(module)
        assert found.keys() == wanted.keys()
        assert all(same(found[name], wanted[name]) for name in wanted), source
        assert module.layers[0].kernel is weight
        assert {leaf.name for leaf in done.leaves} == wanted.keys()
    assert any("dropout" in name or "rngs" in name for name in wanted)


@pytest.mark.jax
def test_optimizers_and_states_of_nnx(tmp_path: Path):
    import jax.numpy as jnp
    import optax
    from flax import nnx

    def made(seed: int) -> tuple[Any, Any]:
        module = nnx_module(seed)
        return module, nnx.Optimizer(module, optax.adam(1e-3), wrt=nnx.Param)

    module, optimizer = made(1)
    gradients = nnx.grad(lambda net: net(jnp.ones((4, 2))).astype(jnp.float32).sum())(module)
    optimizer.update(module, gradients)
    perdure.save(tmp_path / "saved", optimizer=nnx.state(optimizer), module=nnx.state(module))

    _, other = made(2)
    load_into(tmp_path / "saved", other, component="optimizer")
    wanted, found = variables_of(optimizer), variables_of(other)
    assert wanted.keys() == found.keys()
    assert all(same(found[name], wanted[name]) for name in wanted)
    assert found["step"] == 1
    for state in (nnx.state(nnx_module(3)), nnx.to_pure_dict(nnx.state(nnx_module(3)))):
        load_into(tmp_path / "saved", state, component="module")
        fresh = nnx_module(4)
        nnx.update(fresh, state if isinstance(state, nnx.State) else nnx.State(state))
        assert all(same(variables_of(fresh)[name], leaf) for name, leaf in variables_of(module).items())


@pytest.mark.jax
def test_what_does_not_fit_an_nnx_module_changes_nothing(tmp_path: Path):
    from flax import nnx

    perdure.save(tmp_path / "saved", network=nnx.state(nnx.Linear(2, 4, rngs=nnx.Rngs(0))))
    module = nnx.Linear(2, 3, use_bias=True, rngs=nnx.Rngs(1))
    before = variables_of(module)
    with pytest.raises(UsageError) as caught:
        load_into(tmp_path / "saved", module, component="network")

    assert "bias: float32 4 in the file, float32 3 in the module." in str(caught.value)
    assert "kernel: float32 2×4 in the file, float32 2×3 in the module." in str(caught.value)
    assert "does not fit the NNX module: 2 of the leaves; nothing was changed." in str(caught.value)
    assert all(same(leaf, before[name]) for name, leaf in variables_of(module).items())


@pytest.mark.jax
def test_networks_of_nnx_ppo_go_into_perdure_s(tmp_path: Path):
    """All but the normaliser, whose statistics perdure counts exactly: `perdure.nnx.load_nnx_ppo` brings them over."""
    from flax import nnx

    from perdure.nnx import make_mlp_actor_critic

    def networks(**options: Any) -> Any:
        return make_mlp_actor_critic(2, 2, [32, 32], [32, 32], nnx.Rngs(0), **options)

    rules = [r"^layers\.1\.=", r"\.linear\.=.", r"rng\.default=stream", r"^layers\.0\.(mean|M2|counter)$="]
    module = networks(normalize_obs=False)
    done = load_into(FIXTURE, module, component="networks", names=rules)

    expected = json.loads((FIXTURE.parent / "expected.json").read_text("utf-8"))["leaves"]

    found = variables_of(module)
    assert len(found) == len(done.origins) == 14
    for leaf, origin in zip(done.leaves, done.origins, strict=True):
        digest = expected[f"networks/{origin.replace('.', '/')}"]["sha256"]
        assert hashlib.sha256(found[leaf.name].tobytes()).hexdigest() == digest
    with pytest.raises(UsageError, match=r"layers\.0\.m2: float32 2×2 in the module, nothing in the file"):
        load_into(FIXTURE, networks(), component="networks", names=rules[1:3])


def test_tensors_that_nothing_can_be_copied_into_are_found_before_the_first_copy(tmp_path: Path):
    torch = pytest.importorskip("torch")
    torch.save({"0.weight": torch.ones(2, 3), "1.weight": torch.ones(2, 3)}, tmp_path / "x.pt")
    with torch.inference_mode():
        made_there = torch.nn.Linear(3, 2, bias=False)
    expanded = torch.nn.Linear(3, 2, bias=False)
    expanded.weight = torch.nn.Parameter(torch.zeros(1).expand(2, 3))
    for last, why in ((made_there, "was made in inference mode"), (expanded, "has several elements in one place")):
        module = torch.nn.Sequential(torch.nn.Linear(3, 2, bias=False), last)
        before = module[0].weight.detach().clone()
        with pytest.raises(UsageError, match=f"1.weight: {why}"):
            load_into(tmp_path / "x.pt", module)
        assert torch.equal(module[0].weight, before)


def test_a_file_beyond_the_memory_is_refused_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    safetensors.numpy.save_file({"w": np.ones(2, np.float32)}, tmp_path / "x")

    def too_much(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "fromfile", too_much)
    for use in (lambda: load_into(tmp_path / "x", {}), lambda: convert(tmp_path / "x", tmp_path / "y")):
        with pytest.raises(UsageError, match="x: does not fit into the memory there is"):
            use()


class Stubborn(dict):
    """A dict in which one value cannot be replaced."""

    def __setitem__(self, key: str, value: object) -> None:
        if key == "step":
            raise RuntimeError("not this one")
        super().__setitem__(key, value)


def test_what_fails_half_way_leaves_everything_as_it_was(tmp_path: Path):
    perdure.save(tmp_path / "saved", net={"a": np.ones(2), "rate": 0.5, "step": 7})
    target = Stubborn(a=np.zeros(2), rate=0.1, step=0)
    with pytest.raises(RuntimeError, match="not this one") as caught:
        load_into(tmp_path / "saved", target, component="net")

    assert (target["a"].tolist(), target["rate"], target["step"]) == ([0.0, 0.0], 0.1, 0)
    assert caught.value.__notes__ == ["A part could not be put back: RuntimeError('not this one')"]


def test_twin_without_the_fault_everything_is_replaced(tmp_path: Path):
    perdure.save(tmp_path / "saved", net={"a": np.ones(2), "rate": 0.5, "step": 7})
    target = {"a": np.zeros(2), "rate": 0.1, "step": 0}
    load_into(tmp_path / "saved", target, component="net")

    assert (target["a"].tolist(), target["rate"], target["step"]) == ([1.0, 1.0], 0.5, 7)
