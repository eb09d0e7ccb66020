"""Learning by hand is learning by autograd, but for rounding: gradients, steps of Adam, and what both leave behind."""

import copy
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perdure.torch import PPOConfig  # noqa: E402
from perdure.torch.acting import ByNumPy, ByTorch, acting_of  # noqa: E402
from perdure.torch.actions import Choices, Continuous, actions_of  # noqa: E402
from perdure.torch.by_hand import ByHand  # noqa: E402
from perdure.torch.environments import autoreset_mode, vector_of  # noqa: E402
from perdure.torch.learners import ByAutograd, learner_of  # noqa: E402
from perdure.torch.loss import ppo_loss  # noqa: E402
from perdure.torch.minibatches import minibatches_of  # noqa: E402
from perdure.torch.ppo import start, update  # noqa: E402
from perdure.torch.rollout import collect  # noqa: E402
from perdure.torch.state import Task  # noqa: E402

CONFIG = PPOConfig(
    total_timesteps=10_000, n_envs=2, n_steps=16, n_minibatches=2, n_epochs=2, hidden_sizes=(8, 6), learning_rate=1e-2
)
KINDS = {
    "one choice": Choices((3,), None, is_single=True),
    "two choices": Choices((3, 2), None, is_single=False),
    "continuous": Continuous(np.full(3, -1, np.float32), np.full(3, 1, np.float32)),
}


def trained(env_id: str, **options):
    """A training after its first update, and what it collected next."""
    config = replace(CONFIG, **options)
    envs = vector_of(lambda: gymnasium.make(env_id), config)
    task = Task(config, actions_of(envs.single_action_space), autoreset_mode(envs), None, None)
    state = start(task, envs)
    update(task, state, collect(task, state)[0])
    return task, state, collect(task, state)[0]


def learned(learner, task, rollout) -> None:
    """An update by this learner."""
    with learner:
        for minibatch in minibatches_of(rollout, task.config, np.random.default_rng(0)):
            log_probs, entropies, values = learner.say(minibatch)
            _, derivatives = ppo_loss(log_probs, entropies, values, minibatch.taught, task.config)
            assert np.isfinite(learner.derive(derivatives))
            learner.step()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_an_update_by_hand_leaves_what_autograd_and_adam_leave(env_id: str):
    task, state, rollout = trained(env_id)
    other = copy.copy(state)
    other.networks, other.optimizer = copy.deepcopy((state.networks, state.optimizer))
    before = [each.detach().clone() for each in state.networks.parameters()]
    pointers = [each.data_ptr() for each in state.networks.parameters()]
    learned(ByHand(task, state), task, rollout)
    learned(ByAutograd(task, other), task, rollout)

    assert [each.data_ptr() for each in state.networks.parameters()] == pointers
    for ours, theirs, old in zip(state.networks.parameters(), other.networks.parameters(), before, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
        assert not torch.allclose(ours, old, rtol=1e-3, atol=1e-4)
        own, reference = state.optimizer.state[ours], other.optimizer.state[theirs]
        assert own.keys() == reference.keys()
        for name in own:
            torch.testing.assert_close(own[name], reference[name], rtol=1e-2, atol=1e-6)


class Stop(Exception):
    """Raised in the middle of an update."""


def stopped(learner, task, rollout, after: int, *, raises: bool) -> None:
    """So many minibatches of an update; the learner is left by an exception, or as usual."""
    with learner:
        for number, minibatch in enumerate(minibatches_of(rollout, task.config, np.random.default_rng(0))):
            if number == after:
                break
            log_probs, entropies, values = learner.say(minibatch)
            learner.derive(ppo_loss(log_probs, entropies, values, minibatch.taught, task.config)[1])
            learner.step()
        if raises:
            raise Stop


def test_an_error_in_mid_update_leaves_the_minibatches_before_it_and_nothing_else():
    """Bit for bit, in networks and optimizer alike: that is what a save afterwards holds."""
    task, state, rollout = trained("CartPole-v1")
    other = copy.copy(state)
    other.networks, other.optimizer = copy.deepcopy((state.networks, state.optimizer))
    fresh = [each.detach().clone() for each in state.networks.parameters()]
    stopped(ByHand(task, other), task, rollout, 3, raises=False)
    with pytest.raises(Stop):
        stopped(ByHand(task, state), task, rollout, 3, raises=True)

    pairs = zip(state.networks.parameters(), other.networks.parameters(), strict=True)
    for (ours, theirs), before in zip(pairs, fresh, strict=True):
        assert torch.equal(ours, theirs)
        assert not torch.equal(ours, before)
        own, reference = state.optimizer.state[ours], other.optimizer.state[theirs]
        assert all(torch.equal(own[name], reference[name]) for name in reference)
    steps = {float(kept["step"]) for kept in state.optimizer.state.values()}
    assert steps == {float(CONFIG.n_minibatches * CONFIG.n_epochs + 3)}


def test_the_first_update_is_adams_own_and_networks_that_are_no_towers_are_autograds():
    task, state, _ = trained("CartPole-v1")
    assert isinstance(learner_of(task, state), ByHand)
    state.optimizer.state.clear()
    assert isinstance(learner_of(task, state), ByAutograd)
    task, state, _ = trained("CartPole-v1", lstm_size=4)
    assert isinstance(learner_of(task, state), ByAutograd)


CASES = [
    (kind, is_masked) for kind in KINDS for is_masked in (False, True) if not (KINDS[kind].has_scale and is_masked)
]
"""Continuous actions have no masks."""


@pytest.mark.parametrize(("kind", "is_masked"), CASES)
def test_derivatives_of_what_is_judged_are_those_of_autograd(kind: str, is_masked: bool):
    actions, size = KINDS[kind], KINDS[kind].n_outputs
    draw = torch.Generator().manual_seed(3)
    outputs = torch.randn(7, size, generator=draw, requires_grad=True)
    scale = torch.randn(size, generator=draw, requires_grad=True) if actions.has_scale else None
    mask = torch.ones(7, size, dtype=torch.bool) if is_masked else None
    if mask is not None:
        mask[::2, 0] = False
    with torch.no_grad():
        chosen = actions.sample(outputs, torch.randn(7, size, generator=draw), mask, scale)
    given = torch.randn(2, 7, generator=draw)
    wanted = [outputs] if scale is None else [outputs, scale]
    expected = torch.autograd.grad(actions.judge(outputs, chosen, mask, scale), wanted, [*given])
    with torch.no_grad():
        found = actions.derive(outputs, chosen, mask, scale, *given)

    for one, other in zip(found, expected, strict=False):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_drawn_as_tensors_are(kind: str):
    actions, rng = KINDS[kind], np.random.default_rng(5)
    outputs, noise = rng.standard_normal((2, 9, actions.n_outputs), dtype=np.float32)
    scale = rng.standard_normal(3, dtype=np.float32) if actions.has_scale else None
    mask = None if actions.has_scale else np.tile(np.arange(actions.n_outputs) != 1, (9, 1))
    tensors = [None if each is None else torch.from_numpy(each) for each in (outputs, noise, mask, scale)]

    found, expected = actions.draw(outputs, noise, mask, scale), actions.sample(*tensors).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == expected.dtype


def test_numpy_acts_as_pytorch_does_and_only_where_blas_stays_in_one_thread():
    task, state, _ = trained("CartPole-v1")
    rng, starts = np.random.default_rng(1), np.zeros(2, bool)
    ours, theirs = acting_of(task, state), ByTorch(task, state)
    assert isinstance(ours, ByNumPy)
    with torch.no_grad():
        for _ in range(5):
            observations = rng.standard_normal((2, 4), dtype=np.float32)
            noise = rng.standard_normal((2, 2), dtype=np.float32)
            actions = [each.act(observations, starts, noise, None) for each in (ours, theirs)]
            assert np.array_equal(actions[0], actions[1])
        torch.testing.assert_close(ours.said()[0], theirs.said()[0])
    many = Task(
        replace(CONFIG, n_envs=2**13, total_timesteps=10**6),
        *[getattr(task, name) for name in ("actions", "mode", "factory", "log_fn")],
    )
    assert isinstance(acting_of(many, state), ByTorch)
