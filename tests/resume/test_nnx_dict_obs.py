"""Dict observations, two value heads, an episode wrapper: exact at every boundary; what is lost is seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import perdure
from perdure.nnx import (
    Concat,
    Delay,
    Dense,
    EnvState,
    EpisodeWrapper,
    EvalConfig,
    Filter,
    LoggingLevel,
    Map,
    Normalizer,
    NormalTanhSampler,
    Parallel,
    PPOAdapter,
    PPOConfig,
    Scale,
    Sequential,
    StatefulModule,
    TrainConfig,
    train_ppo,
)
from perdure.nnx.environment import Environment, contract_of
from perdure.nnx.envs import TwoGoals
from perdure.nnx.networks.normalizer import NormalizerCounter, NormalizerM2, NormalizerMean

pytestmark = [pytest.mark.jax, pytest.mark.full]

UPDATES = 6
PPO = PPOConfig(
    n_envs=8,
    rollout_length=5,
    n_epochs=2,
    n_minibatches=2,
    learning_rate=1e-2,
    logging_level=LoggingLevel.LOSSES | LoggingLevel.TRAIN_ROLLOUT_STATS,
)
STEPS = PPO.steps_per_iteration
LIMIT = 13
"""Longer than a rollout, so that episodes, and the draws of their goals, reach over boundaries; reached by some."""


@dataclass(frozen=True)
class OneHandEach(TwoGoals):
    """Each of two agents moves along one axis and is paid by one of the rewards."""

    def step(self, state: EnvState, action: Any, /) -> EnvState:
        return super().step(state, jnp.concatenate([action["reach"], action["effort"]]))


def agents(rngs: nnx.Rngs, *, paired: bool) -> StatefulModule:
    """One agent for both components of the action, or one for each, under the names of the rewards."""
    if paired:
        return Parallel(**{name: Sequential([Dense(5, 2, rngs), NormalTanhSampler(rngs)]) for name in REWARDS})
    return Sequential([Dense(5, 4, rngs), NormalTanhSampler(rngs)])


REWARDS = ("reach", "effort")


def goals_of(obs: Any) -> Any:
    """Not a lambda in `network`: each network would have another, and compile the training step anew."""
    return obs["goals"]


def network(seed: int, *, paired: bool) -> StatefulModule:
    """A branch for each part of the observation; the position is also seen a step late."""
    rngs = nnx.Rngs(seed)
    seen = Concat(
        now=Scale(0.5),
        before=Delay(jnp.zeros(2), 1),
        goals=Dense(4, 1, rngs, activation=jnp.tanh),
    )
    return Sequential(
        [
            Map(position=Normalizer(2), goals=Normalizer(4)),
            Filter({"now": "position", "before": ("position",), "goals": goals_of}),
            seen,
            PPOAdapter(
                action=agents(rngs, paired=paired),
                value=Parallel({name: Dense(5, 1, rngs) for name in REWARDS}),
            ),
        ]
    )


def environment(*, paired: bool) -> Environment:
    kind = OneHandEach if paired else TwoGoals
    return EpisodeWrapper(kind(speed=0.1, goal_radius=0.6), LIMIT)


class Stop(Exception):
    """Raised by the log function, in place of a kill."""


class ForgetfulRun(perdure.Run):
    """Resets a part of what it restored, if it resumed."""

    forget: Callable[[Any, Any], None] | None = None

    def restore(self, *, env_steps: int = 0, **components: Any) -> SimpleNamespace:
        fresh = SimpleNamespace(**{name: copied(component) for name, component in components.items()})
        restored = super().restore(env_steps=env_steps, **components)
        if self.resumed and self.forget is not None:
            self.forget(restored, fresh)
        return restored


def copied(component: Any) -> Any:
    state = nnx.state(component) if isinstance(component, nnx.Pytree) else component
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, int) else jnp.copy(leaf), state)


def train(
    path: Path,
    *,
    paired: bool,
    seed: int = 0,
    stop_after: int | None = None,
    forget: Callable[[Any, Any], None] | None = None,
) -> None:
    """Train, or go on; `stop_after` that many boundaries, within the next update."""
    env = environment(paired=paired)
    ppo = dataclasses.replace(PPO, total_steps=UPDATES * STEPS, combine_advantages=not paired)
    settings = TrainConfig(ppo, EvalConfig(enabled=False), seed=3)

    def log(metrics: dict[str, Any], steps: int) -> None:
        assert np.isfinite(list(metrics.values())).all()
        if stop_after is not None and steps > stop_after * STEPS:
            raise Stop

    np.random.seed(0)  # part of a run's state, though the training draws nothing from it
    run = ForgetfulRun(
        path,
        config=settings,
        contract=contract_of(env),
        horizon="ppo.total_steps",
        schedules="none",
        every=perdure.Every(updates=1),
        keep=None,
    )
    run.forget = forget
    with run:
        train_ppo(env, network(seed, paired=paired), settings, log_fn=log, run=run)


@pytest.fixture(scope="module", params=[False, True], ids=["combined advantages", "a likelihood for each reward"])
def paired(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(scope="module")
def straight(paired: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("straight") / "run"
    train(path, paired=paired)
    return path


def differences(straight: Path, run: Path, comparing: ModuleType) -> list[str]:
    """Where the runs differ; the process's own generators are none of the training's."""
    assert comparing.checkpoints(run).keys() == comparing.checkpoints(straight).keys() == set(range(UPDATES + 1))
    return [line for line in comparing.differences(straight, run) if ": process_rng/" not in line]


@pytest.mark.parametrize("k", range(UPDATES))
def test_a_resume_at_every_boundary_equals_the_run_never_stopped(
    k: int, paired: bool, straight: Path, tmp_path: Path, comparing: ModuleType
):
    with pytest.raises(Stop):
        train(tmp_path / "run", paired=paired, stop_after=k)
    assert max(comparing.checkpoints(tmp_path / "run")) == k
    train(tmp_path / "run", paired=paired, seed=7)

    assert differences(straight, tmp_path / "run", comparing) == []


def test_the_training_reaches_what_its_twins_lose(straight: Path, comparing: ModuleType):
    """Carries, counts and goals are in mid-episode when they are saved."""
    opened = comparing.checkpoints(straight)
    counts = np.stack([each.snapshot.at(("env_states", "info", "step_counter")).value for each in opened.values()])

    assert counts.dtype == np.int32
    assert ((counts >= 0) & (counts < LIMIT)).all()
    assert len(set(counts[-1].tolist())) > 1, "the environments are not in step"
    assert opened[2].snapshot.at(("network_states", 2, "before", "buffer")).value.any()
    rows = perdure.Run(straight).metrics_rows()
    assert sum(row["rollout_batch/done_rate"] for row in rows) * STEPS >= 4
    assert sum(row["rollout_batch/reward/reach/mean"] for row in rows) > 0


def _variables(component: str, *filters: Any) -> Callable[[Any, Any], None]:
    def reset(restored: Any, fresh: Any) -> None:
        nnx.update(getattr(restored, component), nnx.filter_state(getattr(fresh, component), nnx.All(*filters)))

    return reset


def _under(*steps: str) -> Callable[[Any, Any], bool]:
    return lambda path, _value: set(steps) <= set(path)


def _value(name: str) -> Callable[[Any, Any], None]:
    return lambda restored, fresh: setattr(restored, name, getattr(fresh, name))


def _env(field: str, entry: str) -> Callable[[Any, Any], None]:
    def reset(restored: Any, fresh: Any) -> None:
        part = {**getattr(restored.env_states, field), entry: getattr(fresh.env_states, field)[entry]}
        restored.env_states = dataclasses.replace(restored.env_states, **{field: part})

    return reset


STATISTICS = nnx.Any(NormalizerMean, NormalizerM2, NormalizerCounter)
TWINS: dict[str, tuple[Callable[[Any, Any], None], str]] = {
    "parameters": (_variables("networks", nnx.Param), "networks/layers/2/components/goals/kernel"),
    "one value head": (
        _variables("networks", nnx.Param, _under("value", "effort")),
        "networks/layers/3/value/components/effort/kernel",
    ),
    "one normaliser": (
        _variables("networks", STATISTICS, _under("goals")),
        "networks/layers/0/components/goals/mean",
    ),
    "action streams": (_variables("networks", nnx.RngCount), "networks/layers/3/action"),
    "optimizer": (_variables("optimizer", ...), "optimizer/opt_state"),
    "carries": (_value("network_states"), "networks/layers/3"),
    "environments": (_value("env_states"), "env_states/data/position"),
    "environment keys": (_env("data", "key"), "env_states/data/key"),
    "one part of the observation": (_env("obs", "goals"), "networks/layers/0/components/goals/mean"),
    "step counter": (_env("info", "step_counter"), "env_states/info/step_counter"),
    "rng key": (_value("rng_key"), "rng_key"),
}
"""What is reset after a resume at boundary 3, and a path at which it must be found."""


@pytest.mark.parametrize("what", TWINS)
def test_twin_a_part_that_is_reset_is_found(
    what: str, paired: bool, straight: Path, tmp_path: Path, comparing: ModuleType
):
    forget, path = TWINS[what]
    with pytest.raises(Stop):
        train(tmp_path / "run", paired=paired, stop_after=3)
    train(tmp_path / "run", paired=paired, forget=forget)
    found = differences(straight, tmp_path / "run", comparing)

    assert comparing.starting_with(found, path), f"not found at {path}: {found[:10]}"
    assert [line for line in found if line.startswith(f"boundary {UPDATES}: networks/layers/3/")], "without consequence"
    assert not [line for line in found if line.startswith(tuple(f"boundary {k}: " for k in range(4)))]
