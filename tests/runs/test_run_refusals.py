"""What `Run` and `restore` refuse: mistakes, modes, another contract; nothing is changed."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.toy_training import CONFIG, Learner, Training, contents, names

from perdure import ContractError, LockedError, NoRunError, RestoreError, Run, UnknownObjectError, UsageError

pytestmark = pytest.mark.usefixtures("global_generators")


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


def test_a_script_that_opens_another_run_than_was_asked_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """As with a fork whose script has the parent's path written into it."""
    monkeypatch.setenv("PERDURE_RUN_DIR", str(tmp_path / "fork"))

    Training(tmp_path / "x").restore().stop()

    told = f"{tmp_path / 'x'}: this script opens this run; `perdure resume` was asked for {tmp_path / 'fork'}."
    assert [record.getMessage() for record in caplog.records] == [told]


@pytest.mark.parametrize(
    ("total", "text"), [(1.5, "1.5"), ("many", "'many'"), (True, "True"), (float("inf"), "inf"), (float("nan"), "nan")]
)
def test_a_horizon_is_an_int(tmp_path: Path, total: Any, text: str):
    with pytest.raises(UsageError) as caught:
        Run(tmp_path / "x", config={"total": total}, horizon="total")

    assert str(caught.value) == f"horizon='total' is {text}; a total of environment steps is an int from 0."


def test_a_horizon_that_is_no_key_is_refused_with_the_keys_there_are(tmp_path: Path):
    with pytest.raises(
        UsageError, match=r"^horizon='steps' is no key of config; it has \['total', 'lr', 'seed', 'track'\]\.$"
    ):
        Run(tmp_path / "x", config=CONFIG, horizon="steps")


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
        RestoreError,
        match=r"failed: learner: \S+Unlucky\.load_state_dict\(\) raised ZeroDivisionError: no\. The state from",
    ):
        Run(tmp_path / "x", config=CONFIG, horizon="total").restore(
            learner=learner, rng=rng, observation=np.zeros(2, np.float32)
        )

    assert learner.weights.tolist() == [0, 0]
    assert rng.bit_generator.state == np.random.default_rng(5).bit_generator.state
    assert contents(tmp_path / "x") == before


@pytest.mark.parametrize("name", ["schedules", "numerics"])
@pytest.mark.parametrize("value", [np.array([1, 2]), ["keep"], "other", 0])
def test_a_choice_is_one_of_those_there_are(tmp_path: Path, name: str, value: Any):
    with pytest.raises(UsageError) as caught:
        Run(tmp_path / "x", **{name: value})

    assert str(caught.value).startswith(f"{name}={value!r}: one of ")


def test_integers_of_any_length_are_compared_and_accepted(tmp_path: Path):
    with Run(tmp_path / "x", config={"a": 10**5000}) as run:
        run.restore(x=0)

    with pytest.raises(ContractError) as caught:
        Run(tmp_path / "x", config={"a": 10**5000 + 1}).restore(x=0)
    [finding] = caught.value.findings
    with Run(tmp_path / "x", config={"a": 10**5000 + 1}, accept=[str(finding.acceptance)]) as run:
        run.restore(x=0)

    assert finding.key == "algorithm.a"
