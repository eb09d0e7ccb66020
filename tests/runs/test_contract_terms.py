"""The whole contract of a start, and the verdict: what is completed, compared, told, and borne by later checkpoints."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from perdure.checkpoint.capture import Captured
from perdure.contract.config import Contract
from perdure.contract.horizon import PROGRESS
from perdure.format.manifest import Manifest
from perdure.runs import contract_terms
from perdure.runs.contract_terms import ContractTerms, Verdict, judge
from perdure.tree.leaves import Array, Tree
from perdure.tree.snapshot import Component, Snapshot

HERE = {"numpy": "2.0", "threads": "8", "instruction set": "avx2"}


@pytest.fixture(autouse=True)
def this_process(monkeypatch: pytest.MonkeyPatch):
    """A process whose facts and switches the tests know."""
    monkeypatch.setattr(contract_terms, "arithmetic", lambda: dict(HERE))
    monkeypatch.setattr(contract_terms, "switches", lambda: {"jax_enable_x64": False})


def captured(settings: Mapping[Any, Any] | None = None, **trees: Tree) -> Captured:
    components = {name: Component("dict", tree) for name, tree in trees.items()}
    return Captured(Snapshot(components, 0, 0, 0), frozenset(), frozenset(), settings or {})


def manifest(contract: Contract, *, env_steps: int = 0, arithmetic: Mapping[str, str] | None = None) -> Manifest:
    facts = HERE if arithmetic is None else arithmetic
    return Manifest(env_steps, 0, 0, {}, {}, "", "", contract=contract, arithmetic=facts)


def terms(total: int | None = None, **more: Any) -> ContractTerms:
    declared: Contract = {"algorithm": {"lr": 0.1}, "horizon": {} if total is None else {"total": total}}
    return ContractTerms(declared, **more)


# The contract.


def test_settings_numbers_and_switches_complete_what_the_script_says():
    fresh = captured({("net", "rate"): 0.5}, net={"rate": 0.5, "w": Array(np.ones(2))}, count=3)

    assert terms().contract(fresh) == {
        "algorithm": {"lr": 0.1},
        "module settings": {"net/rate": 0.5},
        "horizon": {},
        "numerics": {"jax_enable_x64": False},
        "start": {"net/rate": 0.5, "net/w": 1.0, "count": 3},
    }


def test_a_free_setting_is_operational():
    fresh = captured({("net", "created"): 1.0, ("net", "rate"): 0.5})

    contract = terms(free=("net/created",)).contract(fresh)

    assert contract["operational"] == {"net/created": 1.0}
    assert contract["module settings"] == {"net/rate": 0.5}


@pytest.mark.parametrize(
    ("schedules", "section"),
    [
        (None, {"total": 100}),
        ("none", {"total": 100}),
        ("keep", {"total": 100, PROGRESS: "0:0.0 100:1.0"}),
        ("restretch", {"total": 100, PROGRESS: "0:0.0 100:1.0"}),
    ],
)
def test_knots_are_kept_where_schedules_go_by_them(schedules: Any, section: dict[str, Any]):
    assert terms(100, schedules=schedules).contract(captured())["horizon"] == section


def test_making_a_contract_changes_nothing_of_what_the_script_said():
    said = terms(100, schedules="keep")

    said.contract(captured({("net", "rate"): 0.5}))

    assert said.declared == {"algorithm": {"lr": 0.1}, "horizon": {"total": 100}}


# The verdict.


def verdict(saved: ContractTerms, now: ContractTerms, **more: Any) -> Verdict:
    return judge(now, now.contract(captured()), manifest(saved.contract(captured()), **more))


def keys(judged: Verdict) -> list[str]:
    return [finding.key for finding in judged.findings]


def test_the_same_start_again_is_no_difference():
    judged = verdict(terms(100), terms(100))

    assert (judged.findings, judged.notices, judged.arithmetic, judged.totals) == ([], [], {}, None)
    assert judged.contract == terms(100).contract(captured())


def test_judging_changes_neither_contract():
    saved, now = terms(100).contract(captured()), terms(200).contract(captured())
    before = repr((saved, now))

    judge(terms(200, schedules="keep", numerics="strict"), now, manifest(saved))

    assert repr((saved, now)) == before


def test_all_findings_come_sorted_by_section_those_of_the_horizon_among_them():
    saved: Contract = {"seed": {"seed": 1}, "algorithm": {"a": 1}, "horizon": {"total": 1}, "env": {"id": "A"}}
    now: Contract = {"seed": {"seed": 2}, "algorithm": {"a": 2}, "horizon": {"total": 2}, "env": {"id": "B"}}

    judged = judge(ContractTerms(), now, manifest(saved))

    assert keys(judged) == ["algorithm.a", "env.id", "horizon.total", "seed.seed"]


def test_the_numbers_of_a_start_are_never_compared():
    saved, now = terms().contract(captured(lr=0.1)), terms().contract(captured(lr=0.2))

    judged = judge(terms(), now, manifest(saved))

    assert judged.findings == []
    assert judged.contract["start"] == {"lr": 0.2}


CHANGED = {**HERE, "numpy": "1.0", "instruction set": "avx512f"}
TOLD = [
    f"arithmetic changed: {name}: {then} then, {now} now. The last bits of results may differ from here on."
    for name, then, now in (("instruction set", "avx512f", "avx2"), ("numpy", "1.0", "2.0"))
]


def test_changed_arithmetic_is_told_and_is_no_finding():
    judged = verdict(terms(), terms(), arithmetic=CHANGED)

    assert (judged.findings, judged.notices) == ([], TOLD)
    assert judged.arithmetic == {"instruction set": ("avx512f", "avx2"), "numpy": ("1.0", "2.0")}


def test_strict_numerics_make_findings_of_it_that_may_be_accepted():
    judged = verdict(terms(), terms(numerics="strict"), arithmetic=CHANGED)

    assert [finding.acceptance for finding in judged.findings] == [
        "numerics.instruction_set=avx512f:avx2",
        "numerics.numpy='1.0':'2.0'",
    ]
    assert verdict(terms(), terms(numerics="strict")).findings == []  # the twin
    assert "numpy" not in judged.contract["numerics"]  # facts of a process are no part of the contract


def test_what_only_one_process_has_loaded_is_no_difference_even_to_a_strict_run():
    fewer = {name: text for name, text in HERE.items() if name != "numpy"}

    assert verdict(terms(), terms(numerics="strict"), arithmetic=fewer).findings == []
    assert verdict(terms(), terms(numerics="strict"), arithmetic={**HERE, "torch": "2"}).findings == []


def test_a_switch_that_differs_is_a_finding_in_every_run(monkeypatch: pytest.MonkeyPatch):
    saved = manifest(terms().contract(captured()))
    monkeypatch.setattr(contract_terms, "switches", lambda: {"jax_enable_x64": True})

    assert keys(judge(terms(), terms().contract(captured()), saved)) == ["numerics.jax_enable_x64"]
    monkeypatch.setattr(contract_terms, "switches", dict)  # a process that has not loaded JAX
    assert keys(judge(terms(), terms().contract(captured()), saved)) == []


# The horizon that later checkpoints bear.


@pytest.mark.parametrize(
    ("then", "now", "section"),
    [
        (None, None, {"total": 200}),
        ("none", "none", {"total": 200}),
        ("none", "keep", {"total": 200, PROGRESS: "0:0.0 100:1.0"}),
        ("keep", "keep", {"total": 200, PROGRESS: "0:0.0 100:1.0"}),
        ("keep", "none", {"total": 200, PROGRESS: "0:0.0 100:1.0"}),
        ("keep", None, {"total": 200, PROGRESS: "0:0.0 100:1.0"}),
        ("keep", "restretch", {"total": 200, PROGRESS: "0:0.0 50:0.5 200:1.0"}),
        (None, "restretch", {"total": 200, PROGRESS: "0:0.0 50:0.5 200:1.0"}),
    ],
)
def test_a_changed_total_and_the_knots_go_on(then: Any, now: Any, section: dict[str, Any]):
    judged = verdict(terms(100, schedules=then), terms(200, schedules=now), env_steps=50)

    assert judged.contract["horizon"] == section
    assert keys(judged) == ([] if now else ["horizon.total"])
    assert judged.totals == ((100, 200) if now else None)
    assert judged.notices == (["the total of steps changed from 100 to 200."] if now else [])


def test_knots_that_nothing_changed_are_kept():
    """A run that was stretched once goes on along its bent line, whatever a fresh start's would be."""
    saved = {**terms(200).contract(captured()), "horizon": {"total": 200, PROGRESS: "0:0.0 50:0.5 200:1.0"}}
    now = terms(200, schedules="restretch")

    judged = judge(now, now.contract(captured()), manifest(saved, env_steps=125))

    assert judged.progress is not None
    assert judged.progress.at(125) == 0.75
    assert judged.contract["horizon"] == saved["horizon"]
    assert now.contract(captured())["horizon"][PROGRESS] == "0:0.0 200:1.0"
