"""Modules of PyTorch and of Flax NNX come back from policies; PyTorch's files open with stock safetensors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure


def export(tmp_path: Path, **components: Any) -> Path:
    with perdure.Run(tmp_path / "run", policy=[*components]) as run:
        run.restore(**components)
        return run.export_policy(tmp_path / "policy")


def torch_module(seed: int, *, width: int = 3, dropout: float = 0.1) -> Any:
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Linear(2, width), torch.nn.BatchNorm1d(width), torch.nn.Dropout(dropout), torch.nn.Linear(width, 1)
        )


def test_a_torch_module_comes_back_in_its_own_storage(tmp_path: Path):
    torch = pytest.importorskip("torch")
    trained, fresh = torch_module(1), torch_module(2).eval()
    places = [parameter.data_ptr() for parameter in fresh.parameters()]

    perdure.load_policy(export(tmp_path, agent=trained), agent=fresh)

    assert all(torch.equal(fresh.state_dict()[name], value) for name, value in trained.state_dict().items())
    assert [parameter.data_ptr() for parameter in fresh.parameters()] == places


def test_stock_safetensors_load_it_strictly(tmp_path: Path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    trained, fresh = torch_module(1), torch_module(2)

    weights = safetensors.load_file(export(tmp_path, agent=trained) / "agent.safetensors")
    fresh.load_state_dict(weights, strict=True)

    assert all(torch.equal(fresh.state_dict()[name], value) for name, value in trained.state_dict().items())


def test_a_module_of_another_device_takes_it(tmp_path: Path):
    torch = pytest.importorskip("torch")
    policy = export(tmp_path, agent=torch_module(1))
    meta = torch_module(2).to(torch.float32)
    if torch.cuda.is_available():
        meta = meta.cuda()

    assert perdure.load_policy(policy, agent=meta)["agent"][0].weight.device == meta[0].weight.device


def test_another_structure_is_refused_with_all_findings(tmp_path: Path):
    policy, other = export(tmp_path, agent=torch_module(1)), torch_module(2, width=4, dropout=0.5)
    before = {name: value.clone() for name, value in other.state_dict().items()}

    with pytest.raises(perdure.PolicyMismatchError, match="the policy was trained for something else") as raised:
        perdure.load_policy(policy, agent=other)

    assert {"agent/2/p", "agent/0/out_features", "agent/0.weight"} <= {f.key for f in raised.value.findings}
    assert all((other.state_dict()[name] == value).all() for name, value in before.items())


def test_an_nnx_module_comes_back(tmp_path: Path):
    nnx = pytest.importorskip("flax.nnx")

    def module(seed: int, width: int = 3) -> Any:
        rngs = nnx.Rngs(seed)
        return nnx.Sequential(nnx.Linear(2, width, rngs=rngs), nnx.BatchNorm(width, rngs=rngs))

    trained, fresh = module(1), module(2)
    fresh.eval()
    policy = export(tmp_path, agent=trained)

    perdure.load_policy(policy, agent=fresh)

    assert np.array_equal(fresh.layers[0].kernel[...], trained.layers[0].kernel[...])
    with pytest.raises(perdure.PolicyMismatchError, match="agent/layers/0/out_features: 3 in the run, 4 here"):
        perdure.load_policy(policy, agent=module(3, width=4))
