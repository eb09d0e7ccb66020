"""Results as Markdown: what was measured, and whether it is what DESIGN.md section 8 asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.common.timing import Sample


@dataclass(frozen=True)
class Target:
    """What section 8 asks for, and what was found."""

    work: str
    """What was done."""
    wanted: str
    """The target in words."""
    found: str
    """The figure in words."""
    is_met: bool
    """Whether the figure meets the target."""
    limit: str = ""
    """Why not, in one sentence: the limit that was hit. Shown only where the target was missed."""


@dataclass(frozen=True)
class Part:
    """One part of a benchmark's report."""

    title: str
    """Its heading."""
    text: str
    """What was done, in words."""
    tables: Sequence[str]
    """In Markdown."""
    targets: Sequence[Target] = field(default_factory=tuple)
    """What is judged."""


def time_table(samples: Mapping[str, Sample], *, unit: str = "ms", ratio_to: str | None = None) -> str:
    """Median and quartiles of each, and each median as a multiple of one of them.

    Args:
        samples: in seconds, by what was done.
        unit: `s`, `ms` or `µs`.
        ratio_to: the row that the others are compared with.
    """
    factor = {"s": 1.0, "ms": 1e3, "µs": 1e6}[unit]
    base = samples[ratio_to].median if ratio_to else None
    rows = []
    for name, sample in samples.items():
        figures = [number(value * factor) for value in (sample.median, *sample.quartiles)]
        ratio = [f"{number(sample.median / base)} ×"] if base else []
        rows.append((name, *figures, *ratio))
    head = ("work", f"median, {unit}", "first quartile", "third quartile")
    return table((*head, f"of {ratio_to}") if ratio_to else head, rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its first column to the left and the others to the right."""
    lines = [head, ("---", *("---:" for _ in head[1:])), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    """Three significant digits, without exponents."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    decimals = 2 if abs(value) < 10 else 1
    return f"{value:.{max(decimals, 3) if abs(value) < 1 else decimals}f}"


def render(title: str, facts: Mapping[str, str], parts: Sequence[Part]) -> str:
    """The whole report."""
    blocks = [f"# {title}", "\n".join(f"- **{name}**: {text}" for name, text in facts.items())]
    judged = [target for part in parts for target in part.targets]
    if judged:
        blocks += ["## Targets", _targets(judged)]
    for part in parts:
        blocks += [f"## {part.title}", part.text, *part.tables]
    return "\n\n".join(blocks) + "\n"


def _targets(targets: Sequence[Target]) -> str:
    rows = [(t.work, t.wanted, t.found, "met" if t.is_met else "**not met**") for t in targets]
    missed = [f"- **{t.work}, {t.wanted}**: {t.limit}" for t in targets if not t.is_met]
    shown = table(("work", "target", "found", "verdict"), rows)
    return "\n\n".join([shown, "Limits that were hit:", "\n".join(missed)] if missed else [shown])
