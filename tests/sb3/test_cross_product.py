"""Each algorithm resumes exactly with each combination of gSDE, VecNormalize, linear schedules and own processes.

What forgets a part of the state, and must be seen, is in `test_resuming.py`.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("torch")

pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("global_generators"),
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]

ALL = ("gsde", "normalized", "linear", "apart")
SWITCHES = {"ppo": ALL, "a2c": ALL, "sac": ALL, "dqn": ALL[1:], "td3": ALL[1:], "ddpg": ALL[1:]}
"""DQN, TD3 and DDPG have no gSDE."""


def combinations(switches: tuple[str, ...]) -> list[frozenset[str]]:
    """All subsets."""
    chosen = itertools.product((False, True), repeat=len(switches))
    return [frozenset(itertools.compress(switches, each)) for each in chosen]


CASES = [(algorithm, on) for algorithm, switches in SWITCHES.items() for on in combinations(switches)]


def name_of(algorithm: str, on: frozenset[str]) -> str:
    return "-".join([algorithm, *(switch for switch in ALL if switch in on)])


EACH = pytest.mark.parametrize(("algorithm", "on"), [pytest.param(*case, id=name_of(*case)) for case in CASES])


@pytest.mark.slow
@EACH
def test_stopped_at_five_boundaries_it_equals_the_training_never_stopped(
    algorithm: str, on: frozenset[str], crossing: ModuleType, trainings: ModuleType, tmp_path: Path
):
    make, total, last = crossing.MAKERS[algorithm]
    trainings.exact_when_stopped(lambda: make(on), total, last, name_of(algorithm, on), tmp_path)


def test_the_combinations_are_all_and_each_is_another(crossing: ModuleType):
    assert crossing.MAKERS.keys() == SWITCHES.keys()
    assert len(CASES) == len(set(CASES)) == len({name_of(*case) for case in CASES}) == 3 * 2**4 + 3 * 2**3


@EACH
def test_each_switch_does_what_it_says(algorithm: str, on: frozenset[str], crossing: ModuleType):
    """By what Stable-Baselines3 holds, and by the two learning rates that its own schedule tells."""
    from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
    from stable_baselines3.common.distributions import StateDependentNoiseDistribution
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

    kinds = {"ppo": PPO, "a2c": A2C, "sac": SAC, "dqn": DQN, "td3": TD3, "ddpg": DDPG}
    model = crossing.MAKERS[algorithm][0](on)
    try:
        assert type(model) is kinds[algorithm]
        noise = getattr(getattr(model, "actor", None) or model.policy, "action_dist", None)
        assert (isinstance(noise, StateDependentNoiseDistribution), model.use_sde) == ("gsde" in on,) * 2
        assert isinstance(model.env, VecNormalize) == ("normalized" in on)
        inner = model.env.venv if "normalized" in on else model.env
        assert type(inner) is (SubprocVecEnv if "apart" in on else DummyVecEnv)
        assert inner.num_envs == 2
        rates = model.lr_schedule(1.0), model.lr_schedule(0.0)
        assert rates[0] > 0
        assert rates[1] == (0 if "linear" in on else rates[0])
    finally:
        model.env.close()
