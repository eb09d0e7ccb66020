"""Networks: the fast form of dense layers agrees with the other, images pass through the CNN, memories start empty."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perdure.torch.networks import ActorCritic, Dense  # noqa: E402


def networks(shape=(3,), **options):
    defaults = {"hidden_sizes": (5, 4), "lstm_size": None, "has_scale": False, "is_image": False}
    return ActorCritic(shape, 2, **{**defaults, **options})


@pytest.mark.parametrize("ends_active", [False, True])
@pytest.mark.parametrize("sizes", [[3, 2], [3, 5, 4, 2]])
def test_frozen_layers_do_what_the_others_do(sizes: list[int], ends_active: bool):
    layers, inputs = Dense(sizes, ends_active=ends_active), torch.randn(6, 3)
    with torch.no_grad():
        torch.testing.assert_close(layers.frozen()(inputs), layers(inputs))
        assert (layers(inputs).abs().max() <= 1) == ends_active or not ends_active


def test_a_tower_is_linear_layers_with_tanh_in_between():
    tower, inputs = networks().policy, torch.randn(6, 3)
    first, second, last = tower.layers
    expected = last(torch.tanh(second(torch.tanh(first(inputs)))))

    torch.testing.assert_close(tower(inputs), expected)


def test_images_of_bytes_are_seen_between_0_and_1():
    seen = networks((4, 84, 84), is_image=True)
    black = seen.encode(torch.zeros(2, 4, 84, 84, dtype=torch.uint8))
    white = seen.encode(torch.full((2, 4, 84, 84), 255, dtype=torch.uint8))

    assert black.shape == (2, 512)
    assert seen.policy(white).shape == (2, 2)
    assert torch.count_nonzero(black) == 0  # no biases, so nothing comes of nothing
    assert seen.features is not None
    torch.testing.assert_close(white, seen.features(torch.ones(2, 4, 84, 84)))


def test_many_steps_of_the_memory_are_one_after_the_other_and_an_episode_begins_with_none():
    seen = networks(lstm_size=3)
    features, starts = torch.randn(4, 2, 4), torch.zeros(4, 2, dtype=torch.bool)
    starts[2, 1] = True
    carry = torch.randn(2, 3), torch.randn(2, 3)
    together, one = seen.recall(features, carry, starts), carry
    for t in range(4):
        one = seen.remember(features[t], one, starts[t])
        torch.testing.assert_close(together[t], one[0])
    empty = seen.empty_carry(2)
    assert empty is not None
    fresh = seen.remember(features[2], empty, starts[2])

    torch.testing.assert_close(together[2, 1], fresh[0][1])
    assert not np.allclose(together[2, 0].detach(), fresh[0][0].detach())
    with pytest.raises(TypeError, match="these networks have no memory: lstm_size is None"):
        networks().remember(features[0], carry, starts[0])
