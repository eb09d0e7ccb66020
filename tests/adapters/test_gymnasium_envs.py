"""Gymnasium environments in mid-episode: restored into fresh ones, they go on bit for bit, across automatic resets."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import wrappers  # noqa: E402
from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402
from gymnasium.wrappers import vector as vector_wrappers  # noqa: E402
from tests.gym.stepping import exact  # noqa: E402

from perdure.adapters.resolve import Resolver  # noqa: E402
from perdure.checkpoint.capture import Counters, capture  # noqa: E402
from perdure.checkpoint.restore import restore  # noqa: E402
from perdure.contract.naming import name_of  # noqa: E402
from perdure.errors import ContractError, RestoreError  # noqa: E402

Make = Callable[[], Any]

AT = 37
"""Steps before the save: in mid-episode of most environments, after several episodes of the short ones."""
FURTHER = 200
EPISODE_LIMIT = 23


def limited(env_id: str, **options: Any) -> Make:
    return lambda: gymnasium.make(env_id, max_episode_steps=EPISODE_LIMIT, **options)


ENVIRONMENTS: dict[str, Make] = {
    env_id: limited(env_id)
    for env_id in (
        "CartPole-v1",
        "MountainCar-v0",
        "MountainCarContinuous-v0",
        "Pendulum-v1",
        "Acrobot-v1",
        "FrozenLake-v1",
        "Taxi-v4",
        "CliffWalking-v1",
        "Blackjack-v1",
    )
} | {
    "FrozenLake-v1 on 8x8": limited("FrozenLake-v1", map_name="8x8"),
    "Taxi-v4 in the rain": limited("Taxi-v4", is_rainy=True, fickle_passenger=True),
}


def _pendulum(*around: Callable[[Any], Any]) -> Make:
    def make() -> Any:
        env = limited("Pendulum-v1")()
        for wrap in around:
            env = wrap(env)
        return env

    return make


WRAPPED: dict[str, Make] = {
    "RecordEpisodeStatistics": _pendulum(wrappers.RecordEpisodeStatistics),
    "NormalizeObservation": _pendulum(wrappers.NormalizeObservation),
    "NormalizeReward": _pendulum(wrappers.NormalizeReward),
    "FrameStackObservation": _pendulum(lambda env: wrappers.FrameStackObservation(env, 3)),
    "DelayObservation": _pendulum(lambda env: wrappers.DelayObservation(env, 2)),
    "TimeAwareObservation": _pendulum(wrappers.TimeAwareObservation),
    "StickyAction": _pendulum(lambda env: wrappers.StickyAction(env, 0.3)),
    "MaxAndSkipObservation": _pendulum(wrappers.MaxAndSkipObservation),
    "FlattenObservation": lambda: wrappers.FlattenObservation(limited("Taxi-v4")()),
    "RescaleAction": _pendulum(lambda env: wrappers.RescaleAction(env, np.float32(-1), np.float32(1))),
    "ClipReward": _pendulum(lambda env: wrappers.ClipReward(env, -5.0, 0.0)),
    "TransformReward": _pendulum(lambda env: wrappers.TransformReward(env, lambda reward: 0.5 * float(reward))),
    "Autoreset": _pendulum(wrappers.Autoreset),
    "all in a row": _pendulum(
        wrappers.RecordEpisodeStatistics,
        wrappers.ClipAction,
        wrappers.NormalizeObservation,
        lambda env: wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space),
        lambda env: wrappers.FrameStackObservation(env, 2),
        lambda env: wrappers.NormalizeReward(env, gamma=0.9),
    ),
}


def vector(make: Make, mode: AutoresetMode, count: int = 3) -> Any:
    return SyncVectorEnv([make] * count, autoreset_mode=mode)


VECTORS: dict[str, Make] = {
    "NEXT_STEP": lambda: vector(ENVIRONMENTS["CartPole-v1"], AutoresetMode.NEXT_STEP),
    "SAME_STEP": lambda: vector(ENVIRONMENTS["CartPole-v1"], AutoresetMode.SAME_STEP),
    "without copies": lambda: SyncVectorEnv([ENVIRONMENTS["Pendulum-v1"]] * 2, copy=False),
    "tuples": lambda: vector(ENVIRONMENTS["Blackjack-v1"], AutoresetMode.SAME_STEP),
    "wrapped inside": lambda: vector(WRAPPED["all in a row"], AutoresetMode.SAME_STEP),
    "RecordEpisodeStatistics": lambda: vector_wrappers.RecordEpisodeStatistics(
        vector(ENVIRONMENTS["CartPole-v1"], AutoresetMode.SAME_STEP)
    ),
    "NormalizeObservation": lambda: vector_wrappers.NormalizeObservation(
        vector(ENVIRONMENTS["CartPole-v1"], AutoresetMode.NEXT_STEP)
    ),
    "NormalizeReward": lambda: vector_wrappers.NormalizeReward(
        vector(ENVIRONMENTS["Pendulum-v1"], AutoresetMode.NEXT_STEP)
    ),
    "FlattenObservation": lambda: vector_wrappers.FlattenObservation(
        vector(ENVIRONMENTS["Taxi-v4"], AutoresetMode.NEXT_STEP)
    ),
    "CartPoleVectorEnv": lambda: gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point"),
}


def walk(env: Any, steps: int, seed: int) -> list[Any]:
    """What happens on `steps` steps of drawn actions; a single environment is reset where an episode ends."""
    actions, rows = np.random.default_rng(seed), []
    is_vector = isinstance(env, gymnasium.vector.VectorEnv)
    spaces = env.action_space if is_vector else None
    for _ in range(steps):
        row = env.step(_drawn(spaces or env.action_space, actions))
        rows.append(exact(row))
        if not is_vector and (row[2] or row[3]) and not isinstance(env, wrappers.Autoreset):
            rows.append(exact(env.reset()))
    return rows


def _drawn(space: Any, generator: np.random.Generator) -> Any:
    if hasattr(space, "nvec"):
        return generator.integers(space.nvec)
    if hasattr(space, "n"):
        return int(generator.integers(space.n))
    return generator.uniform(np.maximum(space.low, -3), np.minimum(space.high, 3)).astype(space.dtype)


def in_mid_episode(make: Make, steps: int = AT) -> Any:
    env = make()
    env.reset(seed=11)
    walk(env, steps, seed=1)
    return env


def with_another_past(make: Make) -> Any:
    env = make()
    env.reset(seed=99)
    walk(env, 8, seed=2)
    return env


ALL = (
    [pytest.param(make, id=name) for name, make in ENVIRONMENTS.items()]
    + [pytest.param(make, id=name) for name, make in WRAPPED.items()]
    + [pytest.param(make, id=f"vector {name}") for name, make in VECTORS.items()]
)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("target", [lambda make: make(), with_another_past], ids=["fresh", "used"])
def test_a_restored_environment_goes_on_bit_for_bit(trip, make: Make, target: Callable[[Make], Any]):
    source, restored = in_mid_episode(make), target(make)

    assert trip.restored(source, restored) is restored

    expected = walk(source, FURTHER, seed=3)
    assert walk(restored, FURTHER, seed=3) == expected


@pytest.mark.parametrize("make", ALL)
def test_capturing_draws_nothing_and_changes_nothing(trip, make: Make):
    captured, left_alone = in_mid_episode(make), in_mid_episode(make)

    assert trip.digest(captured) == trip.digest(captured)

    assert walk(captured, 50, seed=4) == walk(left_alone, 50, seed=4)


@pytest.mark.parametrize("steps", [0, 1, EPISODE_LIMIT - 1, EPISODE_LIMIT, EPISODE_LIMIT + 1])
@pytest.mark.parametrize("name", ["NEXT_STEP", "SAME_STEP"])
def test_the_ends_of_episodes_are_no_exception(trip, name: str, steps: int):
    """A pending reset of NEXT_STEP is state of the vector environment alone."""
    source = in_mid_episode(VECTORS[name], steps)
    restored = trip.restored(source, VECTORS[name]())

    assert walk(restored, FURTHER, seed=3) == walk(source, FURTHER, seed=3)


def test_the_adapters_of_gymnasium_s_classes(trip):
    env = WRAPPED["NormalizeObservation"]()
    objects = [VECTORS["NEXT_STEP"](), env, env.unwrapped, env.action_space, env.obs_rms]

    assert [trip.component(obj).adapter for obj in objects] == [
        *["gymnasium-env"] * 3,
        "gymnasium-space",
        "gymnasium-running-statistics",
    ]


@pytest.mark.full
@pytest.mark.parametrize("make", [*ENVIRONMENTS.values(), WRAPPED["all in a row"]], ids=[*ENVIRONMENTS, "all in a row"])
def test_every_instant_is_as_good_as_another(trip, make: Make):
    """One lucky instant proves nothing: each of forty, restored into an environment with another past."""
    for steps in range(40):
        source, restored = in_mid_episode(make, steps), with_another_past(make)
        trip.restored(source, restored)

        assert walk(restored, 30, seed=3) == walk(source, 30, seed=3), f"after {steps} steps"


def test_an_environment_that_was_never_reset_comes_back_as_that(trip):
    make = ENVIRONMENTS["CartPole-v1"]

    restored = trip.restored(make(), make())

    assert restored.unwrapped._np_random is None
    assert restored.env.env.checked_reset is False


def test_action_spaces_go_on_sampling(trip):
    source, target = VECTORS["SAME_STEP"](), VECTORS["SAME_STEP"]()
    source.action_space.seed(5)
    source.single_action_space.seed(6)
    source.action_space.sample()

    trip.restored(source, target)

    assert [target.action_space.sample().tolist() for _ in range(9)] == [
        source.action_space.sample().tolist() for _ in range(9)
    ]
    assert [target.envs[0].action_space.sample() for _ in range(9)] == [
        source.envs[0].action_space.sample() for _ in range(9)
    ]


def test_spaces_that_belong_to_the_class_are_part_of_the_environment(trip):
    source, target = Custom(), Custom()
    source.action_space.seed(1)
    snapshot = trip.saved(source)
    expected = [source.action_space.sample() for _ in range(20)]

    restore(snapshot, {"c": target}, Resolver(), "step")

    assert "action_space" not in vars(target)
    assert [target.action_space.sample() for _ in range(20)] == expected


def test_real_time_starts_anew_and_no_digest_depends_on_it(trip):
    make = WRAPPED["RecordEpisodeStatistics"]
    source, target = in_mid_episode(make, 50), make()
    before = trip.digest(source)
    source.episode_start_time -= 1000.0
    source.time_queue.append(7.0)

    assert trip.digest(source) == before
    trip.restored(source, target)

    assert target.return_queue == source.return_queue
    assert (target.episode_count, target.episode_lengths) == (source.episode_count, source.episode_lengths)
    assert (len(target.time_queue), target.episode_start_time > source.episode_start_time + 999) == (0, True)


class Failing:
    """Restored after the environment, and cannot be the first time."""

    def __init__(self) -> None:
        self.fails = True

    def state_dict(self) -> dict[str, Any]:
        return {"x": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.fails:
            self.fails = False
            raise OSError("no")


@pytest.mark.parametrize("target", [lambda make: make(), with_another_past], ids=["fresh", "used"])
def test_an_environment_is_put_back_as_it_was_if_another_object_cannot_be_restored(trip, target: Callable[[Make], Any]):
    """Also attributes that it did not have, and generators that it had not made yet."""
    make = VECTORS["wrapped inside"]
    snapshot = capture({"c": in_mid_episode(make), "z": Failing()}, Resolver(), Counters()).snapshot
    restored = target(make)
    before, attributes = trip.digest(restored), sorted(vars(restored.envs[0].unwrapped))

    with pytest.raises(RestoreError, match="The state from before has been put back"):
        restore(snapshot, {"c": restored, "z": Failing()}, Resolver(), "step")

    assert (trip.digest(restored), sorted(vars(restored.envs[0].unwrapped))) == (before, attributes)


def test_an_observation_that_is_the_environment_s_own_buffer_comes_back_as_that(trip):
    source, target = in_mid_episode(VECTORS["without copies"]), VECTORS["without copies"]()

    envs, observation = trip.restored([source, source._observations], [target, target._observations])

    assert envs is target
    assert observation is envs._observations


def _set(name: str, value: Any) -> Callable[[Any], None]:
    return lambda env: setattr(env, name, value)


def _reset_generator(env: Any) -> None:
    env.unwrapped.np_random = np.random.default_rng(0)


def _of_first(change: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda envs: change(envs.unwrapped.envs[0])


TWINS: dict[str, tuple[Make, Callable[[Any], None]]] = {
    "generator": (ENVIRONMENTS["FrozenLake-v1"], _reset_generator),
    "generator after the reset": (ENVIRONMENTS["CartPole-v1"], _reset_generator),
    "elapsed steps": (ENVIRONMENTS["Pendulum-v1"], _set("_elapsed_steps", 0)),
    "state": (ENVIRONMENTS["CartPole-v1"], lambda env: _set("state", np.zeros(4))(env.unwrapped)),
    "last bit of the state": (
        ENVIRONMENTS["Pendulum-v1"],
        lambda env: _set("state", np.nextafter(env.unwrapped.state, 9))(env.unwrapped),
    ),
    "s": (ENVIRONMENTS["Taxi-v4"], lambda env: _set("s", 0)(env.unwrapped)),
    "player": (ENVIRONMENTS["Blackjack-v1"], lambda env: _set("player", [10, 10])(env.unwrapped)),
    "beyond terminated": (
        ENVIRONMENTS["CartPole-v1"],
        lambda env: _set("steps_beyond_terminated", 3)(env.unwrapped),
    ),
    "returns": (WRAPPED["RecordEpisodeStatistics"], _set("episode_returns", 0.0)),
    "lengths": (WRAPPED["RecordEpisodeStatistics"], _set("episode_lengths", 0)),
    "queues": (WRAPPED["RecordEpisodeStatistics"], lambda env: env.return_queue.clear()),
    "mean": (WRAPPED["NormalizeObservation"], lambda env: _set("mean", 0 * env.obs_rms.mean)(env.obs_rms)),
    "count": (WRAPPED["NormalizeObservation"], lambda env: _set("count", 1e-4)(env.obs_rms)),
    "frozen statistics": (WRAPPED["NormalizeObservation"], _set("update_running_mean", False)),
    "return variance": (WRAPPED["NormalizeReward"], lambda env: _set("var", np.ones(()))(env.return_rms)),
    "discounted reward": (WRAPPED["NormalizeReward"], _set("discounted_reward", np.array([0.0]))),
    "frames": (WRAPPED["FrameStackObservation"], lambda env: env.obs_queue.rotate(1)),
    "delayed observations": (WRAPPED["DelayObservation"], lambda env: env.observation_queue.rotate(1)),
    "time": (WRAPPED["TimeAwareObservation"], _set("timesteps", 0)),
    "sticky action": (WRAPPED["StickyAction"], _set("last_action", np.ones(1, np.float32))),
    "pending reset": (VECTORS["NEXT_STEP"], lambda envs: envs._autoreset_envs.fill(True)),
    "generator of one": (VECTORS["SAME_STEP"], _of_first(_reset_generator)),
    "elapsed steps of one": (VECTORS["SAME_STEP"], _of_first(_set("_elapsed_steps", 0))),
    "previous ends": (VECTORS["RecordEpisodeStatistics"], lambda envs: envs.prev_dones.fill(True)),
    "accumulated reward": (VECTORS["NormalizeReward"], lambda envs: envs.accumulated_reward.fill(0.0)),
}
"""What is reset after a restore; the comparison of the next steps must find it."""

SEEN_BY_DIGEST_ALONE = {"beyond terminated", "queues"}
"""What no step of this test looks at: counters of past episodes."""


@pytest.mark.parametrize("name", TWINS)
def test_twin_a_part_that_is_reset_after_the_restore_is_found(trip, name: str):
    make, change = TWINS[name]
    source = in_mid_episode(make)
    restored = trip.restored(source, make())
    change(restored)

    assert trip.digest(restored) != trip.digest(source)
    if name not in SEEN_BY_DIGEST_ALONE:
        assert walk(restored, FURTHER, seed=3) != walk(source, FURTHER, seed=3)


def test_another_order_of_wrappers_is_a_finding_at_its_place(trip):
    source = wrappers.NormalizeReward(wrappers.NormalizeObservation(gymnasium.make("Pendulum-v1")))
    target = wrappers.NormalizeObservation(wrappers.NormalizeReward(gymnasium.make("Pendulum-v1")))

    assert trip.findings(source, target) == [
        ("c", "class gymnasium:NormalizeReward", "class gymnasium:NormalizeObservation")
    ]


def test_a_missing_wrapper_in_one_of_several_environments_is_named(trip):
    make = ENVIRONMENTS["CartPole-v1"]
    source = SyncVectorEnv([make, lambda: wrappers.RecordEpisodeStatistics(make())])

    refusal = trip.refusal(source, SyncVectorEnv([make, make]))

    assert "c/envs/1: class gymnasium:RecordEpisodeStatistics in the run, class gymnasium:TimeLimit here." in str(
        refusal
    )
    assert "the same classes and wrappers, in the same order" in str(refusal)


def test_another_number_of_environments_is_a_finding(trip):
    make = ENVIRONMENTS["CartPole-v1"]

    found = trip.findings(vector(make, AutoresetMode.SAME_STEP, 3), vector(make, AutoresetMode.SAME_STEP, 2))

    assert ("c/envs", "list of 3", "list of 2") in found


@pytest.mark.parametrize(
    ("source", "target", "finding"),
    [
        (
            lambda: gymnasium.make("Pendulum-v1", g=9.81),
            lambda: gymnasium.make("Pendulum-v1", g=1.62),
            ("c/env/env/env/spec/arguments/g", "9.81", "1.62"),
        ),
        (
            lambda: gymnasium.make("CartPole-v1"),
            lambda: gymnasium.make("CartPole-v0"),
            ("c/env/env/env/spec", "CartPole-v1", "CartPole-v0"),
        ),
        (
            limited("CartPole-v1"),
            lambda: gymnasium.make("CartPole-v1"),
            ("c/arguments/max_episode_steps", str(EPISODE_LIMIT), "500"),
        ),
        (
            _pendulum(lambda env: wrappers.NormalizeReward(env, gamma=0.9)),
            _pendulum(lambda env: wrappers.NormalizeReward(env, gamma=0.99)),
            ("c/arguments/gamma", "0.9", "0.99"),
        ),
    ],
    ids=["argument", "id", "limit", "gamma"],
)
@pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date")
def test_an_environment_that_was_built_otherwise_is_a_finding(trip, source: Make, target: Make, finding: Any):
    assert finding in trip.findings(source(), target())


def test_another_map_is_a_finding_though_its_table_is_not_saved(trip):
    make = ENVIRONMENTS["FrozenLake-v1"]
    other = make()
    other.unwrapped.P[0][0] = [(1.0, 3, 0.0, False)]

    found = trip.findings(make(), other)

    assert [place for place, _, _ in found] == ["c/env/env/env/P"]
    assert "P" not in trip.tree(make())["env"]["env"]["env"]


def test_the_version_of_gymnasium_is_a_fact(trip):
    assert trip.component(ENVIRONMENTS["CartPole-v1"]()).facts["gymnasium"] == gymnasium.__version__


def Opaque() -> Any:
    """An object that is written in C, as engines are."""
    return threading.Lock()


class Custom(gymnasium.Env):
    """A user's environment, whose attributes are what a test makes of them."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)


def test_a_users_environment_of_plain_data_needs_nothing(trip):
    source, target = Custom(grid=np.eye(3), pieces=[{"at": (1, 2)}], best=None), Custom(grid=None, pieces=[], best=3.5)

    trip.restored(source, target)

    assert (target.grid.tolist(), target.pieces, target.best) == (np.eye(3).tolist(), [{"at": (1, 2)}], None)


class Moving(Custom):
    """Keeps its own method as an attribute."""

    def __init__(self, at: int) -> None:
        self.at, self.move = at, self.forward

    def forward(self) -> None:
        self.at += 1


def test_methods_of_the_environment_itself_stay_bound_to_it(trip):
    target = Moving(0)

    trip.restored(Moving(5), target)
    target.move()

    assert target.at == 6


def _closure_over(value: Any) -> Callable[[], Any]:
    return lambda: value


class Slotted(Custom):
    __slots__ = ("hidden",)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Custom(engine=Opaque()),
            r"c/engine: no adapter knows a _thread\.lock.*state would be missing.*perdure\.gym\.Recorded\(env\)",
        ),
        (
            lambda: Custom(noise=random.Random(1).random),
            r"c/noise: the method random of an object of class random:Random, whose state a checkpoint would miss",
        ),
        (
            lambda: Custom(noise=_closure_over(np.random.default_rng(1))),
            r"c/noise: the function _closure_over\.<locals>\.<lambda> binds value, an object of class numpy:Generator",
        ),
        (
            lambda: Custom(hooks=[_closure_over([Opaque()])]),
            r"c/hooks: the function .* binds value, an object of class ",
        ),
        (
            lambda: Custom(noise=functools.partial(random.Random(1).gauss, 0.0, 1.0)),
            r"c/noise: the method gauss of an object of class random:Random",
        ),
        (
            lambda: Custom(noise=functools.partial(random.Random(1).random)),
            r"c/noise: the method random of an object of class random:Random",
        ),
        (
            lambda: Custom(noise=functools.lru_cache(_closure_over(Opaque()))),
            r"c/noise: the function .* binds value, an object of class ",
        ),
        (lambda: Slotted(), r"c: Slotted keeps hidden in __slots__, where perdure does not look"),
        (
            lambda: wrappers.TimeLimit(Custom(engine=Opaque()), 9),
            r"c/env/engine: no adapter knows a [^!]* [^!]*\.$",
        ),
    ],
    ids=[
        "object",
        "method in C",
        "closure",
        "closure in a list",
        "partial",
        "partial in C",
        "wrapped function",
        "slots",
        "wrapped",
    ],
)
def test_what_cannot_be_captured_is_refused_by_name(trip, make: Make, message: str):
    with pytest.raises(TypeError, match=message):
        trip.tree(make())


def test_environments_in_other_processes_are_refused(trip):
    envs = object.__new__(gymnasium.vector.AsyncVectorEnv)
    envs.closed = True

    with pytest.raises(TypeError, match=r"c: Gymnasium.s AsyncVectorEnv .* perdure\.gym\.make_vec\(.*SyncVector"):
        trip.tree(envs)


class Speaking(Custom):
    """An environment around an engine, which knows how to save it."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(9)

    def __init__(self, ticks: int) -> None:
        self.engine, self.ticks = Opaque(), ticks

    def state_dict(self) -> dict[str, Any]:
        return {"ticks": self.ticks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ticks = state["ticks"]


def test_an_environment_may_speak_for_itself(trip):
    source, target = wrappers.TimeLimit(Speaking(3), 9), wrappers.TimeLimit(Speaking(0), 9)
    source._elapsed_steps = 2

    trip.restored(source, target)

    assert (target.get_wrapper_attr("ticks"), target._elapsed_steps) == (3, 2)


class SpeakingWrapper(gymnasium.Wrapper):
    """A wrapper that speaks for itself, and not for what it wraps."""

    def __init__(self, env: Any, level: int) -> None:
        super().__init__(env)
        self.level = level

    def state_dict(self) -> dict[str, Any]:
        return {"level": self.level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.level = state["level"]


def test_a_wrapper_that_speaks_for_itself_does_not_hide_what_it_wraps(trip):
    source, target = SpeakingWrapper(Speaking(3), 5), SpeakingWrapper(Speaking(0), 1)

    trip.restored(source, target)

    assert (target.level, target.env.ticks) == (5, 3)


class OwnActions(SpeakingWrapper):
    """Speaks for itself, and has a space of its own, as wrappers that change actions do."""

    def __init__(self, env: Any, level: int, actions: int = 9) -> None:
        super().__init__(env, level)
        self.action_space = gymnasium.spaces.Discrete(actions)


class SpeakingWithSpaces(Speaking):
    """Its spaces are its own, not its class's."""

    def __init__(self, ticks: int) -> None:
        super().__init__(ticks)
        self.action_space = gymnasium.spaces.Discrete(9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SpeakingWithSpaces(1),
        lambda: wrappers.TimeLimit(SpeakingWithSpaces(1), 9),
        lambda: OwnActions(Speaking(1), 1),
    ],
    ids=["environment", "wrapped", "wrapper"],
)
def test_actions_drawn_from_what_speaks_for_itself_go_on(trip, make: Make):
    """Off-policy scripts draw them from `env.action_space`, of which no `get_state` or `state_dict` tells anything."""
    source, target, twin = make(), make(), make()
    for env, seed in ((source, 1), (target, 2), (twin, 2)):
        env.action_space.seed(seed)
    source.action_space.sample()

    trip.restored(source, target)

    drawn = [[env.action_space.sample() for _ in range(20)] for env in (source, target, twin)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_a_space_of_what_speaks_for_itself_is_compared():
    env, other = OwnActions(Speaking(1), 1, actions=9), OwnActions(Speaking(1), 1, actions=8)
    snapshot = capture({"c": env}, Resolver(), Counters()).snapshot

    with pytest.raises(ContractError, match=r"c/_action_space: Discrete\(9\) in the run, Discrete\(8\) here"):
        restore(snapshot, {"c": other}, Resolver(), "step")


@pytest.mark.parametrize(
    ("source", "target", "finding"),
    [
        ({}, {"extra": 3}, ("c/extra", "no such attribute", "int")),
        ({"inner": Speaking(1)}, {}, ("c/inner", "dict of 4", "nothing")),
        ({"inner": 3}, {"inner": Speaking(1)}, ("c/inner", "3", name_of(Speaking))),
    ],
    ids=["only here", "only in the run", "another kind"],
)
def test_attributes_that_do_not_fit_are_findings(trip, source: Any, target: Any, finding: tuple[str, str, str]):
    assert trip.findings(Custom(**source), Custom(**target)) == [finding]


class Missions(gymnasium.spaces.Space):
    """Tells its function with the address of it, as MiniGrid's does."""

    def __init__(self, name: str) -> None:
        super().__init__((), str)
        self.function: Any = lambda: name
        self.function.__qualname__ = name

    def __repr__(self) -> str:
        return f"Missions({self.function})"


def test_a_space_that_tells_addresses_is_compared_without_them(trip):
    """A resume in another process finds the same objects elsewhere."""

    def environment(name: str) -> Custom:
        return Custom(observation_space=gymnasium.spaces.Dict({"mission": Missions(name)}))

    source = environment("first")
    trip.restored(source, environment("first"))
    [(place, saved, found)] = trip.findings(source, environment("second"))
    assert place == "c/observation_space"
    assert (saved, found) == tuple(f"Dict('mission': Missions(<function {name}>))" for name in ("first", "second"))
