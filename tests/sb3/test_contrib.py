"""The algorithms of sb3-contrib, stopped and resumed within `learn`, equal the trainings that were never stopped."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

from stable_baselines3.common.logger import Logger
from tests.conftest import load_beside

import perdure
import perdure.sb3

pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("global_generators"),
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]

QUICK = ("recurrent", "maskable")
CASES = (
    *("recurrent", "recurrent-shared", "recurrent-alone", "recurrent-two-parts", "maskable", "maskable-two-parts"),
    *("trpo", "qrdqn", "tqc", "tqc-apart", "crossq"),
)
MARKED = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CASES]


@pytest.fixture(scope="module")
def contributed(trainings: ModuleType) -> ModuleType:
    """`tests/sb3/contributed.py`."""
    return load_beside("sb3/contributed")


def test_every_case_is_tried(contributed: ModuleType):
    assert tuple(contributed.CASES) == CASES


@pytest.mark.parametrize("name", MARKED)
def test_stopped_at_five_boundaries_it_equals_the_training_never_stopped(
    name: str, contributed: ModuleType, trainings: ModuleType, tmp_path: Path
):
    straight = trainings.exact_when_stopped(*contributed.CASES[name], name, tmp_path)
    assert ("_last_lstm_states" in straight) == name.startswith("recurrent")


PARTS = (
    ("recurrent", "algorithm._last_lstm_states"),
    ("recurrent-alone", "algorithm._last_lstm_states"),
    ("trpo", "policy.optimizer.state"),
    ("qrdqn", "algorithm._n_calls"),
    ("tqc", "algorithm.ent_coef_optimizer.state"),
    ("crossq", "policy.critic.qf0.0.ra_mean"),
)
PAIRS = [pytest.param(*pair, marks=[] if pair[0] in QUICK else pytest.mark.slow) for pair in PARTS]


@pytest.mark.parametrize(("name", "place"), PAIRS)
def test_twin_a_part_that_a_resume_forgets_is_seen(
    name: str, place: str, contributed: ModuleType, trainings: ModuleType, tmp_path: Path
):
    """While one that forgets nothing in the same way learns the same."""
    make, total, last = contributed.CASES[name]
    learned: dict[str, bytes] = {}
    for forgotten in ("nothing", place):
        directory = tmp_path / forgotten
        trainings.train(make, directory, total, stop=last)
        forgetful = trainings.forgetful("" if forgotten == "nothing" else forgotten)
        learned[forgotten] = trainings.learned(trainings.train(make, directory, total, run=forgetful))
    learned["never stopped"] = trainings.learned(trainings.train(make, tmp_path / "straight", total))

    assert learned["nothing"] == learned["never stopped"] != learned[place]


def test_whether_actions_are_masked_is_compared(contributed: ModuleType, trainings: ModuleType, tmp_path: Path):
    """An argument of MaskablePPO's `learn`, which no attribute of the model tells."""
    make = contributed.maskable
    trainings.train(make, tmp_path / "run", 320, stop=3)
    with pytest.raises(perdure.ContractError, match=r"algorithm/use_masking: True in the run, False here"):
        trainings.train(make, tmp_path / "run", 320, use_masking=False)

    model = trainings.train(make, tmp_path / "run", 320)
    assert model.num_timesteps == 320
    assert not hasattr(model, "use_masking")


def test_an_algorithm_without_rollouts_is_refused(contributed: ModuleType, tmp_path: Path):
    model: Any = contributed.ars()
    with pytest.raises(perdure.UsageError) as caught:
        model.learn(320, callback=perdure.sb3.callback(perdure.Run(tmp_path / "run", horizon=320)))
    assert str(caught.value) == (
        "learn: ARS is neither an OnPolicyAlgorithm nor an OffPolicyAlgorithm, so that it is not known where a "
        "boundary could stand. Train it in a loop of your own, with learn(n, reset_num_timesteps=False) between "
        "run.restore and run.boundary: docs/stable-baselines3.md."
    )
    assert not (tmp_path / "run").exists()


def in_a_loop_of_its_own(contributed: ModuleType, trainings: ModuleType, directory: Path, stop: int | None) -> Any:
    """As the message of the refusal says."""
    model: Any = contributed.ars()
    model.set_logger(Logger(None, []))
    with trainings.stopping_at(stop):
        run = perdure.Run(directory, every=perdure.Every(updates=10**9), chain=1)
    try:
        run.restore(algorithm=model, env=model.env, policy=model.policy)
        while run.boundary_number < 6:
            model.learn(100, reset_num_timesteps=False)
            run.boundary(env_steps=model.num_timesteps, updates=model._n_updates)
        run.finish()
    except perdure.Preempted:
        assert run.boundary_number == stop
    return model


def test_an_algorithm_without_rollouts_resumes_in_a_loop_of_its_own(
    contributed: ModuleType, trainings: ModuleType, tmp_path: Path
):
    """Its last episodes are in a list that tells no times, to which a resume adds none."""
    straight = in_a_loop_of_its_own(contributed, trainings, tmp_path / "straight", None)
    straight_ends_with = trainings.photograph(straight)
    for stop in (1, 3, 4):
        in_a_loop_of_its_own(contributed, trainings, tmp_path / "run", stop)
    resumed = in_a_loop_of_its_own(contributed, trainings, tmp_path / "run", None)

    assert trainings.chain(tmp_path / "run") == trainings.chain(tmp_path / "straight")
    assert type(resumed.ep_info_buffer) is list
    assert trainings.photograph(resumed) == straight_ends_with
