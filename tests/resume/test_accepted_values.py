"""An accepted learning rate is the one that is used afterwards: in the optimizer, and in every copy the state holds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import perdure
from perdure.runs.lineage import read_lineage

pytestmark = pytest.mark.jax

OLD, NEW = 3e-3, 1e-3
ACCEPT = {"algorithm.lr": (OLD, NEW)}


class Adaptive(nnx.Module):
    """A weight, and a rate that the training adapts: kept as a plain attribute, as people do."""

    def __init__(self, rate: float) -> None:
        self.w = nnx.Param(jnp.arange(3.0))
        self.rate = rate
        self.decay = OLD  # the same number by chance


Loop = Callable[[perdure.Run | None, float, int, Any], Any]


def gradient(w: Any) -> Any:
    return 2.0 * w + 1.0


def optimizer_loop(make: Callable[[float], Any]) -> Loop:
    """`nnx.Optimizer` on a module; the state is handed on in `state` where there is no run."""

    def loop(run: perdure.Run | None, lr: float, updates: int, state: Any) -> Any:
        net = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(net, make(lr), wrt=nnx.Param)
        if run is not None:
            run.restore(net=net, optimizer=optimizer)
        elif state is not None:
            nnx.update(net, state[0])
            _keep_rate(optimizer, state[1])
        for _ in range(updates):
            optimizer.update(net, jax.tree.map(gradient, nnx.state(net, nnx.Param)))
            if run is not None:
                run.boundary(env_steps=run.env_steps + 1)
        return nnx.state(net), nnx.state(optimizer)

    return loop


def adapted_injection_loop(run: perdure.Run | None, lr: float, updates: int, state: Any) -> Any:
    """The injected rate is adapted after each update, as a KL target does it: the checkpoint holds another than OLD."""
    net = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.inject_hyperparams(optax.adam)(lr), wrt=nnx.Param)
    if run is not None:
        run.restore(net=net, optimizer=optimizer)
    elif state is not None:
        nnx.update(net, state[0])
        _keep_rate(optimizer, state[1])
    for _ in range(updates):
        optimizer.update(net, jax.tree.map(gradient, nnx.state(net, nnx.Param)))
        rate = optimizer.opt_state.hyperparams["learning_rate"]
        rate[...] = rate[...] * 1.5
        if run is not None:
            run.boundary(env_steps=run.env_steps + 1)
    return nnx.state(net), nnx.state(optimizer)


def _keep_rate(optimizer: Any, state: Any) -> None:
    """Takes over an optimizer's state but for the injected rate, which stays the new one."""
    fresh = nnx.state(optimizer)
    flat = dict(nnx.to_flat_state(state))
    for path, variable in nnx.to_flat_state(fresh):
        if path[-1] == "learning_rate":
            flat[path] = variable
    nnx.update(optimizer, nnx.from_flat_state(flat))


def attribute_loop(run: perdure.Run | None, lr: float, updates: int, state: Any) -> Any:
    """The rate is an attribute of the module, and adapted after each update."""
    net = Adaptive(lr)
    if run is not None:
        run.restore(net=net)
    elif state is not None:
        net.w[...] = state[0]
    for _ in range(updates):
        net.w[...] = net.w[...] - net.rate * gradient(net.w[...])
        net.rate *= 1.5
        if run is not None:
            run.boundary(env_steps=run.env_steps + 1)
    return net.w[...], net.decay


def value_loop(kind: Callable[[float], Any]) -> Loop:
    """The rate is a value that the script hands in, and adapted after each update."""

    def loop(run: perdure.Run | None, lr: float, updates: int, state: Any) -> Any:
        w, rate = np.arange(3.0), kind(lr)
        if run is not None:
            restored = run.restore(w=w, rate=rate)
            w, rate = restored.w, restored.rate
        elif state is not None:
            (w,) = state
        for _ in range(updates):
            w = np.asarray(w - np.float64(rate) * gradient(w))
            rate = kind(np.float64(rate) * 1.5)
            if run is not None:
                run.boundary(env_steps=run.env_steps + 1, w=w, rate=rate)
        return (w,)

    return loop


def momentum_sgd(learning_rate: float) -> Any:
    return optax.sgd(learning_rate, momentum=0.9)


LOOPS: dict[str, Loop] = {
    "adam": optimizer_loop(optax.adam),
    "adam with an injected rate": optimizer_loop(optax.inject_hyperparams(optax.adam)),
    "sgd with momentum and an injected rate": optimizer_loop(optax.inject_hyperparams(momentum_sgd)),
    "adam with an injected rate that is adapted": adapted_injection_loop,
    "an adapted attribute": attribute_loop,
    "a value": value_loop(float),
    "a float32 array": value_loop(lambda value: np.asarray(value, np.float32)),
    "an array with a rate for each member": value_loop(lambda value: np.full(3, value, np.float32)),
    "a float32 JAX array": value_loop(jnp.float32),
}


def run_of(path: Path, lr: float, **options: Any) -> perdure.Run:
    return perdure.Run(path, config={"lr": lr}, every=perdure.Every(updates=1), **options)


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", LOOPS)
def test_the_accepted_rate_is_used_from_there_on(name: str, tmp_path: Path):
    loop = LOOPS[name]
    with run_of(tmp_path / "run", OLD) as run:
        loop(run, OLD, 2, None)

    with run_of(tmp_path / "run", NEW, accept=ACCEPT, reason="it oscillates") as run:
        accepted = loop(run, NEW, 2, None)

    by_hand = loop(None, NEW, 2, loop(None, OLD, 2, None))
    assert bits(accepted) == bits(by_hand)
    assert bits(accepted[0]) != bits(loop(None, OLD, 4, None)[0])  # the parameters themselves are others
    assert bits(accepted[0]) != bits(loop(None, NEW, 4, None)[0])
    with run_of(tmp_path / "run", NEW) as run:  # and the next resume needs to accept nothing
        loop(run, NEW, 0, None)
        assert run.amended[0] == f"algorithm.lr={OLD}:{NEW}"


def adam_by_hand(w: np.ndarray, rates: Sequence[float]) -> np.ndarray:
    """Adam's formula in float64, for updates with these rates; its moments go on from one rate to the next."""
    mu, nu = np.zeros_like(w), np.zeros_like(w)
    for count, rate in enumerate(rates, start=1):
        g = gradient(w)
        mu, nu = 0.9 * mu + 0.1 * g, 0.999 * nu + 0.001 * g**2
        w = w - rate * (mu / (1 - 0.9**count)) / (np.sqrt(nu / (1 - 0.999**count)) + 1e-8)
    return w


@pytest.mark.parametrize("make", [optax.adam, optax.inject_hyperparams(optax.adam)], ids=["bound", "injected"])
def test_the_numbers_are_those_of_adam_s_formula(make: Callable[[float], Any], tmp_path: Path):
    """The reference shares no line with perdure or optax; float32 against float64, hence a tolerance."""
    loop = optimizer_loop(make)
    start = np.asarray(nnx.Linear(2, 1, rngs=nnx.Rngs(0)).kernel[...], np.float64)
    with run_of(tmp_path / "run", OLD) as run:
        loop(run, OLD, 2, None)
    with run_of(tmp_path / "run", NEW, accept=ACCEPT) as run:
        kernel = np.asarray(loop(run, NEW, 2, None)[0]["kernel"][...], np.float64)

    assert kernel == pytest.approx(adam_by_hand(start, [OLD, OLD, NEW, NEW]), abs=1e-6)
    assert kernel != pytest.approx(adam_by_hand(start, [OLD] * 4), abs=1e-4)


@pytest.mark.parametrize("name", LOOPS)
def test_without_the_acceptance_nothing_is_used(name: str, tmp_path: Path):
    with run_of(tmp_path / "run", OLD) as run:
        LOOPS[name](run, OLD, 1, None)

    with pytest.raises(perdure.ContractError, match=rf"algorithm\.lr: {OLD} in the run, {NEW} here\."):
        LOOPS[name](run_of(tmp_path / "run", NEW), NEW, 1, None)


def test_a_resume_that_got_no_further_need_not_be_given_it_again(tmp_path: Path):
    """The acceptance holds for that very checkpoint; so does going back to the old value."""
    with run_of(tmp_path / "run", OLD) as run:
        attribute_loop(run, OLD, 2, None)
    with run_of(tmp_path / "run", NEW, accept=ACCEPT) as run:
        attribute_loop(run, NEW, 0, None)  # stopped before the next commit

    with run_of(tmp_path / "run", NEW) as run:
        again = attribute_loop(run, NEW, 2, None)

    assert bits(again) == bits(attribute_loop(None, NEW, 2, attribute_loop(None, OLD, 2, None)))
    assert perdure.read(newest(tmp_path / "run"))["net"]["decay"] == OLD


def test_going_back_to_the_old_value_from_that_checkpoint_needs_no_acceptance(tmp_path: Path):
    with run_of(tmp_path / "run", OLD) as run:
        attribute_loop(run, OLD, 2, None)
    with run_of(tmp_path / "run", NEW, accept=ACCEPT) as run:
        attribute_loop(run, NEW, 0, None)

    with run_of(tmp_path / "run", OLD) as run:
        back = attribute_loop(run, OLD, 2, None)
        assert run.amended == ()

    assert bits(back) == bits(attribute_loop(None, OLD, 4, None))


def test_an_acceptance_for_one_checkpoint_is_none_for_the_next(tmp_path: Path):
    with run_of(tmp_path / "run", OLD) as run:
        attribute_loop(run, OLD, 2, None)
    with run_of(tmp_path / "run", NEW, accept=ACCEPT) as run:
        attribute_loop(run, NEW, 0, None)
    with run_of(tmp_path / "run", OLD) as run:
        attribute_loop(run, OLD, 1, None)

    with pytest.raises(perdure.ContractError, match=r"algorithm\.lr"):
        attribute_loop(run_of(tmp_path / "run", NEW), NEW, 1, None)


def test_the_lineage_keeps_what_was_accepted_when_and_why(tmp_path: Path):
    with run_of(tmp_path / "run", OLD) as run:
        attribute_loop(run, OLD, 2, None)
    with run_of(tmp_path / "run", NEW, accept=ACCEPT, reason="it oscillates") as run:
        attribute_loop(run, NEW, 1, None)
        notices = run.notices

    [event] = [event for event in read_lineage(tmp_path / "run" / "lineage.jsonl") if event["event"] == "resumed"]
    assert event["accepted"] == [
        {"text": f"algorithm.lr={OLD}:{NEW}"},
        {"text": f"net/rate={OLD}:{NEW}", "implied_by": "algorithm.lr"},
    ]
    assert (event["reason"], event["amended_leaves"]) == ("it oscillates", ["net/rate"])
    assert event["at"].startswith("20")
    assert notices == [
        f"accepted: algorithm.lr={OLD}:{NEW}.",
        f"accepted: net/rate={OLD}:{NEW}, as algorithm.lr was.",
        "accepted values were put into the state at net/rate.",
    ]


def test_numbers_that_start_otherwise_and_are_no_copies_are_told_and_stay(tmp_path: Path):
    def go(lr: float, **options: Any) -> perdure.Run:
        with run_of(tmp_path / "run", lr, **options) as run:
            s = run.restore(half=lr / 2, minus=-lr, same=OLD, lr=lr, count=1)
            run.boundary(env_steps=run.env_steps + 1, half=s.half, minus=s.minus, same=s.same, lr=s.lr, count=2)
        return run

    go(OLD)
    run = go(NEW, accept=ACCEPT)

    assert run.notices == [
        f"accepted: algorithm.lr={OLD}:{NEW}.",
        "accepted values were put into the state at lr, minus.",
        "these start with another number than the run did, and keep the checkpoint's: half.",
    ]
    held = perdure.read(newest(tmp_path / "run"))
    assert {name: held[name] for name in ("half", "minus", "same", "lr", "count")} == {
        "half": OLD / 2,
        "minus": -NEW,
        "same": OLD,
        "lr": NEW,
        "count": 2,
    }


def test_what_is_accepted_of_a_module_is_used_though_no_configuration_names_it(tmp_path: Path):
    """A dropout rate that is a plain attribute: the path itself is the key."""

    def go(rate: float, **options: Any) -> nnx.Dropout:
        dropout = nnx.Dropout(rate, rngs=nnx.Rngs(0))
        with perdure.Run(tmp_path / "run", every=perdure.Every(updates=1), **options) as run:
            run.restore(dropout=dropout)
            run.boundary(env_steps=run.env_steps + 1)
        return dropout

    go(0.1)
    with pytest.raises(perdure.ContractError, match=r"dropout/rate: 0\.1 in the run, 0\.5 here\."):
        go(0.5)

    assert go(0.5, accept={"dropout/rate": (0.1, 0.5)}).rate == 0.5
    assert go(0.5).rate == 0.5


def test_an_acceptance_where_nothing_runs_yet_is_refused_and_creates_nothing(tmp_path: Path):
    with pytest.raises(perdure.UsageError, match=r"nothing to accept: there is no run yet"):
        attribute_loop(run_of(tmp_path / "new" / "run", NEW, accept=ACCEPT), NEW, 1, None)

    assert not (tmp_path / "new").exists()


def newest(run: Path) -> Path:
    return max((run / "checkpoints").iterdir())
