"""Overrides: which differences somebody accepts, one by one and by exact value; there is no blanket "force"."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.contract.text import literal, means, text_of
from perdure.errors import MISTAKEN, Finding, UsageError

Accept = Mapping[str, tuple[Any, Any]] | Sequence[str]
"""`{"algorithm.learning_rate": (3e-4, 1e-4)}`, or texts as the command line has them: `["KEY=OLD:NEW"]`."""


@dataclass(frozen=True)
class Overrides:
    """What is accepted."""

    given: tuple[str, ...] = ()
    """`KEY=OLD:NEW` each, by whoever resumes now. One that accepts nothing is an error."""
    recorded: frozenset[str] = frozenset()
    """Accepted earlier for the checkpoint at hand, by a resume that got no further: they need not be given again."""
    amended: frozenset[str] = frozenset()
    """Accepted earlier and part of the run since: giving one again says nothing new and is no error."""
    reason: str | None = None
    """Why, in the words of whoever accepts."""


@dataclass(frozen=True)
class Accepted:
    """One accepted difference."""

    text: str
    """`KEY=OLD:NEW`, exact."""
    key: str
    """Where."""
    old: str
    """What the run held, as text."""
    new: str
    """What is here."""
    implied_by: str | None = None
    """The key whose acceptance covers this one, for it is the same number in another place."""

    @property
    def values(self) -> tuple[Any, Any]:
        """Both as values."""
        return literal(self.old), literal(self.new)


@dataclass(frozen=True)
class Settled:
    """What overrides leave of the findings."""

    remaining: list[Finding] = field(default_factory=list)
    """What still speaks against the resume, mistaken overrides included."""
    accepted: list[Accepted] = field(default_factory=list)
    """What does not any more."""


def given_texts(accept: Accept) -> tuple[str, ...]:
    """Acceptances as texts.

    Raises:
        UsageError: one is not of the form `KEY=OLD:NEW`, or not a pair.
    """
    if isinstance(accept, str) or not isinstance(accept, Mapping | Sequence):
        raise UsageError(f"accept={accept!r}: a list of texts, such as [{accept!r}].")
    if not isinstance(accept, Mapping):
        return tuple(map(_checked, accept))
    for key, pair in accept.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UsageError(f"accept[{key!r}]={pair!r}: a pair (old value, new value).")
    return tuple(f"{key}={_text_of(old)}:{_text_of(new)}" for key, (old, new) in accept.items())


def _text_of(value: Any) -> str:
    """NumPy's and JAX's numbers count as Python's, as they do in a configuration."""
    return text_of(value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value)


def _checked(text: str) -> str:
    if not isinstance(text, str):
        raise UsageError(f"accept={text!r}: a text KEY=OLD:NEW; pairs of values come by key, {{KEY: (OLD, NEW)}}.")
    key, equals, change = text.partition("=")
    if not (key and equals and ":" in change):
        raise UsageError(f"--accept {text}: write KEY=OLD:NEW, as the refusal says it.")
    return text


def settle(findings: Iterable[Finding], overrides: Overrides) -> Settled:
    """Takes the accepted findings away.

    An acceptance covers one key and exactly its two values, typed. It also covers what is that change seen from another
    place: a part of a component (`optimizer/tx/…/step_size`) that holds the same two numbers, or both with the other
    sign; the same class or function under its other name.
    """
    listed = list(findings)
    said = [*overrides.given, *overrides.recorded]
    direct = [finding for finding in listed if any(_covers(text, finding) for text in said)]
    accepted = [_accepted(finding) for finding in direct]
    rest = [finding for finding in listed if finding not in direct]
    implied = [pair for finding in rest if (pair := _implied(finding, accepted)) is not None]
    covered = {acceptance.key for acceptance in implied}
    remaining = _with_leaders([finding for finding in rest if finding.key not in covered])
    mistakes = [_mistake(text, listed) for text in overrides.given if not _is_said_well(text, listed, overrides)]
    return Settled([*remaining, *mistakes], [*accepted, *implied])


def _with_leaders(findings: list[Finding]) -> list[Finding]:
    """Findings that are the change of another one, seen from elsewhere, say so."""
    leaders = [_accepted(finding) for finding in findings if finding.change and not _is_inside(finding.key)]
    told = []
    for finding in findings:
        pair = _implied(finding, leaders)
        told.append(replace(finding, follows=pair.implied_by) if pair else finding)
        if pair is None and finding.change is not None:
            leaders.append(_accepted(finding))
    return told


def _accepted(finding: Finding) -> Accepted:
    return Accepted(str(finding.acceptance), finding.key, *_sides(finding))


def _sides(finding: Finding) -> tuple[str, str]:
    """Old and new as texts. Where a text holds a colon, any split gives back the same acceptance."""
    splits = _splits(finding.change or "")
    shown = ((old, new) for old, new in splits if old == finding.saved and new == finding.found)
    return next(shown, splits[0])


def _covers(text: str, finding: Finding) -> bool:
    return finding.change is not None and _means_change(text, finding.key, finding.change)


def _means_change(text: str, key: str, change: str) -> bool:
    """Whether `text`, typed by a person, says this change of this key."""
    if not text.startswith(f"{key}="):
        return False
    said = text.removeprefix(f"{key}=")
    return said == change or any(
        means(old, exact_old) and means(new, exact_new)
        for old, new in _splits(said)
        for exact_old, exact_new in _splits(change)
    )


def _repeats(text: str, amended: str) -> bool:
    """Whether `text` says what was accepted before as `amended`."""
    return any(
        _means_change(text, amended[:at], amended[at + 1 :]) for at, letter in enumerate(amended) if letter == "="
    )


def _splits(change: str) -> list[tuple[str, str]]:
    """Every way to read `OLD:NEW`; values may hold colons themselves."""
    return [(change[:at], change[at + 1 :]) for at, letter in enumerate(change) if letter == ":"]


def _implied(finding: Finding, accepted: Collection[Accepted]) -> Accepted | None:
    """What an acceptance of another key says about a finding inside of a component."""
    if finding.change is None or not _is_inside(finding.key):
        return None
    pair = _accepted(finding)
    leader = next((other for other in accepted if _is_same_name(pair, other) or _is_same_number(pair, other)), None)
    return replace(pair, implied_by=leader.key) if leader else None


def _is_inside(key: str) -> bool:
    """Whether a finding is of something inside of a component.

    A path begins with the component's name, which has no dot; a key of the contract begins with its section and one.
    """
    component, slash, _ = key.partition("/")
    return bool(slash) and "." not in component


def _is_setting(finding: Finding) -> bool:
    return _is_inside(finding.key) and finding.section == "algorithm"


def _is_same_name(pair: Accepted, other: Accepted) -> bool:
    """A class or function that got another name got it everywhere."""
    return (pair.old, pair.new) == (other.old, other.new) and pair.old.startswith(("class ", "function "))


def _is_same_number(pair: Accepted, other: Accepted) -> bool:
    """The same two numbers, with their type, as those of a hyper-parameter, or both with the other sign."""
    values, others = pair.values, other.values
    kinds = {type(value) for value in (*values, *others)}
    if not other.key.startswith("algorithm.") or kinds not in ({int}, {float}):
        return False
    return any(values == (sign * others[0], sign * others[1]) for sign in (1, -1))


def _is_said_well(text: str, findings: list[Finding], overrides: Overrides) -> bool:
    repeats = any(_repeats(text, amended) for amended in overrides.amended)
    return repeats or any(_covers(text, finding) for finding in findings)


def _mistake(text: str, findings: list[Finding]) -> Finding:
    """Why an override accepts nothing."""
    about = next((finding for finding in findings if text.startswith(f"{finding.key}=")), None)
    if about is None:
        return Finding(f"--accept {text}", "", "", "No such difference: leave it out, or correct the key.", MISTAKEN)
    if about.change is None:
        what = "A part that one side lacks" if _is_setting(about) else f"Section {about.section}"
        advice = f"{what} takes no acceptance. {about.advice}"
        return Finding(f"--accept {text}", about.saved, about.found, advice, MISTAKEN)
    advice = f"The two values are others: write --accept {about.acceptance}, if that is what you want."
    return Finding(f"--accept {text}", about.saved, about.found, advice, MISTAKEN)
