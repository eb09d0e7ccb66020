"""Facts must stay what they were when a run was opened, for every resume compares them with those of a fresh start."""

from collections.abc import Mapping

from perdure.contract.facts import compare_facts
from perdure.errors import CaptureError
from perdure.tree.snapshot import Snapshot

Facts = Mapping[str, Mapping[str, str]]
"""By component, then by formatted path below it."""


def facts_by_component(snapshot: Snapshot) -> Facts:
    """The facts of all components."""
    return {name: part.facts for name, part in snapshot.components.items()}


def refuse_changed_facts(opened: Facts, snapshot: Snapshot) -> None:
    """Refuses a save that no resume could go on from: a function that counts in a variable around it, for instance.

    At the first save at which the change shows, and not at the resume a night later.

    Args:
        opened: the facts when the run was opened, which those of a fresh start equal.
        snapshot: what would be saved now.

    Raises:
        CaptureError: a fact is another than it was.
    """
    changed = []
    for name, part in snapshot.components.items():
        before = opened.get(name, {})
        if part.facts != before:  # the unusual case: this runs at every save
            changed += compare_facts(name, before, part.facts)
    if not changed:
        return
    shown = "; ".join(f"{each.key}: {each.saved} when the run was opened, {each.found} now" for each in changed)
    raise CaptureError(
        f"{shown}. Functions, what they bind, classes and dtypes are compared at a resume and never restored, so no "
        "checkpoint with these could be resumed. Keep what changes in an attribute of the environment, wrapper or "
        "module itself, or in an object with state_dict() and load_state_dict(); and build functions and objects "
        "of other classes before restore."
    )
