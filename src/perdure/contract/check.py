"""The check of a contract outside of a run: what a trainer's own checkpoints say against what it is asked to do."""

from collections.abc import Mapping
from dataclasses import replace

from perdure.contract.comparison import Sections, compare
from perdure.contract.horizon import Schedules, compare_horizon
from perdure.errors import ContractError


def check_contract(
    saved: Sections, here: Sections, *, place: str, env_steps: int = 0, schedules: Schedules | None = None
) -> None:
    """Refuses to go on with a training under another contract; a run does this by itself.

    Args:
        saved: what `contract_of` gave when the state was saved.
        here: what it gives now.
        place: what is refused, for the message.
        env_steps: how many environment steps the state has taken: a total below that is refused.
        schedules: what another total does to schedules; see `Run`.

    Raises:
        ContractError: the contracts differ; all findings at once.
    """
    old, new = _without_horizon(saved), _without_horizon(here)
    horizon = compare_horizon(saved.get("horizon", {}), here.get("horizon", {}), schedules, env_steps)
    # Nothing is recorded here, so that nothing can be accepted by name.
    findings = [replace(finding, change=None) for finding in [*compare(old, new), *horizon.findings]]
    if findings:
        raise ContractError(place, findings)


def _without_horizon(sections: Sections) -> dict[str, Mapping]:
    return {name: keys for name, keys in sections.items() if name != "horizon"}
