"""The digest chain: what the state was at each boundary, a line each, so that runs are compared without their states.

A line holds the digests of the state, of each component and of the metric rows so far, and the digest of the line
before it. A resumed run cuts its chain back to where it goes on and continues it: an exact resume ends up with the very
file of the run that was never stopped.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from typing import Any

from perdure.adapters.process_rng import NAME as PROCESS_RNG
from perdure.errors import DamagedError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.format.known import Known
from perdure.format.state_digest import component_digests, state_digest
from perdure.runs.directory import append_whole
from perdure.tree.snapshot import Snapshot


@dataclass(frozen=True)
class Link:
    """A boundary in the chain."""

    boundary: int
    """Its number."""
    env_steps: int
    """Environment steps at it."""
    updates: int
    """Policy updates at it."""
    state: str
    """Digest of the state."""
    components: Mapping[str, str]
    """Digests of its components."""
    generators: Mapping[str, str]
    """Digest of each process-wide generator, by library; a script may seed one and leave the others to chance."""
    metrics: str
    """Digest of the metric rows up to it."""
    previous: str | None
    """Digest of the line before; None of the first."""

    def encoded(self) -> bytes:
        """Its line."""
        digests = {"components": dict(self.components), "generators": dict(self.generators)}
        return canonical.encode({**vars(self), **digests})


class Chain:
    """Appends links for the holder of the writer lock."""

    def __init__(self, path: Path, every: int) -> None:
        """Prepares; `begin` opens the file.

        Args:
            path: of the file.
            every: links stand at boundaries whose number is a multiple of this.
        """
        self._path = path
        self._every = every
        self._previous: str | None = None
        self._known = Known()
        self._generators: tuple[str | None, Mapping[str, str]] = None, {}

    def begin(self, snapshot: Snapshot, metrics: str) -> None:
        """Cuts the chain back to what came before the boundary where the run begins or goes on, and adds its link.

        Args:
            snapshot: the state there.
            metrics: digest of the rows up to there.
        """
        kept = [link for link in read_whole_links(self._path) if link.boundary < snapshot.boundary]
        data = b"".join(link.encoded() for link in kept)
        if self._path.exists() and self._path.stat().st_size != len(data):
            os.truncate(self._path, len(data))
        self._previous = digest_of(kept[-1].encoded()) if kept else None
        if self.is_due(snapshot.boundary):
            self.append(snapshot, metrics)

    def is_due(self, boundary: int) -> bool:
        """Whether the boundary has a link."""
        return boundary % self._every == 0

    def append(self, snapshot: Snapshot, metrics: str) -> None:
        """Adds the link of the boundary that `snapshot` was captured at."""
        self._known = Known(self._known)
        components = component_digests(snapshot, memory=self._known.forms)
        counters = snapshot.env_steps, snapshot.updates, snapshot.boundary
        state = state_digest(components, *counters)
        generators = self._digests_of_generators(snapshot, components.get(PROCESS_RNG))
        link = Link(counters[2], counters[0], counters[1], state, components, generators, metrics, self._previous)
        line = link.encoded()
        with self._path.open("ab", buffering=0) as file:
            append_whole(file, line)
        self._previous = digest_of(line)

    def _digests_of_generators(self, snapshot: Snapshot, digest: str | None) -> Mapping[str, str]:
        """Of the process; made anew only where one of them was drawn from."""
        if digest is None:
            return {}
        if self._generators[0] != digest:
            part = snapshot.components[PROCESS_RNG]
            trees = part.tree if isinstance(part.tree, dict) else {}
            each = {str(library): replace(part, tree=tree) for library, tree in trees.items()}
            self._generators = digest, component_digests(Snapshot(each, 0, 0, 0))
        return self._generators[1]


def read_chain(path: Path) -> list[Link]:
    """All links of a chain, proven to follow one another; a torn last line is left out.

    Raises:
        DamagedError: a line was edited, removed or inserted, or is no link; the message names its number.
    """
    return list(_links(path, strict=True))


def read_whole_links(path: Path) -> list[Link]:
    """The links up to the first that does not follow."""
    return list(_links(path, strict=False))


def spacing_of(path: Path) -> int | None:
    """At which boundaries a chain has links: multiples of this; None if there is no chain."""
    if not path.exists():
        return None
    return gcd(*(link.boundary for link in read_whole_links(path))) or 1


def _links(path: Path, *, strict: bool) -> Sequence[Link]:
    if not path.exists():
        return ()
    links: list[Link] = []
    previous: str | None = None
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            link = _link(line, f"{path.name}:{number}", previous)
        except DamagedError:
            if strict:
                raise
            break
        links.append(link)
        previous = digest_of(line)
    return links


_FIELDS: Mapping[str, type] = {
    "boundary": int,
    "env_steps": int,
    "updates": int,
    "state": str,
    "components": dict,
    "generators": dict,
    "metrics": str,
}


def _link(line: bytes, place: str, previous: str | None) -> Link:
    document: Any = canonical.decode(line, place)
    if not isinstance(document, dict) or document.keys() != {*_FIELDS, "previous"}:
        raise DamagedError(f"{place}: not a link of a chain")
    if document["previous"] != previous:
        raise DamagedError(f"{place}: does not follow from the line before it")
    for name, kind in _FIELDS.items():
        if type(document[name]) is not kind:
            raise DamagedError(f"{place}: field {name} is a {type(document[name]).__name__}")
    return Link(**document)


@dataclass(frozen=True)
class ChainDifference:
    """Where two chains part."""

    boundary: int
    """The first boundary at which they differ."""
    components: tuple[str, ...]
    """The components that differ there; one that only one side has included."""
    counters: bool
    """Whether env-steps or updates differ there."""
    metrics: bool
    """Whether the metric rows up to there differ."""
    later: int
    """How many boundaries after it differ, too."""


@dataclass(frozen=True)
class ChainComparison:
    """What two chains have to say of one another."""

    compared: int
    """Boundaries that both have."""
    only_first: tuple[int, ...]
    """Boundaries up to the common end that only the first has."""
    only_second: tuple[int, ...]
    """The same of the second."""
    difference: ChainDifference | None
    """None: equal wherever both have links."""

    @property
    def identical(self) -> bool:
        """Whether they are equal at all boundaries up to the end of the shorter one, of which there are some."""
        return self.difference is None and self.compared > 0 and not self.only_first and not self.only_second


def compare_chains(first: Sequence[Link], second: Sequence[Link]) -> ChainComparison:
    """Compares two chains, boundary by boundary, up to the end of the shorter one."""
    a, b = ({link.boundary: link for link in links} for links in (first, second))
    end = min(max(a, default=-1), max(b, default=-1))
    common = sorted(a.keys() & b.keys())
    differing = [at for at in common if not _same(a[at], b[at])]
    difference = None
    if differing:
        at = differing[0]
        difference = ChainDifference(
            at,
            components=_components(a[at], b[at]),
            counters=(a[at].env_steps, a[at].updates) != (b[at].env_steps, b[at].updates),
            metrics=a[at].metrics != b[at].metrics,
            later=len(differing) - 1,
        )
    only_first = tuple(at for at in sorted(a.keys() - b.keys()) if at <= end)
    only_second = tuple(at for at in sorted(b.keys() - a.keys()) if at <= end)
    return ChainComparison(len(common), only_first, only_second, difference)


def _same(first: Link, second: Link) -> bool:
    """Whether the boundaries are equal; `previous` tells of other ones."""
    return (first.state, first.metrics) == (second.state, second.metrics)


def _components(first: Link, second: Link) -> tuple[str, ...]:
    names = first.components.keys() | second.components.keys()
    return tuple(sorted(name for name in names if first.components.get(name) != second.components.get(name)))
