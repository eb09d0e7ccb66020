"""Acceptances through `Run`: exactly what differs, exactly as it differs, on record; a mistake changes nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.toy_training import contents

import perdure
from perdure import ContractError, Run, UsageError
from perdure.checkpoint.opening import read_manifest
from perdure.cli.exit_codes import code_of
from perdure.runs.directory import RunDirectory
from perdure.runs.lineage import read_lineage

CONFIG = {"lr": 3e-4, "clip": 3.0, "name": "a", "seed": 1}


def go(path: Path, config: Any = None, **options: Any) -> Run:
    """Opens the run, takes one boundary (`boundaries=0`: none), stops; a component `w` of fixed shape."""
    given = {"config": {**CONFIG, **(config or {})}, "every": perdure.Every(updates=1), "keep": None, **options}
    w, boundaries = given.pop("w", np.zeros(2)), given.pop("boundaries", 1)
    with Run(path, **given) as run:
        s = run.restore(w=w)
        for _ in range(boundaries):
            run.boundary(env_steps=run.env_steps + 10, w=s.w)
    return run


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    go(tmp_path / "x")
    return tmp_path / "x"


def amended(path: Path) -> dict[int, tuple[str, ...]]:
    """What each checkpoint bears, by its step."""
    store = RunDirectory(path).store()
    manifests = [read_manifest(store, name)[0] for name in store.names()]
    return {manifest.env_steps: tuple(manifest.amended) for manifest in manifests}


# Mistakes.


MISTAKES = {
    "another old value": ({"lr": 1e-4}, "algorithm.lr=0.0002:0.0001", "algorithm.lr=0.0003:0.0001"),
    "another new value": ({"lr": 1e-4}, "algorithm.lr=0.0003:0.0002", "algorithm.lr=0.0003:0.0001"),
    "the wrong way round": ({"lr": 1e-4}, "algorithm.lr=0.0001:0.0003", "algorithm.lr=0.0003:0.0001"),
    "an int for a float": ({"clip": 2.0}, "algorithm.clip=3:2.0", "algorithm.clip=3.0:2.0"),
    "an int for a new float": ({"clip": 2.0}, "algorithm.clip=3.0:2", "algorithm.clip=3.0:2.0"),
    "a number for text": ({"name": "1"}, "algorithm.name=a:1", "algorithm.name=a:'1'"),
    "a missing key for its name": ({"name": "nothing"}, "algorithm.name=a:nothing", "algorithm.name=a:'nothing'"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_values_that_are_not_exactly_those_accept_nothing_and_the_right_ones_are_said(case: str, begun: Path):
    config, said, right = MISTAKES[case]
    before = contents(begun)

    with pytest.raises(ContractError) as caught:
        go(begun, config, accept=[said])

    assert contents(begun) == before
    assert code_of(caught.value) == 3
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        f"{begun}, step_0000000010: this is not the same run: 1 difference, 1 acceptance accepts nothing; "
        "nothing was changed."
    )
    assert lines[2].startswith(f"  --accept {said}: ")
    assert lines[2].endswith(f"The two values are others: write --accept {right}, if that is what you want.")
    assert go(begun, config, accept=[right]).amended == (right,)  # the twin


def test_what_does_not_differ_cannot_be_accepted(begun: Path):
    before = contents(begun)

    with pytest.raises(ContractError) as caught:
        go(begun, accept={"algorithm.lr": (3e-4, 1e-4)})

    assert contents(begun) == before
    assert str(caught.value).splitlines() == [
        f"{begun}, step_0000000010: 1 acceptance accepts nothing; nothing was changed.",
        "  --accept algorithm.lr=0.0003:0.0001: No such difference: leave it out, or correct the key.",
    ]


def test_one_mistake_spoils_all_and_nothing_is_taken_in_part(begun: Path):
    """A right acceptance beside a wrong one is not taken either: the user did not know what they were accepting."""
    right = {"algorithm.lr": (3e-4, 1e-4)}

    with pytest.raises(ContractError) as caught:
        go(begun, {"lr": 1e-4}, accept={**right, "algorithm.clip": (3.0, 2.0)})

    assert [finding.key for finding in caught.value.findings] == ["--accept algorithm.clip=3.0:2.0"]
    assert amended(begun) == {0: (), 10: ()}
    assert go(begun, {"lr": 1e-4}, accept=right).resumed


def test_one_of_two_differences_is_not_enough(begun: Path):
    with pytest.raises(ContractError) as caught:
        go(begun, {"lr": 1e-4, "clip": 2.0}, accept={"algorithm.lr": (3e-4, 1e-4)})

    assert [finding.key for finding in caught.value.findings] == ["algorithm.clip"]


FORBIDDEN: dict[str, tuple[dict[str, Any], str]] = {
    "seed": ({"config": {**CONFIG, "seed": 2}}, "seed.seed=1:2"),
    "interface": ({"contract": {"interface": {"size": 5}}}, "interface.size=4:5"),
    "a leaf": ({"w": np.zeros(3)}, "w=float64 2:float64 3"),
    "a leaf's kind": ({"w": np.zeros(2, np.float32)}, "w=float64 2:float32 2"),
}


@pytest.mark.parametrize("case", FORBIDDEN)
def test_what_may_never_be_accepted(case: str, tmp_path: Path):
    changed, said = FORBIDDEN[case]
    interface: dict[str, Any] = {"contract": {"interface": {"size": 4}}}
    go(tmp_path / "x", **interface)
    before = contents(tmp_path / "x")

    with pytest.raises(ContractError) as caught:
        go(tmp_path / "x", **{**interface, **changed}, accept=[said])

    assert contents(tmp_path / "x") == before
    assert [finding.acceptance for finding in caught.value.findings] == [None, None]
    section = caught.value.findings[0].section
    assert f"Section {section} takes no acceptance." in str(caught.value)
    assert go(tmp_path / "x", **interface).resumed  # the run as it was


@pytest.mark.parametrize("accept", ["algorithm.lr=1:2", ["algorithm.lr"], ["=1:2"], {"algorithm.lr": 1}, [""], ["a=1"]])
def test_malformed_texts_are_refused_where_they_are_given(accept: Any, begun: Path):
    before = contents(begun)

    with pytest.raises(UsageError, match=r"accept") as caught:
        Run(begun, accept=accept)

    assert code_of(caught.value) == 2
    assert contents(begun) == before


@pytest.mark.parametrize("mode", ["auto", "new"])
def test_there_is_nothing_to_accept_before_there_is_a_run(mode: str, tmp_path: Path):
    with pytest.raises(UsageError) as caught:
        go(tmp_path / "a" / "x", mode=mode, accept={"algorithm.lr": (3e-4, 1e-4)})

    assert str(caught.value) == (
        f"{tmp_path / 'a' / 'x'}: nothing to accept: there is no run yet that could differ. Check the spelling."
    )
    assert list(tmp_path.iterdir()) == []


# Values that are hard to write.

VALUES = ["a:b", "a b", "1:2", "nothing", 'say "a"', "it's", "x=y", "ü", "", -1, -0.5, 1e-300, float("nan"), None, True]


@pytest.mark.parametrize("new", VALUES, ids=repr)
def test_any_value_can_be_accepted_by_the_refusal_s_text_and_by_the_pair(new: Any, tmp_path: Path):
    go(tmp_path / "x")
    with pytest.raises(ContractError) as caught:
        go(tmp_path / "x", {"name": new})
    [finding] = caught.value.findings

    by_text = go(tmp_path / "x", {"name": new}, boundaries=0, accept=[str(finding.acceptance)])
    by_pair = go(tmp_path / "x", {"name": new}, accept={"algorithm.name": ("a", new)})

    assert by_text.resumed
    assert by_pair.amended == (finding.acceptance,)
    back = go(tmp_path / "x", accept={"algorithm.name": (new, "a")})
    assert len(back.amended) == 2


def test_a_key_that_appears_or_goes_is_nothing_on_one_side(begun: Path):
    one = go(begun, {"kl": "nothing"}, accept=["algorithm.kl=nothing:'nothing'"])
    two = go(begun, accept=["algorithm.kl='nothing':nothing"])

    assert one.amended == ("algorithm.kl=nothing:'nothing'",)
    assert two.amended == ("algorithm.kl=nothing:'nothing'", "algorithm.kl='nothing':nothing")


@pytest.mark.parametrize("said", ["algorithm.lr=3e-4:1e-4", "algorithm.lr=.0003:0.00010", "algorithm.lr=0.0003:1E-4"])
def test_numbers_may_be_typed_as_people_type_them_and_are_kept_in_one_spelling(said: str, begun: Path):
    assert go(begun, {"lr": 1e-4}, accept=[said]).amended == ("algorithm.lr=0.0003:0.0001",)


# On record.


LR = "algorithm.lr=0.0003:0.0001"


def test_later_checkpoints_are_amended_and_earlier_ones_are_not(begun: Path):
    go(begun, {"lr": 1e-4}, accept=[LR])
    go(begun, {"lr": 1e-4})
    go(begun, {"lr": 1e-4, "clip": 1.0}, accept={"algorithm.clip": (3.0, 1.0)})

    clip = "algorithm.clip=3.0:1.0"
    assert amended(begun) == {0: (), 10: (), 20: (LR,), 30: (LR,), 40: (LR, clip)}


def test_the_same_acceptance_may_be_given_for_ever_and_counts_once(begun: Path):
    """A supervisor repeats its command line."""
    runs = [go(begun, {"lr": 1e-4}, accept=[LR, "algorithm.lr=3e-4:1e-4"]) for _ in range(3)]

    assert [run.amended for run in runs] == [(LR,)] * 3
    events = [event for event in read_lineage(begun / "lineage.jsonl") if event["event"] == "resumed"]
    assert [event["accepted"] for event in events] == [[{"text": LR}], [], []]


def test_a_repeated_acceptance_opens_no_way_back(begun: Path):
    """OLD:NEW was accepted once; a script that has fallen back to OLD is another run, whatever it repeats."""
    go(begun, {"lr": 1e-4}, accept=[LR])

    with pytest.raises(ContractError) as caught:
        go(begun, accept=[LR])

    assert [finding.acceptance for finding in caught.value.findings] == ["algorithm.lr=0.0001:0.0003"]


def test_an_acceptance_of_a_stepped_back_checkpoint_counts_again(begun: Path):
    """Accepted at step 10, committed at 20, and 20 is damaged: from 10 on the acceptance holds once more."""
    go(begun, {"lr": 1e-4}, accept=[LR])
    newest = begun / "checkpoints" / "step_0000000020" / "MANIFEST.json"
    newest.write_bytes(newest.read_bytes()[:-2])

    run = go(begun, {"lr": 1e-4})

    assert run.amended == (LR,)
    assert run.notices[0].startswith("stepped back over a damaged checkpoint: ")
    assert f"accepted: {LR}." in run.notices
