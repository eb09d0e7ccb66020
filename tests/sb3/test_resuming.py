"""Every algorithm of Stable-Baselines3, stopped and resumed within `learn`, equals the training that was never stopped.

Twins forget one part of the state at a resume, and something must show it: what is learned, or a row.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import perdure

pytest.importorskip("stable_baselines3")
pytest.importorskip("torch")

pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("global_generators"),
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]

QUICK = ("ppo", "dqn")
CASES = (
    *("ppo", "ppo-sde", "ppo-apart", "ppo-two-parts", "a2c", "a2c-sde"),
    *("dqn", "dqn-apart", "dqn-two-parts", "sac", "sac-sde", "td3", "ddpg"),
)
MARKED = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CASES]


def test_every_case_is_tried(trainings: ModuleType):
    assert tuple(trainings.CASES) == CASES


@pytest.mark.parametrize("name", MARKED)
def test_stopped_at_five_boundaries_it_equals_the_training_never_stopped(
    name: str, trainings: ModuleType, tmp_path: Path
):
    trainings.exact_when_stopped(*trainings.CASES[name], name, tmp_path)


PARTS = {
    "ppo": (
        *("algorithm._last_obs", "algorithm.ep_info_buffer", "env.obs_rms", "env.returns"),
        *("algorithm._logger.name_to_value", "policy.optimizer.state"),
    ),
    "dqn": (
        *("algorithm._last_obs", "algorithm.exploration_rate", "algorithm._n_calls", "algorithm._episode_num"),
        *("replay.pos", "replay.observations", "replay.rewards", "policy.optimizer.state"),
    ),
    "td3": ("algorithm.action_noise._noises",),
    "sac": ("algorithm.ent_coef_optimizer.state", "algorithm._last_original_obs"),
}
"""A counter that fell back (`_n_updates`) or an object that was exchanged would be refused at the next boundary."""
PAIRS = [
    pytest.param(name, place, marks=[] if name in QUICK else pytest.mark.slow)
    for name, places in PARTS.items()
    for place in places
]


@pytest.mark.parametrize(("name", "place"), PAIRS)
def test_twin_each_part_that_a_resume_forgets_is_seen(
    name: str, place: str, trainings: ModuleType, straight: dict[str, tuple[bytes, str]], tmp_path: Path
):
    assert end_of(name, place, trainings, tmp_path) != straight[name]


@pytest.mark.parametrize("name", QUICK)
def test_twin_what_forgets_nothing_sees_nothing(
    name: str, trainings: ModuleType, straight: dict[str, tuple[bytes, str]], tmp_path: Path
):
    """The way in which the twins forget changes nothing by itself."""
    assert end_of(name, "", trainings, tmp_path) == straight[name]


def test_steps_that_a_resume_forgets_are_refused(trainings: ModuleType, tmp_path: Path):
    with pytest.raises(perdure.UsageError, match="the algorithm counts the steps"):
        end_of("ppo", "algorithm.num_timesteps", trainings, tmp_path)


def test_twin_iterations_that_are_not_counted_again_are_seen(
    trainings: ModuleType, straight: dict[str, tuple[bytes, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """PPO's `learn` logs at each third iteration, and counts them in a local variable."""
    from perdure.sb3 import guiding

    begin = guiding.Guiding._begin
    monkeypatch.setattr(guiding.Guiding, "_begin", lambda self: (begin(self), setattr(self, "_repeats", 0)))

    assert end_of("ppo", "", trainings, tmp_path)[1] != straight["ppo"][1]


def end_of(name: str, place: str, trainings: ModuleType, tmp_path: Path) -> tuple[bytes, str]:
    """What a training learned and reported that was stopped once and forgot a part at its resume."""
    make, total, last = trainings.CASES[name]
    trainings.train(make, tmp_path / "run", total, stop=1 + last // 2)
    model = trainings.train(make, tmp_path / "run", total, run=trainings.forgetful(place))
    return trainings.learned(model), (tmp_path / "run" / "metrics.jsonl").read_text()


@pytest.fixture(scope="module")
def straight(trainings: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, str]]:
    """The same of trainings that were never stopped."""

    class OnDemand(dict[str, tuple[bytes, str]]):
        def __missing__(self, name: str) -> tuple[bytes, str]:
            make, total, _ = trainings.CASES[name]
            directory = tmp_path_factory.mktemp(name)
            model = trainings.train(make, directory, total)
            self[name] = trainings.learned(model), (directory / "metrics.jsonl").read_text()
            return self[name]

    return OnDemand()
