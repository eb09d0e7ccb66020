"""What a script says must stay the same, completed by what its objects and its process tell; and the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.checkpoint.amend import start_numbers
from perdure.checkpoint.capture import Captured
from perdure.contract.arithmetic import arithmetic, changes, strict_section, switches, told
from perdure.contract.comparison import compare
from perdure.contract.config import Contract, is_free
from perdure.contract.facts import formatted
from perdure.contract.horizon import PROGRESS, Progress, Schedules, compare_horizon, straight, total_of
from perdure.contract.overrides import Overrides
from perdure.contract.sections import OPERATIONAL, SETTINGS, START
from perdure.errors import Finding
from perdure.format.manifest import Manifest

Numerics = Literal["report", "strict"]
"""Whether a change of arithmetic is told and goes on, or refuses the resume."""


@dataclass(frozen=True)
class ContractTerms:
    """What a script says."""

    declared: Contract = field(default_factory=dict)
    """Sections from `config=`, `horizon=` and `contract=`."""
    free: tuple[str, ...] = ()
    """Patterns of keys that may change."""
    schedules: Schedules | None = None
    """What another total does to schedules."""
    numerics: Numerics = "report"
    """What a change of arithmetic does."""
    overrides: Overrides = Overrides()  # noqa: RUF009 - a frozen value
    """What is accepted."""

    def contract(self, fresh: Captured) -> Contract:
        """The whole contract of a start with these objects in this process.

        Args:
            fresh: the objects' state before any restore.
        """
        contract: Contract = {section: dict(keys) for section, keys in self.declared.items()}
        for path, value in formatted(fresh.settings).items():
            contract.setdefault(OPERATIONAL if is_free(path, self.free) else SETTINGS, {})[path] = value
        contract["numerics"] = dict(switches())
        contract[START] = dict(start_numbers(fresh.snapshot))
        total = total_of(contract.get("horizon", {}))
        if total is not None and self.schedules in ("keep", "restretch"):
            contract["horizon"][PROGRESS] = straight(total).text()
        return contract


@dataclass(frozen=True)
class Verdict:
    """What comparing a run's contract with a fresh start's gave."""

    findings: list[Finding]
    """What speaks against the resume, as far as the contract tells."""
    contract: Contract
    """The contract that later checkpoints bear."""
    progress: Progress | None
    """How far schedules are from now on; None without a total."""
    arithmetic: Mapping[str, tuple[str, str]]
    """What the last bits depend on and is not the same: name -> (then, now)."""
    totals: tuple[int, int] | None
    """The old total of steps and the new one, if it may change without an override."""
    notices: Sequence[str]
    """What to tell."""


def judge(terms: ContractTerms, contract: Contract, manifest: Manifest) -> Verdict:
    """Compares the contract of a start with the one in a checkpoint; pure but for looking at this process.

    Args:
        terms: what the script says.
        contract: the contract of this start.
        manifest: the checkpoint's.
    """
    saved = {section: dict(keys) for section, keys in manifest.contract.items()}
    here = {section: dict(keys) for section, keys in contract.items()}
    changed = changes(manifest.arithmetic, arithmetic())
    if terms.numerics == "strict":
        saved.setdefault("numerics", {}).update(strict_section(manifest.arithmetic))
        here.setdefault("numerics", {}).update(strict_section(arithmetic()))
    old_horizon, new_horizon = saved.pop("horizon", {}), here.pop("horizon", {})
    horizon = compare_horizon(old_horizon, new_horizon, terms.schedules, manifest.env_steps)
    later = {**contract, "horizon": _later_horizon(old_horizon, new_horizon, horizon.progress, terms.schedules)}
    notices = [*([horizon.notice] if horizon.notice else []), *told(changed)]
    findings = sorted([*compare(saved, here), *horizon.findings], key=lambda finding: finding.section)
    return Verdict(findings, later, horizon.progress, changed, horizon.totals, notices)


def _later_horizon(
    saved: Mapping[str, Any], here: Mapping[str, Any], progress: Progress | None, schedules: Schedules | None
) -> dict[str, Any]:
    """The section `horizon` of later checkpoints: the total of now, and the knots if schedules go by them."""
    section = {key: value for key, value in here.items() if key != PROGRESS}
    counts = PROGRESS in saved or schedules in ("keep", "restretch")
    return {**section, PROGRESS: progress.text()} if progress is not None and counts else section
