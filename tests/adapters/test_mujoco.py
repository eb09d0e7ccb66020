"""MuJoCo: positions and velocities alone are not the state, nor is MuJoCo's own integration state; edits come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
mujoco = pytest.importorskip("mujoco")
pytest.importorskip("imageio")

from gymnasium import wrappers  # noqa: E402

from perdure.adapters.mujoco_data import STATE  # noqa: E402


def make(env_id: str = "Ant-v5") -> Any:
    return wrappers.NormalizeReward(gymnasium.make(env_id))


def used(env: Any, seed: int, steps: int) -> Any:
    env.reset(seed=seed)
    actions = np.random.default_rng(seed)
    for _ in range(steps):
        env.step(actions.uniform(-0.4, 0.4, env.action_space.shape))
    return env


def following(env: Any, steps: int = 30) -> list[tuple[bytes, float]]:
    actions = np.random.default_rng(0)
    rows = []
    for _ in range(steps):
        observation, reward, *_ = env.step(actions.uniform(-0.4, 0.4, env.action_space.shape))
        rows.append((observation.tobytes(), float(reward)))
    return rows


def test_exact_in_a_twin_with_another_past(trip):
    source, target = used(make(), 1, 40), used(make(), 9, 13)
    held = target.unwrapped.data

    trip.restored(source, target)

    assert target.unwrapped.data is held
    assert following(target) == following(source)


def test_twin_mujoco_s_own_state_alone_is_not_enough(trip):
    """What is one substep stale by design decides the next reward."""
    source, target = used(make(), 1, 40), used(make(), 9, 13)
    data, other = source.unwrapped.data, target.unwrapped.data
    trip.restored(source, target)
    state = trip.tree(source)["env"]["env"]["env"]["env"]["data"][STATE].value
    for name in ("xpos", "xipos", "cfrc_ext"):
        getattr(other, name)[...] = 0.0
    mujoco.mj_setState(target.unwrapped.model, other, state, mujoco.mjtState.mjSTATE_INTEGRATION)

    assert trip.digest(target) != trip.digest(source)
    assert not np.array_equal(other.xipos, data.xipos)
    assert following(target) != following(source)


def test_edits_of_the_model_are_state_and_nothing_else_of_it_is_saved(trip):
    source, target, plain = used(make(), 1, 5), used(make(), 9, 5), used(make(), 1, 5)
    source.unwrapped.model.body_mass[2] *= 1.5
    source.unwrapped.model.opt.gravity[2] = -5.0
    source.unwrapped.model.opt.timestep = 0.008
    target.unwrapped.model.geom_friction[...] *= 0.3

    trip.restored(source, target)

    tree = trip.tree(target)["env"]["env"]["env"]["env"]["model"]
    assert sorted(tree) == ["body_mass", "opt.gravity", "opt.timestep"]
    assert trip.tree(plain)["env"]["env"]["env"]["env"]["model"] == {}
    assert following(target) == following(source)


def test_twin_an_edit_that_is_lost_is_found(trip):
    source, target = used(make(), 1, 5), used(make(), 9, 5)
    source.unwrapped.model.body_mass[2] *= 1.5
    trip.restored(source, target)
    target.unwrapped.model.body_mass[2] /= 1.5

    assert trip.digest(target) != trip.digest(source)
    assert following(target) != following(source)


class Own(gymnasium.Env):
    """A user's environment around MuJoCo, of which perdure knows no file, with a view into its memory."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    XML = "<mujoco><worldbody><body><joint name='j'/><geom size='{}'/></body></worldbody></mujoco>"

    def __init__(self, size: float = 0.1) -> None:
        self.model = mujoco.MjModel.from_xml_string(self.XML.format(size))
        self.data = mujoco.MjData(self.model)
        self.angle = self.data.qpos

    def step(self, action: Any) -> Any:
        self.data.qfrc_applied[:] = action
        mujoco.mj_step(self.model, self.data)
        return self.angle.copy(), float(self.data.qvel[0]), False, False, {}


def test_a_users_own_environment_with_a_view_into_mujoco_s_memory(trip):
    source, target = Own(), Own()
    for _ in range(5):
        source.step(0.7)
    source.model.body_mass[1] = 3.0

    trip.restored(source, target)

    assert following(target) == following(source)
    assert target.angle[0] == target.data.qpos[0]
    assert target.model.body_mass[1] == 3.0


def test_another_model_is_a_finding(trip):
    [(place, _, _), *_] = trip.findings(
        used(make("Hopper-v5"), 1, 2).unwrapped, used(make("Walker2d-v5"), 1, 2).unwrapped
    )

    assert place == "c"


def test_another_version_and_another_file_are_facts(trip):
    facts = trip.component(used(make(), 1, 2)).facts

    assert facts["mujoco"] == mujoco.__version__
    assert any(str(text).startswith("compiled model xxh3_128:") for text in facts.values())


def test_a_renderer_is_the_twin_s_own(trip):
    source, target = used(make(), 1, 3), used(make(), 9, 3)
    renderer = target.unwrapped.mujoco_renderer

    trip.restored(source, target)

    assert target.unwrapped.mujoco_renderer is renderer


def test_every_array_of_mjdata_is_of_one_step_or_saved():
    """A version of MuJoCo that lays another array out anew at each step would be noticed here."""
    from perdure.adapters.mujoco_data import _names

    env = used(gymnasium.make("Humanoid-v5"), 1, 30).unwrapped
    fresh = mujoco.MjData(env.model)

    changed = [name for name in _names() if getattr(env.data, name).shape != getattr(fresh, name).shape]

    assert changed == []
    assert Path(env.fullpath).is_file()
