"""Comparing two contracts: typed, complete, all findings at once."""

from collections.abc import Mapping
from typing import Any

from perdure.errors import Finding
from perdure.tree.diff import summary

FREE_SECTIONS = frozenset({"operational"})
ABSENT = "nothing"

_ADVICE = {
    "seed": "A resume goes on with the run's seed: pass the saved one, or start a new run.",
    "horizon": "Pass the saved total, or start a new run.",
}
_DEFAULT_ADVICE = "Pass the saved value, or start a new run with the new one."


def compare(saved: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Every difference that speaks against a resume, sorted by section and key.

    Values are compared with their types: 1, 1.0, "1" and True are four different values.
    """
    findings = []
    for section in sorted((saved.keys() | found.keys()) - FREE_SECTIONS):
        old, new = saved.get(section, {}), found.get(section, {})
        for key in sorted(old.keys() | new.keys()):
            if not (key in old and key in new and _same(old[key], new[key])):
                findings.append(
                    Finding(
                        f"{section}.{key}",
                        summary(old[key]) if key in old else ABSENT,
                        summary(new[key]) if key in new else ABSENT,
                        _ADVICE.get(section, _DEFAULT_ADVICE),
                    )
                )
    return findings


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))
