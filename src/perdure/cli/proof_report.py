"""A proof's outcome as text and as a JSON document."""

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perdure.cli.chain_diff import told
from perdure.cli.output import count, print_table
from perdure.proof.evidence import Compared, Parting
from perdure.proof.locating import Located
from perdure.proof.mutate import Mutation
from perdure.proof.verdict import Verdict

Cost = tuple[int, float]
"""Processes and seconds."""

SHOWN = 5
WIDTH = 110


def print_verdict(verdict: Verdict, cost: Cost, kept: Path | None) -> None:
    """The outcome for people."""
    print(_headline(verdict))
    if isinstance(verdict.outcome, Compared):
        _print_compared(verdict.outcome)
        if verdict.resumes != verdict.stops:
            print(f"resumed at   {_boundaries(verdict.resumes)}")
    else:
        _print_parting(verdict, verdict.outcome)
    if verdict.ignored:
        print(f"left out     {', '.join(sorted(verdict.ignored))}: not seeded, and never drawn from")
    print(f"cost         {count(cost[0], 'process')}, {cost[1]:.1f} s")
    if kept is not None:
        print(f"kept in      {kept}")


def _headline(verdict: Verdict) -> str:
    if not verdict.is_deterministic:
        return "not exact: the script itself is not deterministic: two runs that were not interrupted differ"
    if verdict.failed is not None:
        return f"not exact: {_interrupted(verdict)}, the script failed when it was resumed"
    word = "exact" if verdict.is_exact else "not exact"
    end = f"boundary {verdict.end}{', where the script ends' if verdict.finished else ''}"
    return f"{word}: {_interrupted(verdict)}, and compared up to {end}"


def _interrupted(verdict: Verdict) -> str:
    how = "killed" if verdict.killed else "stopped"
    return f"{how} after {_boundaries(verdict.stops)}"


def _boundaries(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:SHOWN]))
    more = f" … {numbers[-1]}" if len(numbers) > SHOWN else ""
    return f"{'boundary' if len(numbers) == 1 else 'boundaries'} {listed}{more}"


def _print_compared(compared: Compared) -> None:
    amounts = count(compared.boundaries, "boundary"), count(compared.leaves, "leaf"), count(compared.rows, "row")
    print(f"equal        {amounts[0]}, {amounts[1]} of the last checkpoint, {amounts[2]} of metrics")
    print(f"runs         {', '.join(compared.runs)}")


def _print_parting(verdict: Verdict, parting: Parting) -> None:
    where = parting.what if parting.difference is None else told(parting.difference)
    print(f"run          {parting.run}")
    print(f"parts        {where}")
    if verdict.failed is not None:
        print(verdict.failed.tail())
    if verdict.located is not None:
        _print_leaves(verdict, verdict.located)
    if verdict.causes:
        print("likely causes")
        for cause in verdict.causes:
            print(textwrap.fill(cause, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False))


def _print_leaves(verdict: Verdict, located: Located) -> None:
    leaves, difference = located.leaves, verdict.outcome.difference if isinstance(verdict.outcome, Parting) else None
    if not leaves:
        print("first leaf   not found: the runs made again for it were equal; once more may show it")
        return
    sides = "straight | interrupted" if verdict.is_deterministic else "one | the other"
    is_later = difference is not None and difference.boundary != located.boundary
    where = f"; at boundary {located.boundary}, for the runs made again for it were equal" if is_later else ""
    print(f"first leaf   {leaves[0]}   ({sides}{where})")
    for leaf in leaves[1:SHOWN]:
        print(f"             {leaf}")
    if len(leaves) > SHOWN:
        print(f"             … and {count(len(leaves) - SHOWN, 'leaf')} more")


def print_mutations(mutations: Sequence[Mutation], verdict: Verdict) -> None:
    """What the proof would have seen of the loss of each component."""
    print(f"\nleft as a fresh start has it, at the resume at boundary {verdict.stops[0]}:")
    print_table([(mutation.component, _seen(mutation, verdict)) for mutation in mutations], indent="  ")
    unseen = [mutation.component for mutation in mutations if not mutation.is_seen and not mutation.is_as_fresh]
    if unseen:
        print(f"not seen by boundary {verdict.end}: {', '.join(unseen)}. A longer proof (--until) may see the loss.")


def _seen(mutation: Mutation, verdict: Verdict) -> str:
    if mutation.is_as_fresh:
        return "is there as it was at the start: nothing to lose; interrupt later (--at)"
    if mutation.failed:
        return "seen: the script fails without it"
    if mutation.seen_at is None:
        return f"not seen by boundary {verdict.end}"
    seen = f"seen after {count(mutation.seen_at - mutation.at, 'boundary')}, at boundary {mutation.seen_at}"
    if mutation.felt_at is None:
        return f"{seen}; nothing else depends on it up to boundary {verdict.end}"
    return seen if mutation.felt_at == mutation.seen_at else f"{seen}; elsewhere at boundary {mutation.felt_at}"


def document(verdict: Verdict, mutations: Sequence[Mutation] | None, cost: Cost, kept: Path | None) -> dict[str, Any]:
    """The outcome for programs."""
    outcome, located = verdict.outcome, verdict.located
    return {
        "exact": verdict.is_exact,
        "deterministic": verdict.is_deterministic,
        "until": verdict.end,
        "finished": verdict.finished,
        "interrupted_after": verdict.stops,
        "killed": verdict.killed,
        "resumed_at": verdict.resumes,
        "compared": asdict(outcome) if isinstance(outcome, Compared) else None,
        "difference": _difference(outcome) if isinstance(outcome, Parting) else None,
        "leaves_at": None if located is None else located.boundary,
        "leaf_count": None if located is None else len(located.leaves),
        "leaves": [] if located is None else [asdict(leaf) for leaf in located.leaves[:SHOWN]],
        "likely_causes": verdict.causes,
        "failure": verdict.failed and {"code": verdict.failed.code, "tail": verdict.failed.tail()},
        "left_out": sorted(verdict.ignored),
        "mutations": mutations and [{**asdict(mutation), "seen": mutation.is_seen} for mutation in mutations],
        "processes": cost[0],
        "seconds": round(cost[1], 3),
        "kept": kept,
    }


def _difference(parting: Parting) -> dict[str, Any]:
    return {"run": parting.run, "what": parting.what, "chain": parting.difference and asdict(parting.difference)}
