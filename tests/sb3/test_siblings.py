"""The other callbacks of `learn`: their counters, scores and environments are state, and their order is compared."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")

from stable_baselines3.common.callbacks import (  # noqa: E402
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    ConvertCallback,
    EvalCallback,
    EveryNTimesteps,
    LogEveryNTimesteps,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)

import perdure  # noqa: E402
import perdure.sb3  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("global_generators")]

TOTAL = 640


class Wandering(BaseCallback):
    """Draws, counts, and changes what is learned; begins anew wherever a training starts."""

    def _on_training_start(self) -> None:
        self.drawn: list[float] = []
        self.rng = np.random.default_rng(3)

    def _on_step(self) -> bool:
        if self.n_calls % 7 == 0:
            self.drawn.append(float(self.rng.random()))
            vars(self.model)["ent_coef"] = 0.01 * self.drawn[-1]
        return True


def everything(trainings: ModuleType, folder: Path) -> list[BaseCallback]:
    envs = trainings.cartpole(1)
    envs.seed(9)
    evaluation = EvalCallback(
        envs,
        callback_on_new_best=StopTrainingOnRewardThreshold(10_000),
        callback_after_eval=StopTrainingOnNoModelImprovement(1000),
        n_eval_episodes=2,
        eval_freq=31,
        best_model_save_path=str(folder),
        log_path=str(folder),
        deterministic=False,
        verbose=0,
    )
    saving = EveryNTimesteps(200, CheckpointCallback(1, str(folder)))
    return [Wandering(), CallbackList([evaluation, saving]), LogEveryNTimesteps(90)]


def single(trainings: ModuleType) -> Any:
    return sb3.A2C("MlpPolicy", trainings.cartpole(1), **trainings.fresh(trainings.ON_POLICY, n_steps=16))


def test_callbacks_of_every_kind_go_on_where_they_were(trainings: ModuleType, tmp_path: Path):
    def trained(name: str, stop: int | None = None) -> Any:
        made = everything(trainings, tmp_path / f"files of {name}")
        model = trainings.train(
            lambda: single(trainings), tmp_path / name, TOTAL, stop=stop, callbacks=lambda: made, log_interval=2
        )
        return model, made

    straight, callbacks = trained("straight")
    for stop in (2, 9, 17, 23):
        trained("stopped", stop)
    resumed, others = trained("stopped")

    assert trainings.chain(tmp_path / "stopped") == trainings.chain(tmp_path / "straight")
    assert trainings.learned(resumed) == trainings.learned(straight)
    assert callbacks[0].drawn == others[0].drawn
    assert len(callbacks[0].drawn) > 80
    first, second = (each[1].callbacks[0] for each in (callbacks, others))
    assert (first.evaluations_results, first.best_mean_reward) == (second.evaluations_results, second.best_mean_reward)
    assert len(first.evaluations_results) == 20
    rows = [(tmp_path / each / "metrics.jsonl").read_text() for each in ("stopped", "straight")]
    assert rows[0] == rows[1]
    assert "eval/mean_reward" in rows[0]


def test_a_model_saved_by_a_callback_in_the_middle_loads_without_perdure(trainings: ModuleType, tmp_path: Path):
    made = everything(trainings, tmp_path / "files")
    trainings.train(lambda: single(trainings), tmp_path / "run", TOTAL, callbacks=lambda: made)

    for path in (tmp_path / "files").glob("*.zip"):
        loaded = sb3.A2C.load(path, device="cpu")
        assert type(loaded) is sb3.A2C
        assert b"perdure" not in path.read_bytes()
    assert len(list((tmp_path / "files").glob("*.zip"))) == 4


@pytest.mark.parametrize("forgotten", ["n_calls", "rng"])
def test_twin_callbacks_that_begin_anew_are_seen(forgotten: str, trainings: ModuleType, tmp_path: Path):
    made: list[Wandering] = []

    def callbacks() -> list[BaseCallback]:
        made.append(Wandering())
        return [made[-1]]

    class Forgets(perdure.Run):
        def restore(self, **components: Any) -> Any:
            restored = super().restore(**components)
            if self.resumed:
                setattr(made[-1], forgotten, 0 if forgotten == "n_calls" else np.random.default_rng(3))
            return restored

    straight = trainings.train(lambda: single(trainings), tmp_path / "a", TOTAL, callbacks=callbacks)
    trainings.train(lambda: single(trainings), tmp_path / "b", TOTAL, stop=9, callbacks=callbacks)
    forgetful = trainings.train(lambda: single(trainings), tmp_path / "b", TOTAL, callbacks=callbacks, run=Forgets)

    assert trainings.learned(forgetful) != trainings.learned(straight)


class Other(Wandering):
    """Another one."""


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ((Wandering, Other), (Other, Wandering), r"callbacks/0: .*Wandering in the run, .*Other here"),
        ((Wandering,), (), r"callbacks: "),
        ((), (Wandering,), r"callbacks"),
    ],
)
def test_another_order_or_another_callback_is_refused(
    before: tuple[type, ...], after: tuple[type, ...], found: str, trainings: ModuleType, tmp_path: Path
):
    trainings.train(
        lambda: single(trainings), tmp_path / "run", TOTAL, stop=9, callbacks=lambda: [kind() for kind in before]
    )
    with pytest.raises(perdure.ContractError, match=found):
        trainings.train(
            lambda: single(trainings), tmp_path / "run", TOTAL, callbacks=lambda: [kind() for kind in after]
        )


def test_where_ours_stands_among_them_does_not_matter(trainings: ModuleType, tmp_path: Path):
    straight = trainings.train(lambda: single(trainings), tmp_path / "a", TOTAL, callbacks=lambda: [Wandering()])
    trainings.train(lambda: single(trainings), tmp_path / "b", TOTAL, stop=9, callbacks=lambda: [Wandering()])
    model = single(trainings)
    run = perdure.Run(tmp_path / "b", horizon=TOTAL, every=perdure.Every(updates=10**9), chain=1)
    model.learn(TOTAL, callback=[perdure.sb3.callback(run), Wandering()])

    assert trainings.learned(model) == trainings.learned(straight)


class Talking(BaseCallback):
    """Holds what cannot be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = iter([1])

    def _on_step(self) -> bool:
        return True


def test_a_callback_that_cannot_be_captured_is_refused_unless_it_is_left_out(trainings: ModuleType, tmp_path: Path):
    def learn(stateless: list[BaseCallback], callback: BaseCallback) -> Any:
        run = perdure.Run(tmp_path / "run", horizon=TOTAL)
        return single(trainings).learn(
            TOTAL, callback=[callback, perdure.sb3.callback(run, stateless=stateless)], log_interval=2
        )

    with pytest.raises(perdure.UnknownObjectError, match="callbacks/0/connection"):
        learn([], Talking())
    with pytest.raises(perdure.UsageError, match="stateless names a Talking that learn was not handed"):
        learn([Talking()], Talking())
    talking = Talking()
    learn([talking], talking)


def test_a_function_as_a_callback_may_not_count_in_what_it_binds(trainings: ModuleType, tmp_path: Path):
    """Its attributes would be lost, so that the run says so before anything is."""
    called: list[int] = []
    own = ConvertCallback(lambda local, other: called.append(1) or True)
    with (
        pytest.raises(perdure.CaptureError, match=r"callbacks/0/callback/called: .* list of 640"),
        perdure.Run(tmp_path / "run", horizon=TOTAL) as run,
    ):
        single(trainings).learn(TOTAL, callback=[own, perdure.sb3.callback(run)])

    run = perdure.Run(tmp_path / "other", horizon=TOTAL)
    model = single(trainings).learn(
        TOTAL, callback=[ConvertCallback(lambda local, other: True), perdure.sb3.callback(run)]
    )
    assert model.num_timesteps == TOTAL
