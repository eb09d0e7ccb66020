"""Modules of PyTorch and of Flax NNX come back from policies; PyTorch's files open with stock safetensors."""

import subprocess
import sys
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


LOADS = """
import sys
sys.modules.update(dict.fromkeys(("gymnasium", "perdure.torch", "perdure.gym"), None))  # an import of them fails
import perdure, torch
agent = torch.nn.Sequential(torch.nn.Linear(4, 2))
perdure.load_policy(sys.argv[1], agent=agent)
print(agent[0].weight.detach().numpy().tobytes().hex())
"""


@pytest.mark.full
def test_neither_trainer_nor_environment_is_needed(tmp_path: Path):
    torch, gymnasium = pytest.importorskip("torch"), pytest.importorskip("gymnasium")
    agent = torch.nn.Sequential(torch.nn.Linear(4, 2))
    with perdure.Run(tmp_path / "run", policy=["agent"]) as run:
        run.restore(agent=agent, env=gymnasium.make("CartPole-v1"))
        policy = run.export_policy()

    loaded = subprocess.run([sys.executable, "-c", LOADS, policy], capture_output=True, text=True, check=False)

    assert loaded.stdout.strip() == agent[0].weight.detach().numpy().tobytes().hex(), loaded.stderr


def test_another_structure_is_refused_with_all_findings(tmp_path: Path):
    policy, other = export(tmp_path, agent=torch_module(1)), torch_module(2, width=4, dropout=0.5)
    before = {name: value.clone() for name, value in other.state_dict().items()}

    with pytest.raises(perdure.PolicyMismatchError, match="the policy was trained for something else") as raised:
        perdure.load_policy(policy, agent=other)

    assert {"agent/2/p", "agent/0/out_features", "agent/0.weight"} <= {f.key for f in raised.value.findings}
    assert all((other.state_dict()[name] == value).all() for name, value in before.items())


def test_no_difference_is_offered_for_acceptance(tmp_path: Path):
    """A resume can accept another activation; a policy is loaded as it was trained, or not at all."""
    torch = pytest.importorskip("torch")
    trained, other = (
        torch.nn.Sequential(torch.nn.Linear(2, 1), last) for last in (torch.nn.Tanh(), torch.nn.Sigmoid())
    )

    with pytest.raises(perdure.PolicyMismatchError) as refused:
        perdure.load_policy(export(tmp_path, agent=trained), agent=other)

    assert str(refused.value).partition("nothing was changed.\n")[2] == (
        "  agent/1: class torch:Tanh in the run, class torch:Sigmoid here. Build the module as the run did."
    )


def test_a_policy_of_a_compiled_module_fits_the_module_itself(tmp_path: Path):
    torch = pytest.importorskip("torch")
    trained, fresh = torch_module(1), torch_module(2)

    perdure.load_policy(export(tmp_path, agent=torch.compile(trained, backend="eager")), agent=fresh)

    assert all(torch.equal(fresh.state_dict()[name], value) for name, value in trained.state_dict().items())


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
