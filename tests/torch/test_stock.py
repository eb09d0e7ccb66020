"""Only stock towers are computed by hand; what is hooked, parametrised, subclassed or cast does what PyTorch does."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gymnasium  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

from perdure.torch import PPOConfig  # noqa: E402
from perdure.torch.acting import LARGEST_PRODUCT, ByNumPy, ByTorch, acting_of  # noqa: E402
from perdure.torch.actions import actions_of  # noqa: E402
from perdure.torch.by_hand import ByHand  # noqa: E402
from perdure.torch.environments import autoreset_mode, vector_of  # noqa: E402
from perdure.torch.learners import ByAutograd, learner_of  # noqa: E402
from perdure.torch.networks import ActorCritic, Dense  # noqa: E402
from perdure.torch.ppo import start, update  # noqa: E402
from perdure.torch.rollout import collect  # noqa: E402
from perdure.torch.state import Task  # noqa: E402

CONFIG = PPOConfig(total_timesteps=10_000, n_envs=2, n_steps=8, n_minibatches=2, n_epochs=1, hidden_sizes=(8, 6))


def trained(env_id: str = "CartPole-v1"):
    """A training after its first update: Adam has laid out its state."""
    envs = vector_of(lambda: gymnasium.make(env_id), CONFIG)
    task = Task(CONFIG, actions_of(envs.single_action_space), autoreset_mode(envs), None, None)
    state = start(task, envs)
    update(task, state, collect(task, state)[0])
    return task, state


class Doubling(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Sine(Dense):
    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = torch.sin(layer(inputs))
        return inputs


class Halved(ActorCritic):
    def encode(self, observations: Tensor) -> Tensor:
        return super().encode(observations) / 2


class Scaled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 3 * weight


class Passing(nn.Module):
    """Hands on what it is given, the very tensor."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs


def with_class(module: Any, kind: type) -> None:
    module.__class__ = kind


def in_place(module: nn.Module, inputs: Any, output: Tensor) -> None:
    output.mul_(0.5)


def pruned(networks: Any) -> None:
    prune.l1_unstructured(networks.policy.layers[0], "weight", amount=0.5)


def weight_norm(networks: Any) -> None:
    parametrizations.weight_norm(networks.policy.layers[1])


def own_forward(networks: Any) -> None:
    layer: Any = networks.policy.layers[0]
    layer.forward = lambda inputs: 2 * nn.functional.linear(inputs, layer.weight)


def parametrized(networks: Any) -> None:
    nn.utils.parametrize.register_parametrization(networks.policy.layers[1], "weight", Scaled())


MEDDLINGS: dict[str, Callable[[Any], Any]] = {
    "a forward hook": lambda n: n.policy.layers[0].register_forward_hook(lambda m, i, o: 2 * o),
    "a hook that changes in place": lambda n: n.policy.layers[0].register_forward_hook(in_place),
    "a hook before": lambda n: n.policy.layers[1].register_forward_pre_hook(lambda m, i: (2 * i[0],)),
    "a hook of the tower": lambda n: n.policy.register_forward_hook(lambda m, i, o: 2 * o),
    "a subclassed layer": lambda n: with_class(n.policy.layers[0], Doubling),
    "another activation": lambda n: with_class(n.policy, Sine),
    "other features": lambda n: with_class(n, Halved),
    "a forward of its own": own_forward,
    "a parametrised weight": parametrized,
    "weight norm": weight_norm,
    "spectral norm": lambda n: parametrizations.spectral_norm(n.policy.layers[1]),
    "a pruned weight": pruned,
    "one layer more": lambda n: n.policy.layers.insert(1, nn.LeakyReLU(0.2, inplace=True)),
    "a layer that passes on": lambda n: n.policy.layers.insert(0, Passing()),
    "dropout in training": lambda n: n.policy.layers.insert(1, nn.Dropout(0.5)),
    "no bias": lambda n: setattr(n.policy.layers[0], "bias", None),
}
"""What somebody may do to the actor."""


def as_modules_say(networks: ActorCritic, observations: Tensor) -> Tensor:
    """The actor by its modules alone, one after the other; nothing of perdure's arithmetic."""
    if isinstance(networks.policy, Sine):
        return networks.policy(networks.encode(observations))
    values, policy = networks.encode(observations), networks.policy
    for number, layer in enumerate(policy.layers):
        values = torch.tanh(layer(values)) if number < policy.n_active else layer(values)
    for hook in policy._forward_hooks.values():
        values = hook(policy, (), values)
    return values


@pytest.mark.parametrize("meddling", MEDDLINGS)
def test_meddled_networks_act_and_learn_as_their_modules_do_bit_for_bit(meddling: str):
    task, state = trained()
    observations = np.random.default_rng(0).standard_normal((5, 2, 4), dtype=np.float32)
    untouched = copy.deepcopy(state.networks)
    MEDDLINGS[meddling](state.networks)
    acting = acting_of(task, state)
    assert isinstance(acting, ByTorch)
    assert isinstance(learner_of(task, state), ByAutograd)
    with torch.no_grad():
        for row in observations:
            given = row.copy()
            torch.manual_seed(0)
            acting.act(row, np.zeros(2, bool), np.zeros((2, 2), np.float32), None)
            assert np.array_equal(row, given)  # no layer has written into what it was shown
        torch.manual_seed(0)
        expected = as_modules_say(state.networks, torch.from_numpy(observations[-1]))
        plain = untouched.policy(torch.from_numpy(observations[-1]))
    said = acting.said()[0][-1]
    if state.networks.policy.is_stock():  # it is what stands before it that is not: here tanh is NumPy's
        torch.testing.assert_close(said, expected)
    else:
        assert torch.equal(said, expected)
    if meddling not in ("no bias", "a layer that passes on", "weight norm"):
        assert not torch.allclose(said, plain, rtol=1e-4)


def test_the_twin_that_nobody_meddled_with_is_done_by_hand():
    task, state = trained()
    assert isinstance(acting_of(task, state), ByNumPy)
    assert isinstance(learner_of(task, state), ByHand)


def test_hooks_that_were_removed_and_global_ones_are_told_apart():
    task, state = trained()
    state.networks.policy.layers[0].register_forward_hook(in_place).remove()
    assert isinstance(acting_of(task, state), ByNumPy)
    handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: None)
    try:
        assert isinstance(acting_of(task, state), ByTorch)
    finally:
        handle.remove()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert isinstance(acting_of(task, state), ByTorch)
        assert isinstance(learner_of(task, state), ByAutograd)
    assert isinstance(acting_of(task, state), ByNumPy)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_networks_of_other_floats_are_pytorchs(env_id: str, dtype: Any):
    task, state = trained(env_id)
    state.networks.to(dtype)
    state.optimizer = torch.optim.Adam(state.networks.parameters(), lr=1e-2, eps=1e-3)
    before = [each.detach().clone() for each in state.networks.parameters()]
    acting = acting_of(task, state)
    assert isinstance(acting, ByTorch)
    shape = (2, *(state.envs.single_observation_space.shape or ()))
    observation = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    with torch.no_grad():
        noise = np.zeros((2, task.actions.n_outputs), np.float32)
        acting.act(observation, np.zeros(2, bool), noise, None)
        expected = as_modules_say(state.networks, torch.from_numpy(observation))
    assert acting.said()[0].dtype == dtype
    assert torch.equal(acting.said()[0][0], expected)
    rollout, _ = collect(task, state)
    assert isinstance(learner_of(task, state), ByAutograd)
    update(task, state, rollout)
    assert not all(torch.equal(old, new) for old, new in zip(before, state.networks.parameters(), strict=True))


def test_networks_elsewhere_are_pytorchs_whatever_the_options_say():
    task, state = trained()
    assert state.optimizer.param_groups[0]["params"][0].device.type == task.config.device == "cpu"
    state.networks.to("meta")
    assert isinstance(learner_of(task, state), ByAutograd)
    assert isinstance(acting_of(task, state), ByTorch)
    task, state = trained()
    elsewhere = replace(task, config=replace(CONFIG, device="meta"))
    assert isinstance(acting_of(elsewhere, state), ByTorch)


def tied(state: Any) -> None:
    state.networks.value.layers[0] = state.networks.policy.layers[0]


def frozen(state: Any) -> None:
    state.networks.value.layers[0].weight.requires_grad_(False)


def hooked_gradient(state: Any) -> None:
    state.networks.value.layers[0].weight.register_hook(lambda gradient: gradient / 2)


def a_head_more(state: Any) -> None:
    state.networks.extra = nn.Linear(2, 2)


def a_second_group(state: Any) -> None:
    first, *others = state.networks.parameters()
    moments = state.optimizer.state
    state.optimizer = torch.optim.Adam([{"params": [first]}, {"params": others}], lr=1e-3)
    state.optimizer.state.update(moments)


def amsgrad(state: Any) -> None:
    state.optimizer.param_groups[0]["amsgrad"] = True


def hooked_step(state: Any) -> None:
    state.optimizer.register_step_post_hook(lambda optimizer, args, kwargs: None)


def another_optimizer(state: Any) -> None:
    state.optimizer.__class__ = torch.optim.AdamW


@pytest.mark.parametrize(
    "meddling",
    [tied, frozen, hooked_gradient, a_head_more, a_second_group, amsgrad, hooked_step, another_optimizer],
)
def test_gradients_and_steps_that_somebody_meddled_with_are_autograds_and_the_optimizers(
    meddling: Callable[[Any], None],
):
    task, state = trained()
    meddling(state)
    assert isinstance(learner_of(task, state), ByAutograd)


PRODUCTS = """
import sys, zlib
import numpy as np
numbers = np.random.default_rng(0).standard_normal(3_000_000).astype(np.float32)
def digest(rows, inputs, outputs):
    weight = numbers[7:7 + inputs * outputs].reshape(outputs, inputs).T
    return zlib.crc32(np.dot(numbers[:rows * inputs].reshape(rows, inputs), weight).tobytes())
print([digest(*map(int, shape.split("x"))) for shape in sys.argv[1:]])
"""

LARGEST = [
    (rows, inputs, LARGEST_PRODUCT // rows // inputs)
    for rows in (1, 2, 4, 8, 32, 64, 256)
    for inputs in (4, 64, 256, 512, 1000, 1024)
    if rows * inputs <= LARGEST_PRODUCT
]
BEYOND = [(2, 1000, 1000), (8, 1000, 128), (16, 1000, 256), (32, 1024, 512), (128, 1000, 512)]


def products(shapes: list[tuple[int, int, int]], threads: int) -> str:
    """Digests of matrix products in a process of so many threads."""
    words = ["x".join(map(str, shape)) for shape in shapes]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", PRODUCTS, *words], env=environment, capture_output=True, check=True)
    return done.stdout.decode()


def test_the_largest_products_by_hand_do_not_depend_on_the_number_of_threads():
    assert all(a * b * c <= LARGEST_PRODUCT for a, b, c in LARGEST)
    assert products(LARGEST, 1) == products(LARGEST, 2)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor: one thread")
def test_the_twin_beyond_the_limit_does():
    """So the test above can fail: OpenBLAS cuts these among its threads, which rounds otherwise."""
    blas = np.show_config("dicts")["Build Dependencies"]["blas"]["name"]
    if "openblas" not in blas:
        pytest.skip(f"NumPy's products are {blas}'s")
    assert products(BEYOND, 1) != products(BEYOND, 2)
