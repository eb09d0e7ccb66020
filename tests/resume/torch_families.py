"""PPO with PyTorch on every family of environments: tiny trainings, where they stop, and what their twins lose."""

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import wrappers
from tests.resume.torch_ppo import ForgetfulRun, stock

import perdure
from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Counters, capture
from perdure.checkpoint.restore import restore
from perdure.gym import LevelPool, Recorded, make_vec
from perdure.torch import PPOConfig, TrainResult, train

MAZES = Path(__file__).parents[1] / "data" / "mazes"
QUICK = PPOConfig(
    total_timesteps=6 * 2 * 8,
    seed=5,
    n_envs=2,
    n_steps=8,
    n_epochs=2,
    n_minibatches=2,
    learning_rate=1e-2,
    hidden_sizes=(8,),
)
LONG = replace(QUICK, total_timesteps=12 * 2 * 64, n_steps=64, hidden_sizes=(32, 32))
"""Of the slow tests: 600 env-steps and more after a resume."""

Make = Callable[[int], gymnasium.Env[Any, Any]]
"""An environment whose episodes last at most so many steps."""


def classic(env_id: str, limit: int) -> gymnasium.Env[Any, Any]:
    """Nothing around it but what `gymnasium.make` adds."""
    return gymnasium.make(env_id, max_episode_steps=limit)


def mujoco(env_id: str, limit: int) -> gymnasium.Env[Any, Any]:
    """Under both normalisers."""
    return wrappers.NormalizeReward(wrappers.NormalizeObservation(classic(env_id, limit)), gamma=0.99)


def box2d(env_id: str, limit: int) -> gymnasium.Env[Any, Any]:
    """By replay, under both normalisers, which are not replayed."""
    return wrappers.NormalizeReward(wrappers.NormalizeObservation(Recorded(classic(env_id, limit))), gamma=0.99)


def breakout(size: int, limit: int) -> gymnasium.Env[Any, Any]:
    """Atari's preprocessing and four stacked frames of `size` × `size`; sticky actions."""
    import ale_py

    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.25)
    env = wrappers.AtariPreprocessing(env, screen_size=size, noop_max=6, terminal_on_life_loss=True)
    return wrappers.FrameStackObservation(wrappers.TimeLimit(wrappers.ClipReward(env, -1.0, 1.0), limit), 4)


def maze(index: int, limit: int) -> gymnasium.Env[Any, Any]:
    """A MiniGrid whose every episode is played in the next level of a pool; each environment has its own stream."""
    from minigrid.wrappers import ImgObsWrapper
    from tests.resume.torch_mazes import Maze

    pool = LevelPool(sorted(MAZES.glob("*.txt")), mode="random", seed=2).for_env(index)
    return wrappers.FlattenObservation(ImgObsWrapper(Maze(pool, max_steps=limit)))


@dataclass(frozen=True)
class Family:
    """What is trained, and stopped after which boundaries."""

    makes: tuple[Make, Make]
    """The environments side by side."""
    options: dict[str, Any] = field(default_factory=dict)
    """How it differs from `QUICK` or `LONG`."""
    is_slow: bool = False
    """Whether only the slow tests train it, and for longer."""
    stops: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Boundaries after which a run is stopped."""

    @property
    def config(self) -> PPOConfig:
        """The options."""
        return replace(LONG if self.is_slow else QUICK, **self.options)

    def envs(self) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Episodes of the first are cut off where a rollout ends, so that its reset is pending at boundary 1."""
        steps = self.config.n_steps
        factories = [partial(make, limit) for make, limit in zip(self.makes, (steps, steps * 3 // 2), strict=True)]
        mode = self.config.autoreset.title().replace("-", "")
        return make_vec(factories, mode=self.config.vectorization, autoreset_mode=mode, copy=False)


def family(make: Callable[..., Any], *arguments: Any, **options: Any) -> Family:
    """Two environments of one kind; resets in the next step unless `options` of PPO say otherwise."""
    further = {name: options.pop(name) for name in ("is_slow", "stops") if name in options}
    one = partial(make, *arguments)
    return Family((one, one), {"autoreset": "next-step", **options}, **further)


HEAVY: dict[str, Any] = {"stops": (1, 4)}
SLOW: dict[str, Any] = {"is_slow": True, "stops": (1, 2, 5)}
SHORT: dict[str, Any] = {"n_steps": 16, "total_timesteps": 24 * 2 * 16}
"""Where episodes seldom last as long as a rollout of `LONG`."""
CARTPOLE = partial(family, classic, "CartPole-v1")

FAMILIES = {
    "cartpole-stock": family(stock, "CartPole-v1"),
    "pendulum-stock": family(stock, "Pendulum-v1", autoreset="same-step"),
    "half-cheetah": family(mujoco, "HalfCheetah-v5", **HEAVY),
    "breakout": family(breakout, 36, **HEAVY),
    "lunar-lander": family(box2d, "LunarLander-v3", **HEAVY),
    "minigrid": Family((partial(maze, 0), partial(maze, 1)), {"autoreset": "next-step"}, **HEAVY),
    "minigrid-async": Family((partial(maze, 0), partial(maze, 1)), {"vectorization": "async"}, **HEAVY),
    **{
        f"{vectorization}-{autoreset}": CARTPOLE(vectorization=vectorization, autoreset=autoreset)
        for vectorization in ("sync", "async")
        for autoreset in ("same-step", "next-step", "disabled")
    },
    "lstm-stock": family(stock, "CartPole-v1", lstm_size=5),
    "lstm-same-step": CARTPOLE(lstm_size=5, autoreset="same-step"),
    "lstm-async": CARTPOLE(lstm_size=5, vectorization="async"),
    "lstm-disabled": CARTPOLE(lstm_size=5, autoreset="disabled"),
    "half-cheetah-long": family(mujoco, "HalfCheetah-v5", autoreset="same-step", **SLOW),
    "humanoid": family(mujoco, "Humanoid-v5", is_slow=True, stops=(1, 4, 6)),
    "ant": family(mujoco, "Ant-v5", **SLOW),
    "breakout-84": family(breakout, 84, **SHORT, **SLOW),
    "lunar-lander-long": family(box2d, "LunarLander-v3", vectorization="async", **SLOW),
    "bipedal-walker": family(box2d, "BipedalWalker-v3", **SLOW),
    "minigrid-lstm": Family(
        (partial(maze, 0), partial(maze, 1)), {**SHORT, "autoreset": "next-step", "lstm_size": 16}, **SLOW
    ),
}
"""By name."""


def _layer(restored: Any, name: str) -> Any:
    """The wrapper of that class around the first environment."""
    env = restored.envs.envs[0]
    while type(env).__name__ != name:
        env = env.env
    return env


def _count(wrapper: str, statistics: str) -> Callable[[Any], None]:
    return lambda restored: setattr(getattr(_layer(restored, wrapper), statistics), "count", 1e-4)


def _zeroed(wrapper: str, queue: str) -> Callable[[Any], None]:
    def change(restored: Any) -> None:
        held = getattr(_layer(restored, wrapper), queue)
        held[-1] = np.zeros_like(held[-1])

    return change


def _engine(change: Callable[[Any], Any]) -> Callable[[Any], None]:
    return lambda restored: change(restored.envs.envs[0].unwrapped)


def _elapsed_steps(restored: Any) -> None:
    restored.envs.call("set_wrapper_attr", "_elapsed_steps", 0)


def _pending(restored: Any) -> None:
    """Whether a reset is pending stands in a worker, so that the state is taken, changed and put back."""
    snapshot = capture({"envs": restored.envs}, Resolver(), Counters()).snapshot
    component = snapshot.components["envs"]
    tree: Any = component.tree
    assert any(tree["pending"])
    lost = replace(component, tree={**tree, "pending": [False] * len(tree["pending"])})
    restore(replace(snapshot, components={"envs": lost}), {"envs": restored.envs}, Resolver(), "step")


def _stream(restored: Any) -> None:
    pool = restored.envs.envs[0].unwrapped.pool
    fresh = LevelPool(sorted(MAZES.glob("*.txt")), mode="random", seed=2).for_env(0)
    pool.load_state_dict(fresh.state_dict())


def _forward(engine: Any) -> None:
    """Positions as they follow from the state; rewards are told by those of a substep ago."""
    mujoco: Any = import_module("mujoco")  # its stubs lack the functions
    mujoco.mj_forward(engine.model, engine.data)


def _hull(engine: Any) -> None:
    engine.hull.linearVelocity = (0.0, 0.0)


LOST: dict[str, tuple[str, int, Callable[[Any], None]]] = {
    "stacked frames": ("cartpole-stock", 2, _zeroed("FrameStackObservation", "obs_queue")),
    "delayed observation": ("cartpole-stock", 2, _zeroed("DelayObservation", "observation_queue")),
    "count of observations": ("pendulum-stock", 2, _count("NormalizeObservation", "obs_rms")),
    "count of returns": ("half-cheetah", 4, _count("NormalizeReward", "return_rms")),
    "velocities": ("half-cheetah", 4, _engine(lambda engine: engine.data.qvel.fill(0))),
    "emulator": ("breakout", 4, _engine(lambda engine: engine.ale.reset_game())),
    "generator": ("lunar-lander", 4, _engine(lambda engine: setattr(engine, "np_random", np.random.default_rng(0)))),
    "stream of levels": ("minigrid", 1, _stream),
    "place in the maze": ("minigrid", 4, _engine(lambda engine: setattr(engine, "agent_dir", 3 - engine.agent_dir))),
    "sync-same-step": ("sync-same-step", 2, _elapsed_steps),
    "sync-next-step": ("sync-next-step", 1, _pending),
    "sync-disabled": ("sync-disabled", 2, _elapsed_steps),
    "async-same-step": ("async-same-step", 2, _elapsed_steps),
    "async-next-step": ("async-next-step", 1, _pending),
    "async-disabled": ("async-disabled", 2, _elapsed_steps),
    "lstm, elapsed steps": ("lstm-stock", 3, _elapsed_steps),
    "lstm, pending": ("lstm-async", 1, _pending),
    "positions of the humanoid a substep ago": ("humanoid", 1, _engine(_forward)),
    "warm start of the ant": ("ant", 2, _engine(lambda engine: engine.data.qacc_warmstart.fill(0))),
    "speed of the walker": ("bipedal-walker", 2, _engine(_hull)),
}
"""Twins: what is lost of the environments -> of which family, after which boundary, and how."""


def train_family(
    directory: Path, name: str, *, lose: str | None = None, kill_at_boundary: int | None = None
) -> TrainResult:
    """Trains, or goes on training, to the end; each boundary is saved.

    Args:
        directory: the run's directory.
        name: of `FAMILIES`.
        lose: of `LOST`, after a resume.
        kill_at_boundary: after the boundary of this number the process kills itself.
    """
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    config = FAMILIES[name].config
    saving = {"every": perdure.Every(updates=1), "keep": None, "background": kill_at_boundary is None}
    twin = {"reset": None if lose is None else LOST[lose][2], "kill_at_boundary": kill_at_boundary}
    with (
        closing(FAMILIES[name].envs()) as envs,
        ForgetfulRun(directory, config=config, horizon="total_timesteps", **saving, **twin) as run,
    ):
        return train(envs, config, run=run)
