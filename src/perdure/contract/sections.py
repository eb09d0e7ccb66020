"""The sections of a contract, and what a difference in each does."""

from dataclasses import dataclass, replace
from types import MappingProxyType

SETTINGS = "module settings"
"""Plain attributes of modules as a fresh start holds them, by path; findings count them among `algorithm`."""


@dataclass(frozen=True)
class Rule:
    """What a difference in a section means."""

    meaning: str
    """What going on all the same would mean."""
    advice: str
    """The way out."""
    is_acceptable: bool = True
    """Whether a difference may be accepted, on record."""
    needs_both: bool = False
    """Whether a key counts only if both sides have it."""

    @property
    def on_one_side_only(self) -> "Rule":
        """For parts of objects that only one side has: what is not there cannot be put there."""
        return replace(self, advice="Build it with the same parts as the run did.", is_acceptable=False)


_SAVED_VALUE = "Pass the saved value, accept the change, or start a new run with the new value."

RULES = MappingProxyType(
    {
        "interface": Rule(
            "The policy would see, or do, something else.",
            "Build the spaces that the run has, or start a new run.",
            is_acceptable=False,
        ),
        "env": Rule("From here on the policy would train in another environment.", _SAVED_VALUE),
        "reward": Rule("Returns from before and after could not be compared.", _SAVED_VALUE),
        "algorithm": Rule("From here on another learner would train.", _SAVED_VALUE),
        "horizon": Rule(
            "The run would end at another step.", "Pass the saved total, accept the change, or start a new run."
        ),
        "seed": Rule(
            "A resume goes on with the run's own random numbers, whatever the seed.",
            "Pass the saved seed, or start a new run.",
            is_acceptable=False,
        ),
        "numerics": Rule(
            "Other numbers would be drawn, or rounded in another way.",
            "Set it as the run had it, or accept the change.",
            needs_both=True,
        ),
    }
)
"""Section -> its rule. Sections of the user's own follow `OWN`."""

OWN = Rule("The run declared that this must not change.", _SAVED_VALUE)

OPERATIONAL = "operational"
"""Keys that may change: paths, names, logging."""

START = "start"
"""Not compared: the numbers that a fresh start holds, by path, so that copies of an accepted value can be found."""

AUDIT = "audit"
"""Not compared: what `perdure audit` is told to leave alone, by place, with the reason."""

FREE = frozenset({OPERATIONAL, START, AUDIT})

RESERVED = frozenset({"horizon", "seed", "numerics", START, AUDIT})
"""Sections that `contract=` may not fill: perdure does, from `config=`, `horizon=` and the process."""


def rule_of(section: str) -> Rule:
    """The rule of a section."""
    return RULES["algorithm"] if section == SETTINGS else RULES.get(section, OWN)
