"""`perdure diff --chain A B`: two runs compared boundary by boundary, from their digest chains alone."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perdure.cli.output import count, print_json
from perdure.errors import NoCheckpointError, NoRunError
from perdure.proof.evidence import left_alone, stripped
from perdure.runs.chain import ChainComparison, ChainDifference, Link, compare_chains, read_chain
from perdure.runs.directory import RunDirectory

HOW = "Run(chain=1) keeps one, or PERDURE_CHAIN=1 around any script"


def diff_chains(first: str, second: str, *, as_json: bool) -> bool:
    """Compares the chains of two runs and prints the outcome.

    Process-wide generators that nobody draws from are left out: Python seeds its own by chance at every start.

    Args:
        first: a run's directory.
        second: another one.
        as_json: print one JSON document instead of text.

    Returns:
        Whether they are the same.

    Raises:
        NoRunError: a path holds no run.
        NoCheckpointError: a run keeps no chain.
        DamagedError: a chain was edited.
    """
    places = [_chain_path(first), _chain_path(second)]
    chains = [_links(place) for place in places]
    ignored = left_alone(chains)
    comparison = compare_chains(*(stripped(chain, ignored) for chain in chains))
    if as_json:
        print_json({**_document(places, chains, comparison), "left_out": sorted(ignored)})
    else:
        _print(places, chains, comparison)
        if ignored:
            print(f"left out {', '.join(sorted(ignored))}: other ones in A and B, and never drawn from")
    return comparison.identical


def _chain_path(text: str) -> Path:
    path = Path(text).expanduser().resolve()
    run = RunDirectory(path)
    if not path.is_dir() or not (run.record.exists() or run.chain.exists()):
        problem = "no run (no run.json in it)" if path.is_dir() else "no such directory"
        raise NoRunError(f"{path}: {problem}. --chain compares runs; `perdure ls` lists them.")
    return run.chain


def _links(place: Path) -> list[Link]:
    links = read_chain(place)
    if not links:
        raise NoCheckpointError(f"{place.parent}: the run keeps no digest chain ({place.name}): {HOW}.")
    return links


def _print(places: Sequence[Path], chains: Sequence[Sequence[Link]], comparison: ChainComparison) -> None:
    for letter, place, links in zip("AB", places, chains, strict=True):
        reach = f"boundaries {links[0].boundary:,} to {links[-1].boundary:,}"
        print(f"{letter}        {place.parent}: {reach}, {count(len(links), 'link')}")
    if comparison.difference is not None:
        print(f"chain    {told(comparison.difference)}")
    elif comparison.compared:
        print(f"chain    bit-identical at {count(comparison.compared, 'boundary')}")
    else:
        print("chain    nothing to compare: no boundary has a link in both")
    for letter, only in (("A", comparison.only_first), ("B", comparison.only_second)):
        if only:
            print(f"         {count(len(only), 'boundary')} only in {letter}, the first of them {only[0]:,}")


def told(difference: ChainDifference) -> str:
    """Where two chains part, in words."""
    what = [*difference.components]
    what += ["the counters"] if difference.counters else []
    what += ["the metric rows"] if difference.metrics else []
    later = f"{count(difference.later, 'boundary')} after it {'differs' if difference.later == 1 else 'differ'}, too"
    return f"first differs at boundary {difference.boundary:,}: {', '.join(what)}; {later}"


def _document(places: Sequence[Path], chains: Sequence[Sequence[Link]], comparison: ChainComparison) -> dict[str, Any]:
    sides = [
        {"path": place.parent, "links": len(links), "first_boundary": links[0].boundary, "last": links[-1].boundary}
        for place, links in zip(places, chains, strict=True)
    ]
    difference = comparison.difference
    return {
        "identical": comparison.identical,
        "first": sides[0],
        "second": sides[1],
        "compared": comparison.compared,
        "only_first": comparison.only_first,
        "only_second": comparison.only_second,
        "difference": difference and asdict(difference),
    }
