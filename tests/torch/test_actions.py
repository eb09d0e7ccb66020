"""Actions are drawn as PyTorch's distributions say, and judged as they judge; what is forbidden is never done."""

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.distributions import Categorical, Normal  # noqa: E402

from perdure import UsageError  # noqa: E402
from perdure.torch.actions import actions_of  # noqa: E402

DISCRETE = actions_of(gymnasium.spaces.Discrete(3, start=5))
SEVERAL = actions_of(gymnasium.spaces.MultiDiscrete([2, 3]))
BOX = actions_of(gymnasium.spaces.Box(-1, np.array([[0.5], [2]], np.float32), (2, 1)))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def draws(actions, outputs, count, mask=None, log_std=None):
    noise = torch.from_numpy(actions.noise(rng(), count))
    return actions.sample(outputs.expand(count, -1), noise, mask, log_std)


def test_choices_are_drawn_with_the_probabilities_of_the_softmax():
    logits = torch.tensor([[1.0, 0.0, -1.0]])
    frequencies = torch.bincount(draws(DISCRETE, logits, 40_000), minlength=3) / 40_000

    assert frequencies.tolist() == pytest.approx(torch.softmax(logits[0], 0).tolist(), abs=0.01)


def test_several_choices_are_drawn_independently():
    logits = torch.tensor([[1.0, 0.0, 0.0, -1.0, 2.0]])
    drawn = draws(SEVERAL, logits, 40_000)
    together = torch.zeros(2, 3).index_put_((drawn[:, 0], drawn[:, 1]), torch.ones(()), accumulate=True) / 40_000
    expected = torch.softmax(logits[0, :2], 0)[:, None] * torch.softmax(logits[0, 2:], 0)

    assert together.flatten().tolist() == pytest.approx(expected.flatten().tolist(), abs=0.01)


def test_continuous_actions_are_normal_and_cut_off_only_for_the_environment():
    log_std = torch.tensor([0.5, -1.0])
    drawn = draws(BOX, torch.tensor([[3.0, -2.0]]), 40_000, log_std=log_std)
    sent = BOX.to_environment(drawn.numpy())

    assert drawn.mean(0).tolist() == pytest.approx([3, -2], abs=0.03)
    assert drawn.std(0).tolist() == pytest.approx(log_std.exp().tolist(), abs=0.02)
    assert sent.shape == (40_000, 2, 1)
    assert (sent.min(), sent[:, 0].max(), sent[:, 1].max()) == (-1, 0.5, sent[:, 1].max())
    assert sent[:, 1].max() <= 2


def test_what_a_mask_forbids_is_never_drawn_and_has_no_share_in_the_entropy():
    logits, mask = torch.tensor([[50.0, 0.0, 1.0]]), torch.tensor([[False, True, True]])
    drawn = draws(DISCRETE, logits, 10_000, mask.expand(10_000, -1))
    _, entropy = DISCRETE.judge(logits, torch.tensor([1]), mask, None)

    assert set(drawn.tolist()) == {1, 2}
    assert DISCRETE.best(logits, mask).tolist() == [2]
    assert entropy.item() == pytest.approx(Categorical(logits=logits[0, 1:]).entropy().item(), rel=1e-5)


@pytest.mark.parametrize("is_masked", [False, True])
def test_choices_are_judged_as_by_pytorch(is_masked: bool):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 5, generator=generator)
    mask = torch.tensor([[True, True, True, False, True]]).expand(7, -1) if is_masked else None
    actions = torch.tensor([[0, 2], [1, 0]]).repeat(4, 1)[:7]
    seen = logits.masked_fill(~mask, -torch.inf) if mask is not None else logits
    first, second = Categorical(logits=seen[:, :2]), Categorical(logits=seen[:, 2:])

    log_probs, entropies = SEVERAL.judge(logits, actions, mask, None)

    expected = first.log_prob(actions[:, 0]) + second.log_prob(actions[:, 1])
    assert log_probs.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert entropies.tolist() == pytest.approx((first.entropy() + second.entropy()).tolist(), rel=1e-5)


def test_continuous_actions_are_judged_as_by_pytorch():
    means, actions, log_std = torch.randn(7, 2), torch.randn(7, 2), torch.tensor([0.3, -0.7])
    normal = Normal(means, log_std.exp())

    log_probs, entropies = BOX.judge(means, actions, None, log_std)

    assert log_probs.tolist() == pytest.approx(normal.log_prob(actions).sum(-1).tolist(), rel=1e-4)
    assert entropies.tolist() == pytest.approx(normal.entropy().sum(-1).tolist(), rel=1e-5)


def test_choices_are_sent_as_the_space_counts_them():
    assert DISCRETE.to_environment(np.array([0, 2])).tolist() == [5, 7]


@pytest.mark.parametrize(
    "space", [gymnasium.spaces.MultiBinary(3), gymnasium.spaces.Box(0, 9, (2,), np.int64), gymnasium.spaces.Dict()]
)
def test_other_spaces_are_refused(space):
    with pytest.raises(UsageError, match=r"action space .*: the policy acts in Discrete, in MultiDiscrete"):
        actions_of(space)
