"""Overrides: by key and exact value, only what differs, only where it is allowed; what follows from them."""

from typing import Any

import numpy as np
import pytest

from perdure.contract.comparison import compare
from perdure.contract.facts import compare_facts
from perdure.contract.overrides import Overrides, given_texts, settle
from perdure.errors import ContractError, Finding, UsageError

LR = "algorithm.lr=0.0003:0.0001"


def findings(section: str = "algorithm", *, old: Any = 3e-4, new: Any = 1e-4) -> list[Finding]:
    return compare({section: {"lr": old}}, {section: {"lr": new}})


def settled(listed: list[Finding], *given: str, **more: Any) -> tuple[list[str], list[str]]:
    """Keys that remain, and texts that were accepted."""
    result = settle(listed, Overrides(given, **more))
    return [finding.key for finding in result.remaining], [pair.text for pair in result.accepted]


@pytest.mark.parametrize("given", [LR, "algorithm.lr=3e-4:1e-4", "algorithm.lr=.0003:0.00010"])
def test_an_acceptance_of_both_values_takes_the_finding_away(given: str):
    assert settled(findings(), given) == ([], [LR])


def test_without_one_the_finding_remains():
    assert settled(findings()) == (["algorithm.lr"], [])


@pytest.mark.parametrize(
    "given",
    [
        "algorithm.lr=0.0002:0.0001",
        "algorithm.lr=0.0003:0.0002",
        "algorithm.lr=0.0001:0.0003",
        "algorithm.lr='0.0003':0.0001",
        "algorithm.lr=0.0003:nothing",
    ],
)
def test_wrong_values_accept_nothing_and_the_right_text_is_said(given: str):
    remaining = settle(findings(), Overrides((given,))).remaining

    assert [finding.key for finding in remaining] == ["algorithm.lr", f"--accept {given}"]
    assert str(remaining[1]) == (
        f"--accept {given}: 0.0003 in the run, 0.0001 here. The two values are others: write --accept {LR}, if that is "
        "what you want."
    )


@pytest.mark.parametrize("section", ["seed", "interface"])
def test_a_forbidden_section_takes_none(section: str):
    remaining = settle(findings(section, old=1, new=2), Overrides((f"{section}.lr=1:2",))).remaining

    assert [finding.key for finding in remaining] == [f"{section}.lr", f"--accept {section}.lr=1:2"]
    assert f"Section {section} takes no acceptance." in str(remaining[1])


def test_a_structural_difference_takes_none():
    leaf = Finding("net/kernel", "float32 2", "float32 3", "Build it with the run's sizes.")

    remaining = settle([leaf], Overrides(("net/kernel=float32 2:float32 3",))).remaining

    assert [finding.key for finding in remaining] == ["net/kernel", "--accept net/kernel=float32 2:float32 3"]


def test_what_does_not_differ_cannot_be_accepted():
    [mistake] = settle([], Overrides((LR,))).remaining

    assert str(mistake) == f"--accept {LR}: No such difference: leave it out, or correct the key."


def test_what_was_accepted_before_may_be_said_again_and_what_is_recorded_need_not_be():
    assert settled([], LR, amended=frozenset({LR})) == ([], [])
    assert settled([], "algorithm.lr=3e-4:1e-4", amended=frozenset({LR})) == ([], [])
    assert settled([], "algorithm.lr=3e-4:2e-4", amended=frozenset({LR}))[0] == ["--accept algorithm.lr=3e-4:2e-4"]
    assert settled(findings(), recorded=frozenset({LR})) == ([], [LR])
    assert settled([], recorded=frozenset({LR})) == ([], [])


def test_types_count():
    listed = findings(old=1, new=1.0)

    assert settled(listed, "algorithm.lr=1:1.0") == ([], ["algorithm.lr=1:1.0"])
    assert settled(listed, "algorithm.lr=1.0:1")[0] == ["algorithm.lr", "--accept algorithm.lr=1.0:1"]


@pytest.mark.parametrize("old", ["a:b", "a b", "nothing", "x=y", 'say "a"', "1:2", "ü", -1, float("nan"), None, ""])
@pytest.mark.parametrize("new", ["b:a", "c'd", "1", 2.5])
def test_the_text_of_a_refusal_accepts_it_whatever_the_values(old: Any, new: Any):
    listed = findings(old=old, new=new)

    assert settled(listed, str(listed[0].acceptance)) == ([], [listed[0].acceptance])


def test_missing_keys_are_nothing():
    listed = compare({"algorithm": {"a": 1}}, {"algorithm": {"b": "nothing"}})

    assert [finding.acceptance for finding in listed] == ["algorithm.a=1:nothing", "algorithm.b=nothing:'nothing'"]
    assert settled(listed, "algorithm.a=1:nothing", "algorithm.b=nothing:'nothing'")[0] == []


def facts(**pairs: tuple[str, str]) -> list[Finding]:
    return compare_facts("opt", {k: old for k, (old, _) in pairs.items()}, {k: new for k, (_, new) in pairs.items()})


def test_the_same_two_numbers_in_an_object_follow_with_either_sign():
    listed = findings() + facts(rate=("0.0003", "0.0001"), step=("-0.0003", "-0.0001"), other=("0.0003", "0.0002"))

    remaining, accepted = settled(listed, LR)

    assert remaining == ["opt/other"]
    assert accepted == [LR, "opt/rate=0.0003:0.0001", "opt/step=-0.0003:-0.0001"]


def test_a_refusal_says_what_follows_and_asks_for_the_first_alone():
    remaining = settle(findings() + facts(step=("-0.0003", "-0.0001")), Overrides()).remaining

    assert [finding.follows for finding in remaining] == [None, "algorithm.lr"]
    assert str(ContractError("x", remaining)).splitlines()[-1] == f"  To go on all the same: --accept {LR}"


def test_numbers_of_two_objects_do_not_follow_from_one_another():
    listed = facts(a=("0.9", "0.8"), b=("0.9", "0.8"))

    assert settled(listed, "opt/a=0.9:0.8")[0] == ["opt/b"]


def test_a_class_under_another_name_follows_everywhere_and_a_flag_does_not():
    listed = facts(
        a=("class x:Net", "class y:Net"), b=("class x:Net", "class y:Net"), c=("True", "False"), d=("True", "False")
    )

    remaining, accepted = settled(listed, "opt/a=class x:Net:class y:Net", "opt/c=True:False")

    assert remaining == ["opt/d"]
    assert accepted == ["opt/a=class x:Net:class y:Net", "opt/c=True:False", "opt/b=class x:Net:class y:Net"]


def test_pairs_by_key_are_written_as_texts():
    accept = {"algorithm.lr": (3e-4, 1e-4), "env.id": ("A", "B c"), "net/rate": (None, True)}

    assert given_texts(accept) == (LR, "env.id=A:'B c'", "net/rate=None:True")


@pytest.mark.parametrize("accept", ["a=1:2", ["a"], ["a=1"], ["=1:2"], {"a": 1}, {"a": (1, 2, 3)}])
def test_what_is_no_acceptance_is_refused_at_once(accept: Any):
    with pytest.raises(UsageError, match=r"accept"):
        given_texts(accept)


def test_two_changes_never_share_a_text():
    """Values with colons come in quotes, so that where the old one ends is never a guess."""
    listed = findings(old="a", new="b:c")

    assert settled(listed, "algorithm.lr='a:b':c")[0] == ["algorithm.lr", "--accept algorithm.lr='a:b':c"]
    assert settled(listed, "algorithm.lr=a:'b:c'")[0] == []


def test_what_follows_has_the_same_type_and_comes_from_a_hyper_parameter():
    """An accepted 1 is no 1.0, and an accepted environment is no learner."""
    layers, scale = compare({"algorithm": {"n": 1}}, {"algorithm": {"n": 2}}), facts(scale=("1.0", "2.0"))
    sigma = compare({"env": {"sigma": 0.1}}, {"env": {"sigma": 0.2}})

    assert settled(layers + scale, "algorithm.n=1:2")[0] == ["opt/scale"]
    assert settled(sigma + facts(rate=("0.1", "0.2")), "env.sigma=0.1:0.2")[0] == ["opt/rate"]


@pytest.mark.parametrize("accept", [None, 5, [("algorithm.lr", 1, 2)]])
def test_other_kinds_of_acceptances_are_refused_at_once(accept: Any):
    with pytest.raises(UsageError, match=r"^accept="):
        given_texts(accept)


def test_numbers_of_numpy_count_as_python_s():
    assert given_texts({"algorithm.lr": (np.float64(3e-4), np.float64(1e-4))}) == (LR,)
    assert given_texts({"algorithm.n": (np.int64(1), np.asarray(2))}) == ("algorithm.n=1:2",)
