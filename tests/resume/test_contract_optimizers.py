"""Optimizers at a resume: schedules, chains and their numbers are compared, although closures hide them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import perdure
from perdure.adapters import jax_optimizers

pytestmark = pytest.mark.jax

Make = Callable[[], optax.GradientTransformation]
STEP = "tx/update/update_fns/1/tx/1"
DECAY = ["tx/init/init_fns/1", "tx/update/update_fns/1/tx/0", "tx/update/update_fns/1/tx/1"]
SCHEDULE = f"optimizer/{STEP}/step_size_fn/learning_rate"


def targets(make: Make) -> dict[str, Any]:
    net = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
    return {"optimizer": nnx.Optimizer(net, make(), wrt=nnx.Param)}


def refusal(path: Path, make: Make, **options: Any) -> perdure.ContractError | None:
    """Opens the run; what it says against it."""
    run = perdure.Run(path, **options)
    try:
        run.restore(**targets(make))
    except perdure.ContractError as error:
        return error
    run.close()
    return None


def linear(end: float = 0.0, steps: int = 100) -> Make:
    return lambda: optax.adam(optax.linear_schedule(3e-4, end, steps))


def cosine(rate: float, steps: int = 100) -> Make:
    return lambda: optax.adam(optax.cosine_decay_schedule(rate, steps))


def chain(*parts: Callable[[], optax.GradientTransformation]) -> Make:
    return lambda: optax.chain(*(part() for part in parts))


def clip(norm: float) -> Make:
    return lambda: optax.clip_by_global_norm(norm)


def decay(rate: float) -> Make:
    return lambda: optax.adamw(3e-4, weight_decay=rate)


READABLE: dict[str, tuple[Make, Make, list[str], str, str]] = {
    "a schedule's end": (linear(), linear(end=1e-5), [f"{SCHEDULE}/end_value"], "0.0", "1e-05"),
    "a schedule's length": (linear(), linear(steps=200), [f"{SCHEDULE}/transition_steps"], "100", "200"),
    "a cosine's beginning": (cosine(3e-4), cosine(1e-4), [f"{SCHEDULE}/init_value"], "0.0003", "0.0001"),
    "a cosine's length": (cosine(3e-4), cosine(3e-4, 50), [f"{SCHEDULE}/decay_steps"], "100.0", "50.0"),
    "a weight decay": (decay(0.1), decay(0.2), [f"optimizer/{place}/weight_decay" for place in DECAY], "0.1", "0.2"),
    "a clipping norm": (
        chain(clip(0.5), lambda: optax.sgd(0.1)),
        chain(clip(1.0), lambda: optax.sgd(0.1)),
        ["optimizer/tx/update/update_fns/0/tx/1/max_norm"],
        "0.5",
        "1.0",
    ),
}


@pytest.mark.parametrize("case", READABLE)
def test_a_number_in_a_closure_is_told_and_may_be_accepted(case: str, tmp_path: Path):
    old, new, keys, saved, found = READABLE[case]
    assert refusal(tmp_path / "run", old) is None
    assert refusal(tmp_path / "run", old) is None  # built again, it is the same

    refused = refusal(tmp_path / "run", new)

    assert refused is not None
    assert [(finding.key, finding.saved, finding.found) for finding in refused.findings] == [
        (key, saved, found) for key in keys
    ]
    assert [finding.acceptance for finding in refused.findings] == [f"{key}={saved}:{found}" for key in keys]
    assert refusal(tmp_path / "run", new, accept=[f"{key}={saved}:{saved}" for key in keys]) is not None
    assert refusal(tmp_path / "run", new, accept=[f"{key}={saved}:{found}" for key in keys]) is None


def test_a_schedule_follows_from_the_rate_that_the_configuration_names(tmp_path: Path):
    def attempt(rate: float, **options: Any) -> perdure.ContractError | None:
        return refusal(tmp_path / "run", cosine(rate), config={"lr": rate}, **options)

    attempt(3e-4)
    refused = attempt(1e-4)

    assert refused is not None
    assert [(finding.key, finding.follows) for finding in refused.findings] == [
        ("algorithm.lr", None),
        (f"{SCHEDULE}/init_value", "algorithm.lr"),
    ]
    assert attempt(1e-4, accept={"algorithm.lr": (3e-4, 1e-4)}) is None


def test_another_order_of_a_chain_is_another_optimizer(tmp_path: Path):
    """Both orders have the same state: only the functions tell them apart."""
    orders = [(optax.sgd(0.1), optax.clip(1.0)), (optax.clip(1.0), optax.sgd(0.1))]
    makes: list[Make] = [lambda parts=parts: optax.chain(*parts) for parts in orders]
    assert refusal(tmp_path / "run", makes[0]) is None

    refused = refusal(tmp_path / "run", makes[1])

    assert refused is not None
    assert {finding.section for finding in refused.findings} >= {"algorithm"}
    assert refusal(tmp_path / "run", makes[0]) is None


SCHEDULES: list[Make] = [
    lambda: optax.sgd(lambda count: 0.1 / (count + 1)),
    lambda: optax.sgd(lambda count: 0.1 / (count + 2)),
]
"""Two lambdas of one qualified name that bind nothing: only what they compute tells them apart."""


def test_a_lambda_with_another_body_is_told_by_its_trace(tmp_path: Path):
    assert refusal(tmp_path / "run", SCHEDULES[0]) is None
    assert refusal(tmp_path / "run", SCHEDULES[0]) is None

    refused = refusal(tmp_path / "run", SCHEDULES[1])

    assert refused is not None
    [finding] = refused.findings
    assert finding.key == "optimizer/tx/traced"
    assert finding.saved.endswith(f" under jax {jax_optimizers.jax.__version__}")
    assert finding.saved != finding.found
    assert refusal(tmp_path / "run", SCHEDULES[1], accept=[str(finding.acceptance)]) is None


@pytest.fixture
def under_another_jax(monkeypatch: pytest.MonkeyPatch):
    """Traces made from here on bear another version of JAX."""

    def change() -> None:
        monkeypatch.setattr(jax_optimizers.jax, "__version__", "0.99")
        jax_optimizers.trace.cache_clear()

    yield change
    jax_optimizers.trace.cache_clear()


def test_a_trace_of_another_version_of_jax_does_not_decide(tmp_path: Path, under_another_jax: Callable[[], None]):
    assert refusal(tmp_path / "run", SCHEDULES[0]) is None
    assert refusal(tmp_path / "run", SCHEDULES[1]) is not None

    under_another_jax()

    assert refusal(tmp_path / "run", SCHEDULES[1]) is None
    # But what can be read decides under every version.
    assert refusal(tmp_path / "other", linear()) is None
    assert refusal(tmp_path / "other", linear(end=1.0)) is not None


def test_what_only_a_function_s_code_holds_is_told_by_the_trace(tmp_path: Path):
    def make(rate: float) -> Make:
        first, second = (lambda count: jnp.float32(0.1) + 0 * count), (lambda count: jnp.float32(0.2) + 0 * count)
        return lambda: optax.sgd(first if rate == 0.1 else second)

    assert refusal(tmp_path / "run", make(0.1)) is None

    refused = refusal(tmp_path / "run", make(0.2))

    assert refused is not None
    assert [finding.key for finding in refused.findings] == ["optimizer/tx/traced"]
