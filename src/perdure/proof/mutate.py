"""Is a proof long enough to see each component? Each in turn is left out of a resume, and the difference is awaited."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from perdure.proof.evidence import runs_in, stripped
from perdure.proof.processes import Orders
from perdure.proof.prove import Proof
from perdure.proof.verdict import Verdict
from perdure.runs.chain import Link, read_whole_links


@dataclass(frozen=True)
class Mutation:
    """What became of a resume that left one component as a fresh start has it."""

    run: str
    """The run's name in its folder."""
    component: str
    """The component."""
    at: int
    """The boundary of the resume."""
    seen_at: int | None = None
    """The first boundary that differs; None: none does."""
    felt_at: int | None = None
    """The first boundary at which anything but the component itself differs: a loss of what is not handed in at all
    would show there, and not before; None: none does."""
    failed: bool = False
    """Whether the resumed process ended by an error instead, which shows it as well."""
    is_as_fresh: bool = False
    """Whether the component was at that boundary what it had been at the start: there was nothing to lose."""

    @property
    def is_seen(self) -> bool:
        """Whether the proof would notice the loss of the component."""
        return self.failed or self.seen_at is not None


def mutate(proof: Proof, verdict: Verdict) -> list[Mutation]:
    """Leaves each component out of a resume, in turn; the proof must have been exact.

    Raises:
        ScriptError: a process took too long.
    """
    at = verdict.stops[0]
    stopped = proof.folder / "stopped"
    proof.runner.run(stopped, Orders(at), f"stopped after boundary {at}, to leave components out")
    found = []
    for run, place in runs_in(stopped).items():
        links = stripped(read_whole_links(place.chain), verdict.ignored)
        chain = {link.boundary: link.components for link in links}
        for component in sorted(chain.get(at, {})):
            if chain[at][component] == chain.get(0, {}).get(component):
                found.append(Mutation(run, component, at, is_as_fresh=True))
            else:
                found.append(_without(proof, verdict, run, component))
    return found


def _without(proof: Proof, verdict: Verdict, run: str, component: str) -> Mutation:
    at = verdict.stops[0]
    folder = proof.folder / f"without_{component}_{run}"
    shutil.copytree(proof.folder / "stopped", folder)
    orders = Orders(proof.plan.until, leaves_fresh=f"{run}/{component}")
    ended = proof.runner.run(folder, orders, f"resumed at boundary {at} without {component}")
    if not ended.is_well:
        return Mutation(run, component, at, failed=True)
    chains = [_links(place, run, verdict) for place in (proof.folder / "straight", folder)]
    pairs = list(zip(*chains, strict=False))
    end = pairs[-1][0].boundary if len(chains[0]) != len(chains[1]) else None  # one of the two ends there
    seen_at = next((a.boundary for a, b in pairs if (a.state, a.metrics) != (b.state, b.metrics)), end)
    felt_at = next((a.boundary for a, b in pairs if _feels(a, b, component)), end)
    return Mutation(run, component, at, seen_at, felt_at)


def _links(folder: Path, run: str, verdict: Verdict) -> list[Link]:
    return stripped(read_whole_links(runs_in(folder)[run].chain), verdict.ignored)


def _feels(straight: Link, without: Link, component: str) -> bool:
    """Whether anything but the component itself is another at a boundary."""
    others = [
        {name: each for name, each in link.components.items() if name != component} for link in (straight, without)
    ]
    told = [(link.env_steps, link.updates, link.metrics) for link in (straight, without)]
    return others[0] != others[1] or told[0] != told[1]
