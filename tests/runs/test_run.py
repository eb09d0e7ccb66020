"""`Run`: begin, resume, boundary, finish; every mistake told, nothing lost or half-changed."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure import (
    AllDamagedError,
    CommitError,
    ContractError,
    DamagedError,
    Every,
    ForgottenValueError,
    Keep,
    LockedError,
    NoCheckpointError,
    NoRunError,
    RestoreError,
    Run,
    UnknownObjectError,
    UsageError,
)
from perdure.checkpoint.opening import read_manifest
from perdure.runs import committer as committer_module
from perdure.runs import contract_terms as contract_terms_module
from perdure.runs import run as run_module
from perdure.runs.directory import RunDirectory, step_name
from perdure.runs.lineage import read_lineage
from perdure.store.filesystem import FileSystem

CONFIG = {"total": 80, "lr": 0.5, "seed": 1, "track": False}


class Learner:
    """A learner with an optimizer-like state, restored in place."""

    def __init__(self) -> None:
        self.weights, self.momentum = np.zeros(2), np.zeros(2)

    def step(self, gradient: np.ndarray) -> None:
        self.momentum = 0.9 * self.momentum + gradient
        self.weights = self.weights - 0.1 * self.momentum

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights, "momentum": self.momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights, self.momentum = state["weights"], state["momentum"]


@pytest.fixture(autouse=True)
def global_generators() -> Iterator[None]:
    """Leaves the global generators as they were."""
    before = random.getstate(), np.random.get_state()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])


class Training:
    """A toy training: live learner and generator, a value, and the process's generators."""

    def __init__(self, directory: Path, *, seed: int = 0, **options: Any) -> None:
        self.learner, self.rng = Learner(), np.random.default_rng(seed)
        random.seed(seed)
        np.random.seed(seed)
        options = {"config": CONFIG, "horizon": "total", "every": Every(updates=1), "keep": None, **options}
        self.run = Run(directory, **options)
        self.observation = np.zeros(2, np.float32)

    def restore(self) -> "Training":
        s = self.run.restore(learner=self.learner, rng=self.rng, observation=self.observation)
        self.observation = s.observation
        return self

    def update(self) -> None:
        noise = self.rng.normal(size=2) + random.gauss(0, 1) + np.random.randn()
        self.observation = (0.5 * self.observation + noise).astype(np.float32)
        self.learner.step(self.observation.astype(float))

    def boundary(self, **options: Any) -> None:
        self.run.boundary(
            env_steps=self.run.env_steps + 10,
            observation=self.observation,
            metrics={"norm": float(np.abs(self.learner.weights).sum())},
            **options,
        )

    def go(self, updates: int) -> "Training":
        for _ in range(updates):
            self.update()
            self.boundary()
        return self

    def stop(self) -> None:
        """As a killed process would: nothing more is written."""
        self.run.close()


def states(directory: Path) -> dict[str, str]:
    """The state digest of every checkpoint of a run."""
    store = RunDirectory(directory).store()
    return {name: read_manifest(store, name)[0].state_digest for name in store.names()}


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a run but the lock's."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != ".writer.lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def names(path: Path) -> list[str]:
    """What stands in a directory."""
    return sorted(entry.name for entry in path.iterdir())


def rows(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def events(directory: Path) -> list[str]:
    return [event["event"] for event in read_lineage(directory / "lineage.jsonl")]


@pytest.fixture
def straight(tmp_path: Path) -> Path:
    """A run of eight updates that was never stopped."""
    training = Training(tmp_path / "straight").restore().go(8)
    training.run.finish()
    return tmp_path / "straight"


# Begin.


def test_a_fresh_run_commits_boundary_0_and_gives_everything_back(tmp_path: Path):
    training = Training(tmp_path / "runs" / "x")
    s = training.run.restore(learner=training.learner, rng=training.rng, observation=training.observation)

    assert s.learner is training.learner
    assert s.rng is training.rng
    assert s.observation is training.observation
    assert (s.env_steps, s.updates) == (0, 0)
    assert (training.run.resumed, training.run.notices, training.run.boundary_number) == (False, [], 0)
    assert list(states(tmp_path / "runs" / "x")) == [step_name(0)]
    assert names(tmp_path / "runs" / "x") == [
        *(".writer.lock", "checkpoints", "lineage.jsonl", "metrics.jsonl", "run.json", "timings.jsonl"),
    ]
    training.stop()


def test_making_a_run_touches_nothing(tmp_path: Path):
    Training(tmp_path / "x")

    assert names(tmp_path) == []


def test_counting_may_start_anywhere(tmp_path: Path):
    with Run(tmp_path / "x") as run:
        s = run.restore(env_steps=500, x=1)
        assert (s.env_steps, run.env_steps) == (500, 500)
        assert list(states(tmp_path / "x")) == [step_name(500)]
        with pytest.raises(UsageError):
            run.boundary(env_steps=500, x=2)
        run.boundary(env_steps=int_like(501), x=2)


def int_like(number: int) -> Any:
    return np.int64(number)


def test_the_directory_is_fixed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run = Run("x")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    run.restore(a=1)
    run.close()

    assert run.directory == str(tmp_path / "x")
    assert names(tmp_path / "elsewhere") == []


# Resume.


@pytest.mark.parametrize("stop", range(1, 8))
def test_a_resumed_run_equals_the_one_that_was_never_stopped(tmp_path: Path, straight: Path, stop: int):
    directory = tmp_path / "stopped"
    Training(directory).restore().go(stop).stop()

    training = Training(directory, seed=9).restore()
    assert training.run.resumed
    assert (training.run.env_steps, training.run.updates, training.run.boundary_number) == (10 * stop, stop, stop)
    training.go(8 - stop)
    training.run.finish()

    assert states(directory) == states(straight)
    assert (directory / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()


def test_three_stops_in_one_run_change_nothing(tmp_path: Path, straight: Path):
    for seed, updates in enumerate((2, 1, 3, 2)):
        Training(tmp_path / "x", seed=seed).restore().go(updates).stop()

    assert states(tmp_path / "x") == states(straight)


def test_a_second_resume_equals_the_first(tmp_path: Path, straight: Path):
    """No flag or counter of a resume leaks into the state: two in a row, with no step between them, change nothing."""
    Training(tmp_path / "x").restore().go(3).stop()
    for seed in (4, 5):
        training = Training(tmp_path / "x", seed=seed).restore()
        assert states(tmp_path / "x") == {name: states(straight)[name] for name in states(tmp_path / "x")}
        training.stop()
    Training(tmp_path / "x", seed=6).restore().go(5).stop()

    assert states(tmp_path / "x") == states(straight)


def test_saving_seldom_equals_saving_often(tmp_path: Path, straight: Path):
    training = Training(tmp_path / "x", every=Every()).restore().go(8)
    training.run.finish()

    assert list(states(tmp_path / "x")) == [step_name(0), step_name(80)]
    assert {name: states(straight)[name] for name in states(tmp_path / "x")} == states(tmp_path / "x")


def test_rows_after_the_last_checkpoint_are_cut_and_written_again(tmp_path: Path, straight: Path):
    Training(tmp_path / "x", every=Every(updates=3)).restore().go(5).stop()
    assert len(rows(tmp_path / "x")) == 5

    training = Training(tmp_path / "x", every=Every(updates=3), seed=3).restore()
    assert training.run.boundary_number == 3
    assert len(rows(tmp_path / "x")) == 3
    assert any("rows after the checkpoint were cut off" in notice for notice in training.run.notices)
    training.go(5).run.finish()

    assert rows(tmp_path / "x") == rows(straight)


@pytest.mark.parametrize("lost", ["learner", "momentum", "rng", "python", "numpy", "observation"])
def test_a_lost_component_would_be_seen(tmp_path: Path, straight: Path, lost: str):
    """The twin: each part of the state, reset at the resume, leads to another run."""
    Training(tmp_path / "x").restore().go(4).stop()
    training = Training(tmp_path / "x", seed=0).restore()
    match lost:
        case "learner":
            training.learner.weights = np.zeros(2)
        case "momentum":
            training.learner.momentum = np.zeros(2)
        case "rng":
            training.rng.bit_generator.state = np.random.default_rng(0).bit_generator.state
        case "python":
            random.seed(0)
        case "numpy":
            np.random.seed(0)
        case _:
            training.observation = np.zeros(2, np.float32)
    training.go(4).stop()

    assert states(tmp_path / "x")[step_name(80)] != states(straight)[step_name(80)]


def test_a_finished_run_can_be_opened_and_is_finished(tmp_path: Path, straight: Path):
    before = states(straight)
    training = Training(straight).restore()

    assert training.run.is_finished
    training.run.finish()
    assert states(straight) == before


# Boundaries.


def test_a_boundary_that_is_not_due_writes_nothing(tmp_path: Path):
    training = Training(tmp_path / "x", every=Every(updates=100)).restore()
    before = contents(tmp_path / "x")

    training.run.boundary(env_steps=10, observation=training.observation)

    assert contents(tmp_path / "x") == before
    training.stop()


@pytest.mark.parametrize("last", [80, 85])
def test_the_boundary_at_or_past_the_horizon_is_always_saved(tmp_path: Path, last: int):
    with Run(tmp_path / "x", config=CONFIG, horizon="total", every=Every(), background=False) as run:
        run.restore(x=0)
        assert run.horizon == 80
        run.boundary(env_steps=79, x=1)
        assert (run.is_finished, list(states(tmp_path / "x"))) == (False, [step_name(0)])
        run.boundary(env_steps=last, x=2)
        assert (run.is_finished, list(states(tmp_path / "x"))) == (True, [step_name(0), step_name(last)])
        run.finish()


def test_a_horizon_may_be_a_number(tmp_path: Path):
    with Run(tmp_path / "x", horizon=20, every=Every()) as run:
        run.restore(x=0)
        run.boundary(env_steps=20, x=1)

    assert step_name(20) in states(tmp_path / "x")


def test_a_horizon_that_is_a_number_is_part_of_the_contract(tmp_path: Path):
    with Run(tmp_path / "x", horizon=20) as run:
        run.restore(x=0)

    with pytest.raises(ContractError, match=r"horizon\.env_steps: 20 in the run, 30 here\."):
        Run(tmp_path / "x", horizon=30).restore(x=0)
    with pytest.raises(ContractError, match=r"horizon\.env_steps: 20 in the run, nothing here\."):
        Run(tmp_path / "x").restore(x=0)
    with Run(tmp_path / "x", horizon=20) as run:
        run.restore(x=0)


def test_a_value_forgotten_is_refused_and_the_boundary_can_be_repeated(tmp_path: Path):
    with Run(tmp_path / "x", every=Every(updates=1), background=False) as run:
        run.restore(learner=Learner(), a=1, b=2)

        with pytest.raises(ForgottenValueError) as caught:
            run.boundary(env_steps=10, metrics={"m": 1})
        assert str(caught.value) == (
            "boundary: ['a', 'b'] were given to restore and are values: hand them in again (a=a, b=b)."
        )
        with pytest.raises(ForgottenValueError, match=r"\['b'\] were given to restore"):
            run.boundary(env_steps=10, a=1)
        with pytest.raises(ForgottenValueError) as unknown:
            run.boundary(env_steps=10, a=1, b=2, c=3)
        assert str(unknown.value) == "boundary: ['c'] were not given to restore; add them there first."

        assert (run.boundary_number, rows(tmp_path / "x"), list(states(tmp_path / "x"))) == (0, [], [step_name(0)])
        run.boundary(env_steps=10, a=1, b=2)
        assert list(states(tmp_path / "x")) == [step_name(0), step_name(10)]


@pytest.mark.parametrize("history", [[], {}], ids=repr)
def test_an_empty_list_is_a_value_that_must_be_handed_in_again(tmp_path: Path, history: Any):
    """`history = [*history, x]` makes a new list; remembering the first one would save it, empty, for ever."""
    with Run(tmp_path / "x") as run:
        run.restore(history=history)

        with pytest.raises(ForgottenValueError, match=r"\['history'\] were given to restore"):
            run.boundary(env_steps=10)


def test_a_live_object_may_be_handed_in_again_and_replaces_the_first(tmp_path: Path):
    with Run(tmp_path / "x", every=Every(updates=1)) as run:
        first, second = Learner(), Learner()
        run.restore(learner=first, x=1)
        second.weights = np.ones(2)
        run.boundary(env_steps=10, learner=second, x=2)
        first.weights = np.full(2, 7.0)
        run.boundary(env_steps=20, x=3)

    with Run(tmp_path / "x") as run:
        target = Learner()
        run.restore(learner=target, x=0)
        assert target.weights.tolist() == [1, 1]


@pytest.mark.parametrize("steps", [20, 19, 0])
def test_env_steps_must_grow(tmp_path: Path, steps: int):
    with Run(tmp_path / "x") as run:
        run.restore(x=1)
        run.boundary(env_steps=20, x=1)

        with pytest.raises(UsageError) as caught:
            run.boundary(env_steps=steps, x=1)

        assert str(caught.value) == (
            f"boundary 2: env_steps={steps}, updates=2 after env_steps=20, updates=1. Both count from the start of the "
            "run; env_steps grows at each boundary."
        )
        assert (run.env_steps, run.boundary_number) == (20, 1)


def test_updates_may_be_given_and_never_go_back(tmp_path: Path):
    with Run(tmp_path / "x", every=Every(updates=10)) as run:
        run.restore(x=1)
        run.boundary(env_steps=1, updates=9, x=1)
        run.boundary(env_steps=2, updates=9, x=1)
        run.boundary(env_steps=3, updates=12, x=1)
        assert (run.updates, run.boundary_number) == (12, 3)
        with pytest.raises(UsageError, match=r"^boundary 4: env_steps=4, updates=11 after env_steps=3, updates=12\."):
            run.boundary(env_steps=4, updates=11, x=1)

    assert list(states(tmp_path / "x")) == [step_name(0), step_name(3)]


@pytest.mark.parametrize("steps", [10.0, "10", None, -1, True])
def test_counters_are_integers(tmp_path: Path, steps: Any):
    with Run(tmp_path / "x") as run:
        with pytest.raises(UsageError, match=r"^restore: env_steps=.*counters are ints"):
            run.restore(x=1, env_steps=steps)
        run.restore(x=1)
        with pytest.raises(UsageError, match=r"^boundary: env_steps=.*counters are ints"):
            run.boundary(env_steps=steps, x=1)


def test_metrics_make_rows_and_a_malformed_one_stops_the_boundary(tmp_path: Path):
    with Run(tmp_path / "x", every=Every(updates=1), background=False) as run:
        run.restore(x=1)
        run.boundary(env_steps=10, x=1, metrics={"return": np.float32(0.5), "best": None})
        run.boundary(env_steps=20, x=1)
        with pytest.raises(UsageError, match="metric 'bad': a dict is no number"):
            run.boundary(env_steps=30, x=1, metrics={"bad": {}})

        assert run.metrics_rows() == [{"boundary": 1, "env_steps": 10, "updates": 1, "return": 0.5, "best": None}]
        assert (run.boundary_number, list(states(tmp_path / "x"))[-1]) == (2, step_name(20))


def test_a_commit_that_fails_is_told_and_the_next_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    training = Training(tmp_path / "x", background=False).restore().go(2)
    before = states(tmp_path / "x")

    def full(self: FileSystem, path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "sync_file", full)
        training.update()
        with pytest.raises(CommitError, match=r"^checkpoint step_0000000030 was not committed: .*No space left"):
            training.boundary()
    assert states(tmp_path / "x") == before
    assert not [name for name in names(tmp_path / "x" / "checkpoints") if name.startswith(".")]

    training.go(1).stop()
    assert list(states(tmp_path / "x"))[-1] == step_name(40)


def wait_for_writer(training: "Training") -> None:
    """Until the commit in flight is done, whether or not it failed; its error stays to be raised."""
    job = training.run._opened("test").committer._writer._job
    if job is not None:
        job.exception()


@pytest.mark.parametrize("where", ["boundary", "finish", "close"])
def test_a_commit_that_fails_in_the_background_is_told_afterwards(
    tmp_path: Path, straight: Path, monkeypatch: pytest.MonkeyPatch, where: str
):
    """At the next boundary once it has failed, or where the run waits; a later boundary is saved again."""
    training = Training(tmp_path / "x").restore().go(2)
    wait_for_writer(training)
    before = states(tmp_path / "x")

    def full(self: FileSystem, path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FileSystem, "sync_file", full)
        training.go(1)
        wait_for_writer(training)
    message = r"^checkpoint step_0000000030 was not committed: .*No space left"
    with pytest.raises(CommitError, match=message):
        {"boundary": training.boundary, "finish": training.run.finish, "close": training.run.close}[where]()

    assert states(tmp_path / "x") == before
    training.stop()
    Training(tmp_path / "x").restore().go(6).stop()
    assert states(tmp_path / "x") == states(straight)


# Finish.


def test_finish_after_a_saved_boundary_needs_nothing(tmp_path: Path):
    training = Training(tmp_path / "x").restore().go(2)
    training.run.finish()

    assert list(states(tmp_path / "x"))[-1] == step_name(20)
    assert events(tmp_path / "x")[-1] == "finished"


def test_finish_without_a_horizon_saves_the_last_state_or_says_what_it_needs(tmp_path: Path):
    with Run(tmp_path / "x", every=Every()) as run:
        run.restore(learner=Learner(), a=1, b=2)
        run.boundary(env_steps=10, a=3, b=4)

        with pytest.raises(ForgottenValueError) as caught:
            run.finish()
        assert str(caught.value) == (
            "finish: boundary 1 (env_steps=10) is not saved. Give the Run a horizon, or call "
            "finish(env_steps=…, a=a, b=b)."
        )
        with pytest.raises(ForgottenValueError, match=r"\['b'\]"):
            run.finish(a=3)
        run.finish(a=3, b=4)

    assert list(states(tmp_path / "x")) == [step_name(0), step_name(10)]


def test_finish_may_make_the_last_boundary_itself(tmp_path: Path):
    with Run(tmp_path / "x", every=Every()) as run:
        run.restore(a=1)
        run.boundary(env_steps=10, a=2)
        run.finish(env_steps=15, a=3)
        assert (run.env_steps, run.boundary_number) == (15, 2)

    with Run(tmp_path / "x") as run:
        assert run.restore(a=0).a == 3


def test_a_refused_finish_has_not_moved_the_counters(tmp_path: Path):
    with Run(tmp_path / "x", every=Every()) as run:
        run.restore(a=1)

        with pytest.raises(ForgottenValueError):
            run.finish(env_steps=15)
        assert (run.env_steps, run.boundary_number) == (0, 0)


def test_live_objects_alone_need_no_values_at_finish(tmp_path: Path):
    with Run(tmp_path / "x", every=Every()) as run:
        run.restore(learner=Learner())
        run.boundary(env_steps=10)
        run.finish()

    assert list(states(tmp_path / "x")) == [step_name(0), step_name(10)]


@pytest.mark.parametrize("verb", ["boundary", "finish"])
def test_nothing_is_possible_before_restore_and_after_the_end(tmp_path: Path, verb: str):
    def call(run: Run) -> None:
        run.boundary(env_steps=10) if verb == "boundary" else run.finish()

    message = rf"^{verb}: the run is not open; call restore first, and nothing after finish or close\.$"
    run = Run(tmp_path / "x")
    with pytest.raises(UsageError, match=message):
        call(run)
    run.restore()
    run.finish()
    with pytest.raises(UsageError, match=message):
        call(run)
    run.close()
    run.close()


# Mistakes at restore.


def test_restoring_twice_is_refused(tmp_path: Path):
    with Run(tmp_path / "x") as run:
        run.restore(x=1)
        with pytest.raises(UsageError, match=r"^restore: this Run was restored already; make a new Run to go back\.$"):
            run.restore(x=1)
    with pytest.raises(UsageError, match=r"^restore: this Run was restored already"):
        run.restore(x=1)


@pytest.mark.parametrize("name", ["updates", "metrics", "process_rng"])
def test_reserved_names_are_refused(tmp_path: Path, name: str):
    with pytest.raises(UsageError) as caught:
        Run(tmp_path / "x").restore(**{name: 1})

    assert str(caught.value) == f"restore: the names ['{name}'] are reserved; choose others."
    assert names(tmp_path) == []


@pytest.mark.parametrize("components", [["rng", "RNG"], ["Process_RNG"], ["_x"]])
def test_names_that_cannot_be_files_are_refused(tmp_path: Path, components: list[str]):
    with pytest.raises(UsageError, match="component name"):
        Run(tmp_path / "x").restore(**dict.fromkeys(components, 1))

    assert not (tmp_path / "x" / "run.json").exists()


def test_an_unknown_object_is_refused_before_the_run_begins(tmp_path: Path):
    with pytest.raises(UnknownObjectError, match=r"^envs/0: no adapter knows a builtins\.object"):
        Run(tmp_path / "x").restore(envs=[object()])

    assert not (tmp_path / "x" / "run.json").exists()
    with Run(tmp_path / "x", mode="new") as run:
        run.restore(envs=[1])
        assert run.notices == []


def test_a_second_run_in_this_process_is_refused_and_the_first_goes_on(tmp_path: Path):
    training = Training(tmp_path / "x").restore()

    with pytest.raises(LockedError, match=r"this process has the run open already\. Call finish\(\) or close\(\)"):
        Training(tmp_path / "x", seed=1).restore()

    training.go(1).stop()
    Training(tmp_path / "x").restore().stop()


@pytest.mark.parametrize("mode", ["Auto", "", "force"])
def test_a_mode_is_one_of_three(tmp_path: Path, mode: Any):
    with pytest.raises(UsageError, match=rf"^mode='{mode}': one of 'auto', 'new', 'resume'\.$"):
        Run(tmp_path / "x", mode=mode)


def test_modes_insist(tmp_path: Path):
    with pytest.raises(NoRunError, match=r"typo: no such directory\. Check the spelling; nothing was created\.$"):
        Training(tmp_path / "typo", mode="resume").restore()
    assert names(tmp_path) == []

    Training(tmp_path / "x", mode="new").restore().go(1).stop()
    with pytest.raises(UsageError, match=r"x: there is a run already; resume it, or choose another directory\.$"):
        Training(tmp_path / "x", mode="new").restore()
    Training(tmp_path / "x", mode="resume").restore().stop()


def test_perdure_resume_insists_through_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERDURE_MODE", "resume")

    with pytest.raises(NoRunError):
        Training(tmp_path / "x").restore()
    Training(tmp_path / "x", mode="new").restore().stop()
    training = Training(tmp_path / "x").restore()
    assert training.run.resumed
    training.stop()


@pytest.mark.parametrize(("total", "text"), [(1.5, "1.5"), ("many", "'many'"), (True, "True")])
def test_a_horizon_is_an_int(tmp_path: Path, total: Any, text: str):
    with pytest.raises(UsageError) as caught:
        Run(tmp_path / "x", config={"total": total}, horizon="total")

    assert str(caught.value) == f"horizon='total' is {text}; a total of environment steps is an int from 0."


def test_a_horizon_that_is_no_key_is_refused_with_the_keys_there_are(tmp_path: Path):
    with pytest.raises(
        UsageError, match=r"^horizon='steps' is no key of config; it has \['total', 'lr', 'seed', 'track'\]\.$"
    ):
        Run(tmp_path / "x", config=CONFIG, horizon="steps")


# Contract.


def test_every_difference_is_told_in_one_message_and_nothing_changes(tmp_path: Path):
    Training(tmp_path / "x").restore().go(2).stop()
    before, python = contents(tmp_path / "x"), random.getstate()
    learner = Learner()
    learner.weights = np.zeros(3)

    with pytest.raises(ContractError) as caught:
        Run(tmp_path / "x", config={**CONFIG, "lr": 0.25, "seed": 2, "total": 90}, horizon="total").restore(
            learner=learner, rng=np.random.default_rng(0), extra=1
        )

    assert str(caught.value).splitlines()[0] == (
        f"{tmp_path / 'x'}, step_0000000020: this is not the same run: 6 differences; nothing was changed."
    )
    assert [finding.key for finding in caught.value.findings] == [
        *("algorithm.lr", "horizon.total", "seed.seed", "extra", "learner/state/weights", "observation"),
    ]
    assert contents(tmp_path / "x") == before
    assert learner.weights.tolist() == [0, 0, 0]
    assert random.getstate() == python


def test_after_a_refusal_the_lock_is_free_and_the_right_call_works(tmp_path: Path):
    Training(tmp_path / "x").restore().go(1).stop()

    with pytest.raises(ContractError):
        Training(tmp_path / "x", config={**CONFIG, "lr": 9}).restore()
    training = Training(tmp_path / "x").restore().go(1)
    assert training.run.boundary_number == 2
    training.stop()


def test_free_keys_may_change(tmp_path: Path):
    Training(tmp_path / "x", free=["tr*"]).restore().stop()

    training = Training(tmp_path / "x", free=["tr*"], config={**CONFIG, "track": True}).restore()
    assert training.run.resumed
    training.stop()
    with pytest.raises(ContractError, match=r"algorithm\.track"):
        Training(tmp_path / "x").restore()


def test_an_object_whose_load_fails_gives_everything_back_and_the_run_stays(tmp_path: Path):
    class Unlucky(Learner):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            super().load_state_dict(state)
            if state["weights"].any():
                raise ZeroDivisionError("no")

    Training(tmp_path / "x").restore().go(2).stop()
    before = contents(tmp_path / "x")
    learner, rng = Unlucky(), np.random.default_rng(5)

    with pytest.raises(
        RestoreError, match=r"step_0000000020: restoring failed: no The state from before has been put back"
    ):
        Run(tmp_path / "x", config=CONFIG, horizon="total").restore(
            learner=learner, rng=rng, observation=np.zeros(2, np.float32)
        )

    assert learner.weights.tolist() == [0, 0]
    assert rng.bit_generator.state == np.random.default_rng(5).bit_generator.state
    assert contents(tmp_path / "x") == before


# Damage.


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def newest(directory: Path) -> Path:
    return directory / "checkpoints" / list(states_names(directory))[-1]


def states_names(directory: Path) -> list[str]:
    return RunDirectory(directory).store().names()


def test_a_damaged_newest_checkpoint_is_stepped_over_moved_and_told_and_the_run_is_exact(
    tmp_path: Path, straight: Path
):
    directory = tmp_path / "x"
    Training(directory).restore().go(4).stop()
    flip(newest(directory) / "learner.safetensors")

    training = Training(directory, seed=3).restore()

    assert training.run.boundary_number == 3
    assert names(directory / "damaged") == [step_name(40)]
    (stepped,) = [notice for notice in training.run.notices if "stepped back" in notice]
    problem = "step_0000000040/learner.safetensors: learner/state/weights: bytes"
    assert stepped.startswith(f"stepped back over a damaged checkpoint: {problem}")
    assert stepped.endswith(f"It was moved to {directory / 'damaged' / step_name(40)}.")
    assert len(rows(directory)) == 3
    training.go(5).run.finish()
    assert states(directory) == states(straight)
    assert rows(directory) == rows(straight)


def test_all_damaged_changes_nothing(tmp_path: Path):
    directory = tmp_path / "x"
    Training(directory).restore().go(1).stop()
    for name in states_names(directory):
        flip(directory / "checkpoints" / name / "MANIFEST.json", 40)
    before = contents(directory)

    for mode in ("auto", "resume"):
        with pytest.raises(AllDamagedError, match=r"x: all 2 checkpoints are damaged; nothing was changed\.\n"):
            Training(directory, mode=mode).restore()
    assert contents(directory) == before


def test_a_run_killed_before_boundary_0_starts_again_and_says_so(tmp_path: Path):
    directory = tmp_path / "x"
    Training(directory).restore().stop()
    shutil.rmtree(directory / "checkpoints")
    (directory / "checkpoints" / ".staging.00ff").mkdir(parents=True)

    with pytest.raises(NoCheckpointError, match="stopped before its first checkpoint was committed"):
        Training(directory, mode="resume").restore()
    training = Training(directory).restore()

    assert training.run.resumed is False
    assert training.run.notices == [
        "the run was stopped before its first checkpoint was committed; it starts again from the beginning.",
        "removed .staging.00ff, an unfinished checkpoint that a stopped process left behind.",
    ]
    assert list(states(directory)) == [step_name(0)]
    training.stop()


def test_leftovers_of_a_killed_writer_are_removed_and_told_at_a_resume(tmp_path: Path):
    Training(tmp_path / "x").restore().go(1).stop()
    (tmp_path / "x" / "checkpoints" / ".staging.aa").mkdir()

    training = Training(tmp_path / "x").restore()

    assert training.run.notices == ["removed .staging.aa, an unfinished checkpoint that a stopped process left behind."]
    assert states_names(tmp_path / "x") == [step_name(0), step_name(10)]
    training.stop()


def test_a_damaged_run_json_is_told_and_nothing_changes(tmp_path: Path):
    directory = tmp_path / "x"
    Training(directory).restore().go(1).stop()
    flip(directory / "run.json", 30)
    before = contents(directory)

    with pytest.raises(DamagedError, match=r"run\.json: "):
        Training(directory).restore()
    (directory / "run.json").unlink()
    with pytest.raises(DamagedError, match=r"x: there are checkpoints but no run\.json; put it back\.$"):
        Training(directory).restore()

    del before["run.json"]
    assert contents(directory) == before


def test_a_foreign_checkpoint_copied_in_and_a_renamed_one_are_moved_aside(tmp_path: Path):
    Training(tmp_path / "x").restore().go(2).stop()
    Training(tmp_path / "y").restore().go(4).stop()
    shutil.copytree(tmp_path / "y" / "checkpoints" / step_name(40), tmp_path / "x" / "checkpoints" / step_name(40))
    shutil.copytree(tmp_path / "x" / "checkpoints" / step_name(10), tmp_path / "x" / "checkpoints" / step_name(30))

    training = Training(tmp_path / "x").restore()

    assert training.run.env_steps == 20
    assert names(tmp_path / "x" / "damaged") == [step_name(30), step_name(40)]
    assert ["belongs to run" in notice for notice in training.run.notices] == [True, False]
    assert "was written as step 10 and renamed" in training.run.notices[1]
    training.stop()


def test_an_altered_metrics_file_is_set_aside_and_told_and_the_run_goes_on(tmp_path: Path):
    directory = tmp_path / "x"
    Training(directory).restore().go(3).stop()
    flip(directory / "metrics.jsonl", 5)

    training = Training(directory).restore()

    assert "set aside as metrics.jsonl.altered.1" in training.run.notices[0]
    training.go(1).stop()
    assert [row["boundary"] for row in rows(directory)] == [4]
    assert states(directory)[step_name(40)]


# History.


def test_the_lineage_tells_what_happened(tmp_path: Path):
    Training(tmp_path / "x", every=Every(updates=2)).restore().go(3).stop()
    training = Training(tmp_path / "x", every=Every(updates=2)).restore().go(2)
    training.run.finish()

    history = read_lineage(tmp_path / "x" / "lineage.jsonl")
    assert [(event["event"], event.get("checkpoint")) for event in history] == [
        ("started", None),
        ("committed", step_name(0)),
        ("committed", step_name(20)),
        ("stopped", None),
        ("resumed", step_name(20)),
        ("committed", step_name(40)),
        ("finished", step_name(40)),
    ]
    manifests = [read_manifest(RunDirectory(tmp_path / "x").store(), name) for name in states_names(tmp_path / "x")]
    assert [manifest.parent for manifest, _ in manifests] == [None, manifests[0][1], manifests[1][1]]
    assert history[4]["digest"] == manifests[1][1]


def test_the_lineage_tells_what_retention_removed(tmp_path: Path):
    training = Training(tmp_path / "x", keep=Keep(last=2)).restore().go(3)
    training.run.finish()

    history = read_lineage(tmp_path / "x" / "lineage.jsonl")
    assert [(event["event"], event.get("checkpoint", event.get("checkpoints"))) for event in history] == [
        ("started", None),
        ("committed", step_name(0)),
        ("committed", step_name(10)),
        ("committed", step_name(20)),
        ("removed", [step_name(0)]),
        ("committed", step_name(30)),
        ("removed", [step_name(10)]),
        ("finished", step_name(30)),
    ]
    assert states_names(tmp_path / "x") == [step_name(20), step_name(30)]


def test_a_hook_that_fails_is_told_in_the_lineage_and_the_run_goes_on(tmp_path: Path, straight: Path):
    seen: list[str] = []

    def upload(committed: Path) -> None:
        seen.append(committed.name)
        assert (committed / "MANIFEST.json").exists()
        if len(seen) == 2:
            raise ZeroDivisionError("no network")

    training = Training(tmp_path / "x", after_commit=upload).restore().go(8)
    training.run.finish()

    assert seen == [step_name(10 * boundary) for boundary in range(9)]
    failed = [event for event in read_lineage(tmp_path / "x" / "lineage.jsonl") if "failed" in event["event"]]
    assert [(event["event"], event["checkpoint"], event["problem"]) for event in failed] == [
        ("after_commit_failed", step_name(10), "ZeroDivisionError: no network")
    ]
    assert states(tmp_path / "x") == states(straight)


def test_changed_arithmetic_is_told_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(committer_module, "arithmetic", lambda: {"numpy": "1.0"})
    Training(tmp_path / "x").restore().stop()
    monkeypatch.setattr(contract_terms_module, "arithmetic", lambda: {"numpy": "2.0"})

    training = Training(tmp_path / "x").restore()

    assert training.run.notices == [
        "arithmetic changed: numpy: 1.0 then, 2.0 now. The last bits of results may differ from here on."
    ]
    training.stop()


def test_notices_are_logged_too(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    Training(tmp_path / "x").restore().stop()
    (tmp_path / "x" / "checkpoints" / ".staging.aa").mkdir()

    Training(tmp_path / "x").restore().stop()

    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'x'}: removed .staging.aa, an unfinished checkpoint that a stopped process left behind."
    ]


def test_a_run_that_another_process_began_meanwhile_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The decision counts only under the lock: two fresh starts at once must not give one directory two identities."""
    acquire = run_module.acquire

    def slow(path: Path) -> Any:
        monkeypatch.setattr(run_module, "acquire", acquire)
        Training(tmp_path / "x").restore().go(2).stop()
        return acquire(path)

    monkeypatch.setattr(run_module, "acquire", slow)
    training = Training(tmp_path / "x").restore()

    assert (training.run.resumed, training.run.boundary_number) == (True, 2)
    training.stop()
    assert events(tmp_path / "x").count("started") == 1


def test_timings_are_kept_apart_from_what_is_compared(tmp_path: Path):
    Training(tmp_path / "x").restore().go(2).stop()

    lines = [json.loads(line) for line in (tmp_path / "x" / "timings.jsonl").read_text().splitlines()]
    assert [line["checkpoint"] for line in lines] == [step_name(0), step_name(10), step_name(20)]
    assert all(line["size_bytes"] > 0 and line["blocked_s"] >= 0 for line in lines)


def test_the_caller_s_wall_clock_seeds_and_generators_play_no_part_in_a_run_s_identity(tmp_path: Path):
    before = repr((random.getstate(), np.random.get_state()))

    with Run(tmp_path / "x") as run:
        run.restore(x=1)
        run.boundary(env_steps=1, x=1)
        run.finish(x=1)

    assert repr((random.getstate(), np.random.get_state())) == before
