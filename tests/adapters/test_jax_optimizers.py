"""optax transformations as facts: what can be read, what only a trace tells, and what is no difference."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

pytestmark = pytest.mark.jax

Make = Callable[[float], Any]


def labelled(rate: float) -> Any:
    labels: Callable[[Any], Any] = lambda params: jax.tree.map(lambda leaf: "a" if leaf.ndim > 1 else "b", params)  # noqa: E731
    return optax.multi_transform({"a": optax.adam(rate), "b": optax.sgd(1e-2)}, labels)


def masked(rate: float) -> Any:
    return optax.masked(optax.adam(rate), lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params))


def tabled(rate: float) -> Any:
    table = jnp.array([rate, 1.0])
    return optax.adam(lambda count: table[0] + 0 * count)


MAKES: dict[str, Make] = {
    "adam": optax.adam,
    "adamw": lambda rate: optax.adamw(1e-3, weight_decay=rate),
    "sgd": lambda rate: optax.sgd(rate, momentum=0.9, nesterov=True),
    "clipping": lambda rate: optax.chain(optax.clip_by_global_norm(rate), optax.adam(1e-3)),
    "warm-up": lambda rate: optax.adam(optax.warmup_cosine_decay_schedule(0.0, rate, 10, 100)),
    "an own schedule": lambda rate: optax.adam(lambda count: rate * 0.9**count),
    "an array in a closure": tabled,
    "injected": lambda rate: optax.inject_hyperparams(optax.adam)(rate),
    "masked": masked,
    "by label": labelled,
    "accumulated": lambda rate: optax.MultiSteps(optax.adam(rate), 4),
    "lion": optax.lion,
    "rmsprop": optax.rmsprop,
}


@pytest.mark.parametrize("name", MAKES)
def test_the_same_transformation_built_again_is_no_difference(trip, name: str):
    make = MAKES[name]

    assert trip.component([make(1e-3)]).facts == trip.component([make(1e-3)]).facts
    trip.restored([make(1e-3), 1], [make(1e-3), 1])


@pytest.mark.parametrize("name", MAKES)
def test_another_number_is_a_finding_wherever_it_is_hidden(trip, name: str):
    make = MAKES[name]

    assert trip.findings([make(1e-3), 1], [make(2e-3), 1])


def test_a_readable_difference_is_told_and_the_trace_is_not(trip):
    [(key, saved, found)] = trip.findings([optax.sgd(0.1), 1], [optax.sgd(0.2), 1])

    assert key.endswith("/step_size")
    assert (saved, found) == ("-0.1", "-0.2")


def test_what_only_a_trace_tells(trip):
    first, second = (optax.adam(lambda count, n=n: 0.1 / (count + n)) for n in (1, 2))
    [(key, *_)] = trip.findings([first, 1], [second, 1])

    assert key == "c/0/traced"
