"""The story of a run: its lineage in sentences."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from perdure.runs.directory import steps_of

Event = Mapping[str, Any]

_ROUTINE = frozenset({"committed", "removed", "exported"})
_WITHOUT_A_WORD = "the process before had ended without a word: killed, or the machine stopped"
_FORKED = "forked"
_ENDS = frozenset({"stopped", "finished", _FORKED})
_BEGINNINGS = frozenset({"started", "resumed"})


@dataclass(frozen=True)
class Sentence:
    """One thing that happened."""

    at: str
    """When, ISO 8601 in UTC."""
    text: str
    """What."""


def story(events: Iterable[Event]) -> Iterator[Sentence]:
    """The events in words, oldest first; commits in a row are told together."""
    before: str | None = None
    for is_routine, group in groupby(events, key=lambda event: event["event"] in _ROUTINE):
        same = list(group)
        if is_routine:
            yield Sentence(same[-1]["at"], _routine(same))
            before = _FORKED if before == _FORKED else "committed"
            continue
        for event in same:
            if event["event"] in _BEGINNINGS and before not in (None, *_ENDS):
                yield Sentence(event["at"], _WITHOUT_A_WORD)
            yield from (Sentence(event["at"], text) for text in _sentences(event))
            before = _FORKED if event.get("forked_from") else event["event"]


def _routine(events: list[Event]) -> str:
    steps = [steps_of(event["checkpoint"]) or 0 for event in events if event["event"] == "committed"]
    removed = sum(len(event["checkpoints"]) for event in events if event["event"] == "removed")
    parts = []
    if len(steps) == 1:
        parts.append(f"committed the checkpoint at step {steps[0]:,}")
    elif steps:
        parts.append(f"committed {len(steps)} checkpoints, from step {steps[0]:,} to {steps[-1]:,}")
    if removed:
        noun = "older one" if steps else "checkpoint"
        parts.append(f"removed {removed} {noun}{'s' if removed > 1 else ''}")
    policies = sum(event["event"] == "exported" for event in events)
    if policies:
        parts.append(f"exported {policies} polic{'ies' if policies > 1 else 'y'}")
    return ", ".join(parts)


def _sentences(event: Event) -> Iterator[str]:
    match event["event"]:
        case "started":
            yield from _started(event)
        case "resumed":
            yield from _resumed(event)
        case "stopped":
            why = event["why"].removesuffix(": ")  # an exception without a message
            yield f"stopped after {hours(event['trained_s'])} of training" + ("" if why == "closed" else f": {why}")
        case "signalled":
            yield f"told to stop by {event['signal']}: {event['checkpoint']} was durable {event['after_s']:.2f} s later"
        case "finished":
            yield f"finished at step {steps_of(event['checkpoint']):,} after {hours(event['trained_s'])} of training"
        case str(name) if name.endswith("_failed"):
            yield f"{name.removesuffix('_failed')} of {event['checkpoint']} failed: {event['problem']}"
        case other:
            yield str(other)


def _started(event: Event) -> Iterator[str]:
    parent = event.get("forked_from")
    if parent:
        yield f"forked from run {parent['run_id'][:8]} at step {steps_of(parent['checkpoint']):,}"
    else:
        yield f"began as run {event['run_id'][:8]}"
    yield from event["notices"]


def _resumed(event: Event) -> Iterator[str]:
    for problem in event["stepped_back"].values():
        yield f"stepped back over a damaged checkpoint: {problem}"
    yield f"went on from step {event['env_steps']:,}, after {hours(event['trained_s'])} of training"
    for acceptance in event["accepted"]:
        implied = acceptance.get("implied_by")
        yield f"accepted {acceptance['text']}" + (f" (follows from {implied})" if implied else "")
    if event["reason"]:
        yield f"because: {event['reason']}"
    if event["amended_leaves"]:
        yield f"accepted values went into {', '.join(event['amended_leaves'])}"
    if event["old_total"] is not None:
        yield f"the total of steps changed from {event['old_total']:,} to {event['total']:,}"
    for name, (then, now) in event["arithmetic"].items():
        yield f"arithmetic changed: {name}: {then} then, {now} now"


def hours(seconds: float) -> str:
    """A span as a person reads it, with two units at most."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if whole < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
