"""`Recorded` resumes opaque environments by reset and replay; whatever the replay cannot bring back refuses."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import wrappers  # noqa: E402

import perdure  # noqa: E402
from perdure.gym import Recorded, probe  # noqa: E402


class Opaque(gymnasium.Env):
    """Holds something in C, so that no walk over attributes will do."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space: Any = gymnasium.spaces.Discrete(3)

    def __init__(self) -> None:
        self.engine = threading.Lock()
        self.at = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at = self.np_random.normal(size=2) + (options or {}).get("shift", 0.0)
        return self.at.copy(), {}

    def step(self, action: Any) -> Any:
        self.at = self.at + self.moved(action) * self.np_random.normal(size=2)
        return self.at.copy(), float(self.at.sum()), False, False, {}

    def moved(self, action: Any) -> float:
        return float(action)


def counts_resets(env: Opaque) -> Opaque:
    """An environment that keeps something across resets, which a replay cannot know."""
    start = env.reset
    past = [0]

    def reset(**arguments: Any) -> Any:
        past[0] += 1
        observation, info = start(**arguments)
        env.at = env.at + past[0]
        return observation + past[0], info

    env.reset = reset
    return env


class OfVectors(Opaque):
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))

    def moved(self, action: Any) -> float:
        assert action.dtype == np.float32
        return float(action.sum())


class OfDicts(Opaque):
    action_space = gymnasium.spaces.Dict(
        {"move": gymnasium.spaces.Box(-1.0, 1.0, (2,)), "kind": gymnasium.spaces.Discrete(2)}
    )

    def moved(self, action: Any) -> float:
        return float(action["move"].sum() + action["kind"])


def acted(env: Any, steps: int, **reset: Any) -> Any:
    env.reset(**reset)
    for at in range(steps):
        env.step(at % 3)
    return env


def carried(source: Any, target: Any, folder: Path) -> Any:
    perdure.save(folder / "saved", env=source)
    return perdure.load(folder / "saved", env=target)["env"]


def following(env: Any, steps: int = 20) -> list[Any]:
    rows = [env.step(at % 3)[0].tolist() for at in range(steps)]
    return [*rows, env.reset()[0].tolist(), env.step(1)[0].tolist()]


@pytest.mark.parametrize("kind", [Opaque, OfVectors, OfDicts])
def test_an_opaque_environment_is_exact_by_replay(kind: type[Opaque]):
    found = probe(lambda: wrappers.NormalizeReward(Recorded(wrappers.TimeLimit(kind(), 30))), points=5, steps=60)

    assert str(found) == "exact (5 points of capture)"


@pytest.mark.parametrize(
    "reset", [{"seed": 3}, {}, {"options": {"shift": 2.5}}], ids=["seeded", "unseeded", "with options"]
)
def test_seeded_unseeded_and_with_options(tmp_path: Path, reset: dict[str, Any]):
    source, target = Recorded(acted(Opaque(), 3, seed=8)), Recorded(acted(Opaque(), 9, seed=5))
    acted(source, 7, **reset)

    assert carried(source, target, tmp_path) is target

    assert target.steps_since_reset == 7
    assert following(target) == following(source)


def test_before_the_first_reset_and_right_after_a_reset(tmp_path: Path):
    never, fresh = Recorded(Opaque()), Recorded(Opaque())
    never.action_space.seed(4)
    carried(never, fresh, tmp_path)
    assert (fresh.recording.before, fresh.steps_since_reset) == (None, 0)

    (tmp_path / "again").mkdir()
    source = acted(Recorded(Opaque()), 0, seed=3)
    assert following(carried(source, acted(Recorded(Opaque()), 4, seed=1), tmp_path / "again")) == following(source)


def test_spaces_go_on_where_they_were_drawn_from_outside(tmp_path: Path):
    source, target = Recorded(OfVectors()), Recorded(OfVectors())
    source.env.action_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), seed=5)
    target.env.action_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), seed=9)
    source.reset(seed=1)
    for _ in range(4):
        source.step(source.env.action_space.sample())

    carried(source, target, tmp_path)

    assert target.env.action_space.sample().tolist() == source.env.action_space.sample().tolist()


def test_another_reward_in_the_replay_names_environment_and_step(tmp_path: Path):
    class Slower(Opaque):
        def moved(self, action: Any) -> float:
            return float(action) * (0.5 if action == 2 else 1.0)

    Slower.__name__, Slower.__qualname__ = Opaque.__name__, Opaque.__qualname__
    with pytest.raises(
        perdure.RestoreError,
        match=r"env: Opaque, replayed: the reward or the end of the episode after step 3 since the reset is another "
        r"one than in the run\..*perdure\.gym\.probe tells which",
    ):
        carried(acted(Recorded(Opaque()), 7, seed=3), Recorded(Slower()), tmp_path)


def test_an_environment_that_keeps_something_across_resets_is_refused(tmp_path: Path):
    def make() -> Any:
        return Recorded(counts_resets(Opaque()))

    with pytest.raises(perdure.RestoreError, match=r"Opaque, replayed: the reward .* keeps something across resets"):
        carried(acted(acted(make(), 2, seed=3), 4), make(), tmp_path)

    assert probe(make, points=3, steps=30).verdict == "refused"


def test_actions_that_are_altered_refuse(tmp_path: Path):
    source = acted(Recorded(Opaque()), 7, seed=3)
    source.recording.actions[4] = 0

    with pytest.raises(perdure.RestoreError, match="after step 5 since the reset"):
        carried(source, Recorded(Opaque()), tmp_path)


@pytest.mark.parametrize("reset", [{"seed": 5}, {}])
def test_a_replay_that_fails_leaves_the_target_as_it_was(tmp_path: Path, reset: dict[str, Any]):
    """Engine, recording and generators, after a seeded reset and after one that depends on the past."""
    source = acted(Recorded(Opaque()), 7, seed=3)
    source.recording.actions[4] = 0
    target, twin = (acted(acted(Recorded(Opaque()), 4, seed=9), 6, **reset) for _ in range(2))

    with pytest.raises(perdure.RestoreError, match=r"after step 5 .* The state from before has been put back\."):
        carried(source, target, tmp_path)

    assert target.recording == twin.recording
    assert target.steps_since_reset == twin.steps_since_reset == 6
    assert following(target) == following(twin)
    assert following(twin) != following(acted(Recorded(Opaque()), 6, seed=4))


def test_a_target_that_was_never_reset_is_as_good_as_new_after_a_replay_that_failed(tmp_path: Path):
    source = acted(Recorded(Opaque()), 7, seed=3)
    source.recording.actions[4] = 0
    target = Recorded(Opaque())
    with pytest.raises(perdure.RestoreError, match="The state from before has been put back"):
        carried(source, target, tmp_path)

    assert target.recording.before is None
    assert following(acted(target, 3, seed=8)) == following(acted(Recorded(Opaque()), 3, seed=8))


def test_twin_where_even_that_fails_it_is_said(tmp_path: Path):
    target = acted(Recorded(counts_resets(Opaque())), 4, seed=9)
    source = acted(acted(acted(Recorded(counts_resets(Opaque())), 2, seed=3), 4), 4)

    with pytest.raises(perdure.RestoreError, match=r"back failed too .*: do not go on with these objects\."):
        carried(source, target, tmp_path)


def test_twin_without_the_generators_from_before_the_reset_it_is_refused(tmp_path: Path):
    """After an unseeded reset everything depends on what the generator was before it."""
    source = acted(acted(Recorded(Opaque()), 3, seed=3), 4)
    source.recording.before["env/_np_random"] = None

    with pytest.raises(perdure.RestoreError, match="is another one than in the run"):
        carried(source, acted(Recorded(Opaque()), 1, seed=6), tmp_path)


def test_more_steps_than_the_limit_refuse_and_a_reset_begins_anew(tmp_path: Path):
    env = acted(Recorded(Opaque(), replay_limit_steps=5), 6, seed=1)

    with pytest.raises(
        perdure.CaptureError,
        match=r"env: 6 steps since the last reset, more than replay_limit_steps=5, .*give perdure\.gym\.Recorded a",
    ):
        perdure.save(tmp_path / "x", env=env)

    assert len(env.recording.actions) == 5
    acted(env, 5)
    perdure.save(tmp_path / "x", env=env)


@pytest.mark.parametrize("limit", [0, -1])
def test_an_impossible_limit_is_refused(limit: int):
    with pytest.raises(perdure.UsageError, match=f"replay_limit_steps={limit}: use at least 1"):
        Recorded(Opaque(), replay_limit_steps=limit)


@pytest.mark.parametrize(
    "wrap", [wrappers.RecordEpisodeStatistics, wrappers.NormalizeObservation, wrappers.NormalizeReward]
)
def test_wrappers_that_keep_more_than_an_episode_stand_outside(wrap: Callable[[Any], Any]):
    with pytest.raises(perdure.UsageError, match=rf"Write {wrap.__name__}\(perdure\.gym\.Recorded\(env\)\)\."):
        Recorded(wrap(Opaque()))


def test_another_environment_and_another_order_of_wrappers_are_findings(tmp_path: Path):
    perdure.save(tmp_path / "x", env=Recorded(wrappers.TimeLimit(wrappers.OrderEnforcing(Opaque()), 5)))

    with pytest.raises(perdure.ContractError, match=r"same classes and wrappers, in the same order"):
        perdure.load(tmp_path / "x", env=Recorded(wrappers.OrderEnforcing(wrappers.TimeLimit(Opaque(), 5))))
    with pytest.raises(perdure.ContractError, match=re.escape("env/env/arguments/max_episode_steps: 5 in the run, 6")):
        perdure.load(tmp_path / "x", env=Recorded(wrappers.TimeLimit(wrappers.OrderEnforcing(Opaque()), 6)))


def test_the_class_is_exact_replay_with_a_reason(tmp_path: Path):
    with (
        pytest.raises(
            perdure.CaptureError,
            match=r"requires='exact-snapshot', but env allows exact-replay \(env/env: its engine is opaque: a resume",
        ),
        perdure.Run(tmp_path / "run", requires="exact-snapshot") as run,
    ):
        run.restore(env=wrappers.NormalizeReward(Recorded(Opaque())))


def test_an_environment_that_is_not_deterministic_is_said_to_be():
    class Random(Opaque):
        def moved(self, action: Any) -> float:
            return float(np.random.default_rng().random())

    found = probe(lambda: Recorded(Random()), points=2, steps=5)

    assert found.verdict == "not deterministic"
    assert re.match(
        r"twins with equal seeds differ: step 1: observation is .* in one and .* in the other", found.reason
    )


class Forgetful(Opaque):
    """Says less of itself than there is."""

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def test_twin_a_probe_finds_an_environment_that_forgets_its_generator():
    found = probe(Forgetful, points=3, steps=20)

    assert (found.verdict, found.points) == ("inexact", 1)
    assert found.reason.startswith("point 1, step ")


class Pickling(Opaque, gymnasium.utils.EzPickle):
    """Pickles by its constructor's arguments alone, which would lose all the rest without a word."""

    def __init__(self) -> None:
        gymnasium.utils.EzPickle.__init__(self)
        super().__init__()


def test_an_environment_that_pickles_by_its_arguments_is_refused(tmp_path: Path):
    with pytest.raises(perdure.UnknownObjectError, match=r"env/env/engine: no adapter knows a _thread\.lock"):
        perdure.save(tmp_path / "x", env=wrappers.TimeLimit(Pickling(), 5))


def test_a_probe_says_what_cannot_be_captured():
    found = probe(Opaque, points=3, steps=5)

    assert found.verdict == "refused"
    assert re.search(r"env/engine: no adapter knows a _thread\.lock.*perdure\.gym\.Recorded\(env\)", found.reason)


@pytest.mark.parametrize("reset_first", [False, True])
def test_box2d_without_a_recorder_is_refused_with_the_way_out(tmp_path: Path, reset_first: bool):
    """Some classes that SWIG makes have no module, which is no reason for another error."""
    pytest.importorskip("Box2D")
    env = gymnasium.make("LunarLander-v3")
    if reset_first:
        env.reset(seed=1)

    with pytest.raises(perdure.UnknownObjectError, match=r"knows a SwigPyObject,.*perdure\.gym\.Recorded\(env\)"):
        perdure.save(tmp_path / "x", env=env)


@pytest.mark.full
def test_twin_bipedal_walker_without_a_new_world_is_inexact_or_refused(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("Box2D")
    monkeypatch.setattr("perdure.gym.recorded._make_new_world", lambda engine: None)

    found = probe(lambda: Recorded(gymnasium.make("BipedalWalker-v3", max_episode_steps=90)), points=8, steps=120)

    assert found.verdict in ("inexact", "refused")


def test_rendering_is_stubbed_in_a_replay_and_the_last_observation_is_drawn(tmp_path: Path):
    pytest.importorskip("Box2D")
    source, target = (Recorded(gymnasium.make("CarRacing-v3", continuous=False)) for _ in range(2))
    source.reset(seed=1)
    for at in range(4):
        source.step(at)
    drawn: list[str] = []
    engine: Any = target.unwrapped
    draw = engine._create_image_array
    engine._create_image_array = lambda *arguments: drawn.append("once") or draw(*arguments)

    carried(source, target, tmp_path)

    assert drawn == ["once"]
    assert target.step(1)[0].tobytes() == source.step(1)[0].tobytes()
