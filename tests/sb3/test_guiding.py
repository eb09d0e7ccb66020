"""The callback: what it refuses, and how a training ends."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
sb3 = pytest.importorskip("stable_baselines3")

from stable_baselines3.common.callbacks import (  # noqa: E402
    BaseCallback,
    EveryNTimesteps,
    StopTrainingOnMaxEpisodes,
)

import perdure  # noqa: E402
import perdure.sb3  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("global_generators")]

TOTAL = 320


def run_of(directory: Path, total: int | None = TOTAL, **options: Any) -> perdure.Run:
    return perdure.Run(directory, horizon=total, every=perdure.Every(updates=10**9), chain=1, **options)


def files(directory: Path) -> dict[Path, bytes]:
    found = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {path: content for path, content in found.items() if path.name != ".writer.lock"}


# Another total.


@pytest.mark.parametrize(("horizon", "told"), [(500, "the horizon 500"), (None, "no horizon")])
def test_another_total_than_the_run_s_is_refused_before_anything_is_made(
    horizon: int | None, told: str, trainings: ModuleType, tmp_path: Path
):
    with pytest.raises(perdure.UsageError) as caught:
        trainings.a2c().learn(TOTAL, callback=perdure.sb3.callback(run_of(tmp_path / "run", horizon)))

    assert str(caught.value) == (
        f"learn: the run {tmp_path}/run has {told}, and learn goes to 320 steps. Schedules go by the total, so both "
        "must be the same: perdure.Run(…, horizon=320), or another total for learn."
    )
    assert not (tmp_path / "run").exists()


def test_another_total_at_a_resume_is_refused_and_nothing_changes(trainings: ModuleType, tmp_path: Path):
    trainings.train(trainings.a2c, tmp_path / "run", TOTAL, stop=3)
    before = files(tmp_path / "run")

    with pytest.raises(perdure.ContractError, match=r"horizon: 320 in the run, 640 here|horizon\.env_steps: 320 in"):
        trainings.train(trainings.a2c, tmp_path / "run", 2 * TOTAL)
    assert files(tmp_path / "run") == before


def rates(directory: Path) -> list[float]:
    rows = run_of(directory, mode="auto").metrics_rows()
    return [row["train/learning_rate"] for row in rows if "train/learning_rate" in row]


def learn_with_rows(trainings: ModuleType, directory: Path, total: int, schedules: Any, stop: int | None = None) -> Any:
    model = trainings.a2c()
    with trainings.stopping_at(stop):
        run = run_of(directory, total, schedules=schedules)
    try:
        model.learn(total, callback=perdure.sb3.callback(run), log_interval=1)
    except perdure.Preempted:
        assert stop is not None
    return model


def test_a_schedule_that_is_stretched_does_not_jump(trainings: ModuleType, tmp_path: Path):
    """From step 160 on, half of the schedule is left for 480 steps: a third of the slope."""
    learn_with_rows(trainings, tmp_path / "run", TOTAL, "restretch", stop=5)
    model = learn_with_rows(trainings, tmp_path / "run", 2 * TOTAL, "restretch")

    found = rates(tmp_path / "run")
    steps = [round(a - b, 9) for a, b in itertools.pairwise(found)]
    assert set(steps[:3]) == {7e-4}
    assert {round(step, 6) for step in steps[6:]} == {round(7e-4 / 3, 6)}
    assert model.num_timesteps == 2 * TOTAL
    assert model._current_progress_remaining == 0.0


def test_a_schedule_of_a_run_whose_total_never_changed_is_that_of_stable_baselines(
    trainings: ModuleType, tmp_path: Path
):
    learned = [
        trainings.learned(learn_with_rows(trainings, tmp_path / str(schedules), TOTAL, schedules))
        for schedules in (None, "keep")
    ]
    plain = trainings.a2c()
    plain.learn(TOTAL)

    assert learned == [trainings.learned(plain)] * 2


# reset_num_timesteps.


def test_counting_on_from_nothing_is_counting(trainings: ModuleType, tmp_path: Path):
    straight = trainings.train(trainings.a2c, tmp_path / "straight", TOTAL, reset_num_timesteps=False)
    trainings.train(trainings.a2c, tmp_path / "run", TOTAL, stop=4, reset_num_timesteps=False)
    resumed = trainings.train(trainings.a2c, tmp_path / "run", TOTAL, reset_num_timesteps=False)

    assert trainings.learned(resumed) == trainings.learned(straight)
    assert trainings.chain(tmp_path / "run") == trainings.chain(tmp_path / "straight")


def test_a_model_that_has_trained_counts_on_only_towards_the_run_s_total(trainings: ModuleType, tmp_path: Path):
    """Handed to a resume it would go beyond the total; the message says what to change."""
    model = trainings.train(trainings.a2c, tmp_path / "run", TOTAL, stop=4)

    with pytest.raises(perdure.UsageError, match=r"horizon 320, and learn goes to 448 steps, 128 of them taken before"):
        model.learn(TOTAL, callback=perdure.sb3.callback(run_of(tmp_path / "run")), reset_num_timesteps=False)
    resumed = trainings.train(trainings.a2c, tmp_path / "run", TOTAL)
    assert resumed.num_timesteps == TOTAL


def in_two_phases(trainings: ModuleType, directory: Path, stop: tuple[int | None, int | None]) -> Any:
    """A script that trains twice, each time in a run of its own; a stop leaves it."""
    model = trainings.a2c()
    for number, (total, at) in enumerate(zip((TOTAL, 2 * TOTAL), stop, strict=True)):
        with trainings.stopping_at(at):
            run = run_of(directory / str(number), total)
        try:
            model.learn(TOTAL, callback=perdure.sb3.callback(run), reset_num_timesteps=number == 0)
        except perdure.Preempted:
            return None
    return model


def test_a_script_that_trains_twice_resumes_in_either_phase(trainings: ModuleType, tmp_path: Path):
    straight = in_two_phases(trainings, tmp_path / "straight", (None, None))
    for stop in ((3, None), (None, 2), (None, 6)):
        assert in_two_phases(trainings, tmp_path / "run", stop) is None
    resumed = in_two_phases(trainings, tmp_path / "run", (None, None))

    assert resumed.num_timesteps == 2 * TOTAL
    assert trainings.learned(resumed) == trainings.learned(straight)
    for phase in "01":
        assert trainings.chain(tmp_path / "run" / phase) == trainings.chain(tmp_path / "straight" / phase)


# One callback, one training.


def test_a_second_learn_is_refused(trainings: ModuleType, tmp_path: Path):
    callback, model = perdure.sb3.callback(run_of(tmp_path / "run")), trainings.a2c()
    model.learn(TOTAL, callback=callback)

    with pytest.raises(perdure.UsageError) as caught:
        model.learn(TOTAL, callback=callback)
    assert str(caught.value) == (
        "learn: this callback has guided one training already, and a run is one training. For another one, hand in a "
        'callback of another run: perdure.sb3.callback(perdure.Run("runs/next", …)).'
    )


def test_inside_a_callback_of_events_it_is_refused(trainings: ModuleType, tmp_path: Path):
    inside = EveryNTimesteps(10, perdure.sb3.callback(run_of(tmp_path / "run")))
    with pytest.raises(perdure.UsageError, match=r"stands inside a EveryNTimesteps.*Hand it to learn itself"):
        trainings.a2c().learn(TOTAL, callback=inside)


# Another model.


def another(trainings: ModuleType, **options: Any) -> Any:
    return sb3.DQN("MlpPolicy", trainings.cartpole(2), **trainings.fresh(trainings.OFF_POLICY, **options))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"buffer_size": 310}, "algorithm/buffer_size: 300 in the run, 310 here"),
        ({"gamma": 0.98}, "algorithm/gamma: 0.99 in the run, 0.98 here"),
        ({"learning_rate": 1e-3}, "algorithm/learning_rate: 0.0001 in the run, 0.001 here"),
        ({"seed": 6}, "algorithm/seed: 5 in the run, 6 here"),
        ({"train_freq": 8}, "algorithm/train_freq"),
    ],
)
def test_another_argument_of_the_model_is_refused(
    change: dict[str, Any], found: str, trainings: ModuleType, tmp_path: Path
):
    trainings.train(lambda: another(trainings), tmp_path / "run", TOTAL, stop=30)
    with pytest.raises(perdure.ContractError) as caught:
        trainings.train(lambda: another(trainings, **change), tmp_path / "run", TOTAL)
    assert found in str(caught.value)


def test_another_number_of_environments_is_refused(trainings: ModuleType, tmp_path: Path):
    options = trainings.fresh(trainings.ON_POLICY)
    for number in (2, 3):
        model = sb3.A2C("MlpPolicy", trainings.cartpole(number), **copy.deepcopy(options))
        if number == 2:
            with trainings.stopping_at(2), pytest.raises(perdure.Preempted):
                model.learn(TOTAL, callback=perdure.sb3.callback(run_of(tmp_path / "run")))
    with pytest.raises(perdure.ContractError, match=r"algorithm/n_envs: 2 in the run, 3 here"):
        model.learn(TOTAL, callback=perdure.sb3.callback(run_of(tmp_path / "run")))


def test_attributes_of_a_user_s_subclass_are_state(trainings: ModuleType, tmp_path: Path):
    class Counting(sb3.A2C):
        count = 0

        def train(self) -> None:
            self.count += 1
            self.history = [*getattr(self, "history", []), float(self.num_timesteps)]
            super().train()

    def make() -> Any:
        return Counting("MlpPolicy", trainings.cartpole(2), **trainings.fresh(trainings.ON_POLICY))

    trainings.train(make, tmp_path / "run", TOTAL, stop=3)
    resumed = trainings.train(make, tmp_path / "run", TOTAL)
    assert (resumed.count, resumed.history) == (5, [64.0, 128.0, 192.0, 256.0, 320.0])


def test_what_nothing_can_capture_is_refused_by_name(trainings: ModuleType, tmp_path: Path):
    model = trainings.a2c()
    model.connection = iter([1, 2])
    with pytest.raises(perdure.UnknownObjectError, match="algorithm/connection"):
        model.learn(TOTAL, callback=perdure.sb3.callback(run_of(tmp_path / "run")))
    assert type(model) is sb3.A2C


def test_local_variables_of_another_learn_are_refused(trainings: ModuleType, tmp_path: Path):
    class Own(sb3.A2C):
        def learn(self, total_timesteps: int, callback: Any = None) -> Any:
            phase = 1
            callback = self._setup_learn(total_timesteps, callback)[1]
            callback.on_training_start(locals(), globals())
            return phase

    with pytest.raises(perdure.UsageError, match="learn of Own keeps phase in local variables, which a"):
        Own("MlpPolicy", trainings.cartpole(1), **trainings.fresh(trainings.ON_POLICY)).learn(
            TOTAL, callback=perdure.sb3.callback(run_of(tmp_path / "run"))
        )


def test_a_hindsight_buffer_is_refused(tmp_path: Path):
    from stable_baselines3.common.envs import BitFlippingEnv
    from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

    model = sb3.DQN(
        "MultiInputPolicy", BitFlippingEnv(4), replay_buffer_class=HerReplayBuffer, buffer_size=100, device="cpu"
    )
    with pytest.raises(perdure.CaptureError, match=r"replay: a HerReplayBuffer .* Use ReplayBuffer"):
        model.learn(TOTAL, callback=perdure.sb3.callback(run_of(tmp_path / "run")))


def test_resets_of_the_run_s_own_are_refused_before_anything_is_made(trainings: ModuleType, tmp_path: Path):
    """With a way out: the run's own refusals speak to a script that hands in its environments itself."""
    resets = perdure.BoundaryReset(seed=1, every=perdure.Every(env_steps=64), name="env")
    run = perdure.Run(tmp_path / "run", horizon=TOTAL, boundary_reset=resets)
    with pytest.raises(perdure.UsageError) as caught:
        trainings.a2c().learn(TOTAL, callback=perdure.sb3.callback(run))

    assert str(caught.value) == (
        "perdure.sb3.callback: boundary_reset resets environments behind the model's back. Leave it out, and wrap "
        "those whose state cannot be captured in perdure.gym.Recorded."
    )
    assert not (tmp_path / "run").exists()


# Ends.


def test_a_finished_training_is_left_at_once_with_its_last_state(trainings: ModuleType, tmp_path: Path):
    first = trainings.train(trainings.dqn, tmp_path / "run", TOTAL)
    chain = trainings.chain(tmp_path / "run")
    again = trainings.train(trainings.dqn, tmp_path / "run", TOTAL)

    assert again.num_timesteps == first.num_timesteps == TOTAL
    assert trainings.learned(again) == trainings.learned(first)
    assert trainings.chain(tmp_path / "run") == chain


@pytest.mark.parametrize("name", ["a2c", "dqn"])
def test_a_training_that_a_callback_ended_stays_ended(name: str, trainings: ModuleType, tmp_path: Path):
    """The state in the middle of a rollout is kept, and never trained on."""

    def few() -> list[BaseCallback]:
        return [StopTrainingOnMaxEpisodes(5)]

    make = getattr(trainings, name)
    straight = trainings.train(make, tmp_path / "straight", 1000, callbacks=few)
    trainings.train(make, tmp_path / "run", 1000, callbacks=few, stop=2)
    for _ in range(2):
        ended = trainings.train(make, tmp_path / "run", 1000, callbacks=few)
        assert ended.num_timesteps == straight.num_timesteps < 1000
        assert trainings.learned(ended) == trainings.learned(straight)
        assert trainings.chain(tmp_path / "run") == trainings.chain(tmp_path / "straight")


def test_the_run_may_outlive_the_training(trainings: ModuleType, tmp_path: Path):
    with run_of(tmp_path / "run", policy=("policy",)) as run:
        model = trainings.a2c()
        model.learn(TOTAL, callback=perdure.sb3.callback(run, finish=False))
        path = run.export_policy()
        run.finish()
    other = trainings.a2c()
    perdure.load_policy(path, policy=other.policy)
    assert trainings.learned(other) == trainings.learned(model)


class Failing(BaseCallback):
    """Raises at a step."""

    def _on_step(self) -> bool:
        if self.num_timesteps >= 100:
            raise RuntimeError("no disk")
        return True


def test_an_error_leaves_the_model_as_it_was_and_the_last_boundary_saved(trainings: ModuleType, tmp_path: Path):
    model, each = trainings.a2c(), perdure.Every(env_steps=1)
    with pytest.raises(RuntimeError, match="no disk"), perdure.Run(tmp_path / "run", horizon=TOTAL, every=each) as run:
        model.learn(TOTAL, callback=[Failing(), perdure.sb3.callback(run)])

    assert type(model) is sb3.A2C
    assert not any("perdure" in type(each).__module__ for each in model.logger.output_formats)
    model.learn(64)  # as if nothing had been
    assert model.num_timesteps == 64
    assert perdure.checkpoint_path(tmp_path / "run").name == "step_0000000096"


class FailingAtFirst(BaseCallback):
    """Cannot begin once."""

    has_failed = False

    def _on_training_start(self) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("no disk")

    def _on_step(self) -> bool:
        return True


def test_a_training_that_could_not_begin_leaves_nothing_to_the_next(trainings: ModuleType, tmp_path: Path):
    """Its run is not made by a later training of the same model, whose class comes back."""
    model, failing = trainings.a2c(), FailingAtFirst()
    model.set_logger(sb3.common.logger.Logger(None, []))
    with pytest.raises(RuntimeError, match="no disk"):
        model.learn(TOTAL, callback=[perdure.sb3.callback(run_of(tmp_path / "first")), failing])

    model.learn(TOTAL, callback=[perdure.sb3.callback(run_of(tmp_path / "second")), failing])

    assert type(model) is sb3.A2C
    assert not model.logger.output_formats
    assert not (tmp_path / "first").exists()
    assert perdure.checkpoint_path(tmp_path / "second").name == f"step_{TOTAL:010d}"


def test_a_replay_buffer_that_is_left_out_is_not_saved_with_the_algorithm(trainings: ModuleType, tmp_path: Path):
    """Though the algorithm holds it; the resume begins with an empty one. The algorithm itself cannot be left out."""

    def model() -> Any:
        return sb3.DQN("MlpPolicy", "CartPole-v1", buffer_size=500, learning_starts=50, seed=1, device="cpu")

    def run(directory: Path, *omit: str) -> perdure.Run:
        return perdure.Run(directory, horizon=TOTAL, every=perdure.Every(env_steps=80), omit=omit)

    for name, omit in (("without", "replay"), ("no counter", "algorithm")):
        with pytest.raises(RuntimeError, match="no disk"), run(tmp_path / name, omit) as stopped:
            model().learn(TOTAL, callback=[failing := Failing(), perdure.sb3.callback(stopped, stateless=[failing])])
    resumed = model()
    resumed.learn(TOTAL, callback=perdure.sb3.callback(run(tmp_path / "without", "replay")))

    assert resumed.replay_buffer.size() == TOTAL - 80
    assert not list((tmp_path / "without").rglob("*0000-*.safetensors"))
    with pytest.raises(perdure.UsageError, match=r"the algorithm counts the steps; take it out of omit"):
        model().learn(TOTAL, callback=perdure.sb3.callback(run(tmp_path / "no counter", "algorithm")))


def test_what_is_no_run_is_refused(tmp_path: Path):
    with pytest.raises(perdure.UsageError, match=r"perdure\.sb3\.callback: 'runs/x'; a run, such as perdure\.Run"):
        perdure.sb3.callback("runs/x")  # pyright: ignore[reportArgumentType]


def test_two_runs_of_one_training_are_refused(trainings: ModuleType, tmp_path: Path):
    two = [perdure.sb3.callback(run_of(tmp_path / name)) for name in ("a", "b")]
    with pytest.raises(perdure.UsageError, match=r"two callbacks of perdure in one list\. A training is one run"):
        trainings.a2c().learn(TOTAL, callback=two)


def test_the_model_is_not_changed_by_a_training(trainings: ModuleType, tmp_path: Path):
    model = trainings.a2c()
    names = vars(model).keys() | {"_logger"}
    model.learn(TOTAL, callback=perdure.sb3.callback(run_of(tmp_path / "run")))

    assert type(model) is sb3.A2C
    assert vars(model).keys() == names
    assert not any("perdure" in type(each).__module__ for each in model.logger.output_formats)


def test_a_stop_at_the_last_boundary_leaves_the_model_as_it_was_too(trainings: ModuleType, tmp_path: Path):
    """It is raised by the boundary that stands behind the loop of `learn`."""
    model = trainings.a2c()
    with trainings.stopping_at(10):
        run = run_of(tmp_path / "run")
    with pytest.raises(perdure.Preempted):
        model.learn(TOTAL, callback=perdure.sb3.callback(run))

    assert model.num_timesteps == TOTAL
    assert type(model) is sb3.A2C
    assert not any("perdure" in type(each).__module__ for each in model.logger.output_formats)
