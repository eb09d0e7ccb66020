"""Every algorithm of Stable-Baselines3, stopped and resumed within `learn`, equals the training that was never stopped."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("stable_baselines3")
torch = pytest.importorskip("torch")

from tests.conftest import load_beside  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("global_generators"),
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]

QUICK = ("ppo", "dqn")
CASES = (
    *("ppo", "ppo-sde", "ppo-apart", "ppo-two-parts", "a2c", "a2c-sde"),
    *("dqn", "dqn-apart", "dqn-two-parts", "sac", "sac-sde", "td3", "ddpg"),
)
MARKED = [pytest.param(name, marks=pytest.mark.full if name in QUICK else pytest.mark.slow) for name in CASES]


@pytest.fixture(scope="module")
def trainings() -> Iterator[ModuleType]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_beside("sb3/trainings")
    torch.set_num_threads(threads)


def test_every_case_is_tried(trainings: ModuleType):
    assert tuple(trainings.CASES) == CASES


@pytest.mark.parametrize("name", MARKED)
def test_stopped_at_five_boundaries_it_equals_the_training_never_stopped(
    name: str, trainings: ModuleType, tmp_path: Path
):
    """The digests of the state at each boundary, every row, and in the end all that can be seen without perdure."""
    make, total, last = trainings.CASES[name]
    straight = trainings.photograph(trainings.train(make, tmp_path / "straight", total))
    for boundary in sorted(random.Random(name).sample(range(1, last + 1), 5)):
        trainings.train(make, tmp_path / "stopped", total, stop=boundary)
    resumed = trainings.photograph(trainings.train(make, tmp_path / "stopped", total))

    assert trainings.chain(tmp_path / "stopped") == trainings.chain(tmp_path / "straight")
    rows = [(tmp_path / each / "metrics.jsonl").read_text() for each in ("stopped", "straight")]
    assert rows[0] == rows[1] != ""
    assert [part for part in straight if resumed.get(part) != straight[part]] == []
    assert resumed.keys() == straight.keys()
