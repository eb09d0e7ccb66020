"""Comparing two contracts: typed, complete, all findings at once."""

from collections.abc import Mapping
from typing import Any

from perdure.contract.sections import FREE, OPERATIONAL, SETTINGS, Rule, rule_of
from perdure.contract.text import ABSENT, same, text_of
from perdure.errors import Finding
from perdure.tree.diff import summary

Sections = Mapping[str, Mapping[str, Any]]


def compare(saved: Sections, found: Sections) -> list[Finding]:
    """Every difference that speaks against a resume, sorted by section and key; settings come last in `algorithm`.

    Values are compared with their types: 1, 1.0, "1" and True are four different values. A key that one side lacks is
    a difference, also where the other side's section is free.
    """
    findings = []
    for section in sorted((saved.keys() | found.keys()) - FREE, key=lambda name: (_told_as(name), name)):
        old, new = saved.get(section, {}), found.get(section, {})
        rule = rule_of(section)
        keys = old.keys() & new.keys() if rule.needs_both else old.keys() | new.keys()
        for key in sorted(keys):
            if not (key in old and key in new and same(old[key], new[key])):
                findings.append(_finding(section, key, old, new, rule, _moved(key, saved, found)))
    return findings


def _finding(section: str, key: str, old: Mapping[str, Any], new: Mapping[str, Any], rule: Rule, moved: str) -> Finding:
    if section == SETTINGS and not moved and not (key in old and key in new):
        rule = rule.on_one_side_only
    texts = [text_of(side[key]) if key in side else ABSENT for side in (old, new)]
    return Finding(
        name_of(section, key),
        summary(old[key]) if key in old else ABSENT,
        summary(new[key]) if key in new else ABSENT,
        f"{moved}{rule.advice}",
        _told_as(section),
        rule.meaning,
        ":".join(texts) if rule.is_acceptable else None,
    )


def name_of(section: str, key: str) -> str:
    """A key as people write it: `algorithm.learning_rate`; the path of a setting needs no section before it."""
    return key if section == SETTINGS else f"{section}.{key}"


def _told_as(section: str) -> str:
    """The section that a finding names."""
    return "algorithm" if section == SETTINGS else section


def _moved(key: str, saved: Sections, found: Sections) -> str:
    """A remark where `free=` covers the key on one side only."""
    free_then, free_now = key in saved.get(OPERATIONAL, {}), key in found.get(OPERATIONAL, {})
    if free_then == free_now:
        return ""
    return f"The key is free {'here and was not in the run' if free_now else 'in the run and is not here'}. "
