"""Sections: what a difference in each does, that the document says the same, and that none is forgotten."""

import re
from pathlib import Path

import pytest

from perdure.contract.comparison import compare
from perdure.contract.config import SECTIONS, contract_of
from perdure.contract.sections import FREE, OPERATIONAL, OWN, RESERVED, RULES, START, rule_of
from perdure.errors import UsageError

DOCUMENT = Path(__file__).parents[2] / "docs" / "contract.md"


def verdict(section: str) -> tuple[bool, bool, bool]:
    """Whether another value refuses, whether that may be accepted, whether a key of one side alone refuses."""
    changed = compare({section: {"key": 1}}, {section: {"key": 2}})
    alone = compare({section: {"key": 1}}, {section: {}}) or compare({section: {}}, {section: {"key": 1}})
    return bool(changed), all(finding.acceptance for finding in changed) and bool(changed), bool(alone)


REFUSES, MAY_BE_ACCEPTED, ONE_SIDE_COUNTS = True, True, True


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("interface", (REFUSES, not MAY_BE_ACCEPTED, ONE_SIDE_COUNTS)),
        ("seed", (REFUSES, not MAY_BE_ACCEPTED, ONE_SIDE_COUNTS)),
        ("env", (REFUSES, MAY_BE_ACCEPTED, ONE_SIDE_COUNTS)),
        ("reward", (REFUSES, MAY_BE_ACCEPTED, ONE_SIDE_COUNTS)),
        ("algorithm", (REFUSES, MAY_BE_ACCEPTED, ONE_SIDE_COUNTS)),
        ("horizon", (REFUSES, MAY_BE_ACCEPTED, ONE_SIDE_COUNTS)),
        ("numerics", (REFUSES, MAY_BE_ACCEPTED, not ONE_SIDE_COUNTS)),
        ("a_section_of_my_own", (REFUSES, MAY_BE_ACCEPTED, ONE_SIDE_COUNTS)),
        (OPERATIONAL, (not REFUSES, not MAY_BE_ACCEPTED, not ONE_SIDE_COUNTS)),
        (START, (not REFUSES, not MAY_BE_ACCEPTED, not ONE_SIDE_COUNTS)),
    ],
)
def test_what_a_difference_does(section: str, expected: tuple[bool, bool, bool]):
    assert verdict(section) == expected


def test_every_section_that_perdure_fills_has_a_rule_of_its_own_or_is_free():
    assert {*SECTIONS, *RESERVED} <= RULES.keys() | FREE
    assert RULES.keys() & FREE == set()


def test_an_unknown_section_is_the_user_s_own_and_never_free():
    assert rule_of("anything") is OWN
    assert OWN.meaning == "The run declared that this must not change."


@pytest.mark.parametrize("section", sorted(RULES))
def test_every_rule_says_what_it_means_and_the_way_out_in_sentences(section: str):
    rule = RULES[section]

    for text in (rule.meaning, rule.advice):
        assert text[0].isupper()
        assert text.endswith(".")
    assert ("accept the change" in rule.advice) == rule.is_acceptable


@pytest.mark.parametrize("section", sorted(RESERVED))
def test_what_perdure_fills_cannot_be_filled(section: str):
    with pytest.raises(UsageError) as caught:
        contract_of(None, horizon=None, free=(), own={section: {"x": 1}})

    assert str(caught.value) == (
        f"contract[{section!r}]: a section's name is an identifier, and none of audit, horizon, numerics, seed, start."
    )


@pytest.mark.parametrize("section", [*sorted(RULES), OPERATIONAL])
def test_the_document_lists_every_section_and_says_the_same(section: str):
    [row] = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if _rows(line, section)]
    refuses, acceptable, _ = verdict(section)

    if section != "horizon":  # it has a chapter of its own
        assert ("refuses" in row) == refuses
    assert row.rstrip(" |").endswith({(True, True): "yes", (True, False): "never"}.get((refuses, acceptable), "–"))


def _rows(line: str, section: str) -> bool:
    """Whether the line is the row of a section in the table of what differences do."""
    return re.match(rf"\| [^|]*`{section}`[^|]*\| [^|]* \| [^|]* \|$", line) is not None and _is_verdict(line)


def _is_verdict(line: str) -> bool:
    return line.rstrip(" |").rsplit("| ", maxsplit=1)[-1] in ("never", "yes", "–")
