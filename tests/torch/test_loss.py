"""The loss's derivatives, which are written down, are those that PyTorch derives from the formula."""

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from perdure.torch.config import PPOConfig  # noqa: E402
from perdure.torch.gradients import FlatGradients  # noqa: E402
from perdure.torch.loss import Taught, Told, ppo_loss  # noqa: E402

CONFIG = PPOConfig(entropy_weight=0.03, value_weight=0.7)


def batch(count: int = 200) -> tuple[list[Any], Taught]:
    generator = torch.Generator().manual_seed(1)
    columns = torch.randn(7, count, generator=generator, dtype=torch.float64).unbind()
    said = [0.3 * columns[0] - 1, columns[1].abs(), columns[2]]
    return said, Taught(said[0] + 0.3 * columns[3], said[2] + columns[4], columns[5], columns[6])


def by_the_book(said, taught: Taught, config: PPOConfig):
    log_probs, entropies, values = said
    advantages = taught.advantages
    if config.normalize_advantages:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = torch.exp(log_probs - taught.log_probs)
    clipped = torch.clamp(ratio, 1 - config.clip_range, 1 + config.clip_range)
    policy = -torch.min(advantages * ratio, advantages * clipped).mean()
    error = (values - taught.returns) ** 2
    if config.clip_range_value is not None:
        limit = config.clip_range_value
        held = taught.values + torch.clamp(values - taught.values, -limit, limit)
        error = torch.max(error, (held - taught.returns) ** 2)
    return policy + config.value_weight * error.mean() - config.entropy_weight * entropies.mean()


@pytest.mark.parametrize("options", [{}, {"clip_range_value": 0.4}, {"normalize_advantages": False}])
def test_derivatives_are_those_of_the_formula(options):
    said, taught = batch()
    config = replace(CONFIG, **options)
    leaves = [each.clone().requires_grad_() for each in said]
    expected = torch.autograd.grad(by_the_book(leaves, taught, config), leaves)

    _, found = ppo_loss(said[0], said[1], said[2], taught, config)

    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_what_is_told_sums_up_to_the_loss_and_joins():
    said, taught = batch()
    told, _ = ppo_loss(said[0], said[1], said[2], taught, CONFIG)
    parts = told.parts(CONFIG)
    ratios = torch.exp(said[0] - taught.log_probs)

    total = parts["loss/policy"] + 0.7 * parts["loss/value"] - 0.03 * parts["loss/entropy"]
    assert total == pytest.approx(float(by_the_book(said, taught, CONFIG)))
    assert parts["loss/clip_fraction"] == pytest.approx(float(((ratios - 1).abs() > 0.2).double().mean()))
    assert parts["loss/approx_kl"] == pytest.approx(float((ratios - 1 - ratios.log()).mean()))
    assert Told.joined([told, told]).parts(CONFIG) == pytest.approx(parts)


def test_gradients_are_clipped_as_by_pytorch():
    layer, inputs = torch.nn.Linear(4, 3), torch.randn(8, 4)
    torch.nn.functional.linear(inputs, layer.weight, layer.bias).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in layer.parameters()]
    norm = torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
    clipped = [parameter.grad.clone() for parameter in layer.parameters()]

    with FlatGradients(layer.parameters()) as gradients:
        outputs = layer(inputs)
        gradients.derive([outputs], [2 * outputs.detach()])
        before = [parameter.grad.clone() for parameter in layer.parameters()]
        found = gradients.clip(0.5)
        after = [parameter.grad.clone() for parameter in layer.parameters()]

    torch.testing.assert_close(before, expected)
    torch.testing.assert_close(after, clipped)
    assert found == pytest.approx(float(norm))
    assert all(parameter.grad is None for parameter in layer.parameters())
