"""The check outside of a run: complete, typed, and without an offer to accept what nobody would record."""

from __future__ import annotations

import pytest

from perdure import ContractError, check_contract, contract_of

CONFIG = {"rate": 0.5, "total": 100, "seed": 3, "note": "x"}


def sections(**changes):
    return contract_of({**CONFIG, **changes}, horizon="total", free=["note"], own={"env": {"gravity": 9.8}})


def test_equal_contracts_and_free_changes_pass():
    check_contract(sections(), sections(note="y"), place="here")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": 1}, r"algorithm\.rate: 0\.5 in the run, 1 here"),
        ({"seed": 3.0}, r"seed\.seed: 3 in the run, 3\.0 here"),
        ({"total": 40}, r"horizon\.total: 100 in the run, 40 here.*has taken 50 steps already"),
        ({"total": 200}, r"horizon\.total: 100 in the run, 200 here"),
    ],
)
def test_every_difference_is_refused(changes, message):
    with pytest.raises(ContractError, match=message) as refusal:
        check_contract(sections(), sections(**changes), place="the state", env_steps=50)

    assert str(refusal.value).startswith("the state: this is not the same run: 1 difference; nothing was changed.")
    assert "--accept" not in str(refusal.value)


def test_a_longer_total_passes_where_no_schedule_depends_on_it():
    check_contract(sections(), sections(total=200), place="here", schedules="none")


def test_sections_that_one_side_lacks_are_differences():
    with pytest.raises(ContractError, match=r"env\.gravity: 9\.8 in the run, nothing here"):
        check_contract(sections(), contract_of(CONFIG, horizon="total", free=["note"]), place="here")
