"""`perdure audit -- python train.py …`: which variables of a script matter, and are in no checkpoint?"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from perdure.adapters.process_rng import NAME as PROCESS_RNG
from perdure.cli.ending import unwinding
from perdure.cli.exit_codes import ExitCode
from perdure.cli.interpreter import naming_interpreter
from perdure.cli.output import count, print_json
from perdure.errors import UsageError
from perdure.proof.audit import AT, UNTIL, audit
from perdure.proof.audit_findings import Audit, AuditFinding
from perdure.runs.durations import seconds

NOTE = """\
The script runs several times from its start, in processes of its own; its runs go to a temporary folder, and no run of
yours is touched. Whatever else it writes, it writes. Exit code 1: something is confirmed, the resume is not exact and
nothing explains it, or two runs of the script differ by themselves. Suspects change and are in no checkpoint, but
nothing was seen to depend on them. docs/auditing.md tells more.
"""

SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.usage = "perdure audit [--at K] [--until M] [--timeout TIME] [--all] [--json] -- CMD …"
    parser.add_argument("--at", type=int, default=AT, metavar="K", help=f"interrupt at boundary K (default: {AT})")
    text = f"compare up to boundary M (default: K + {UNTIL - AT}); later is more thorough"
    parser.add_argument("--until", type=int, metavar="M", help=text)
    parser.add_argument(
        "--timeout", metavar="TIME", default="10m", help="how long each process may take (default: 10m)"
    )
    parser.add_argument("--all", action="store_true", help=f"list all suspects, not the first {SHOWN} alone")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Audits, prints, and says by the exit code whether anything was confirmed."""
    if not arguments.command:
        raise UsageError("audit: which script? perdure audit -- python train.py …")
    until = arguments.at + UNTIL - AT if arguments.until is None else arguments.until
    timeout_s = seconds("--timeout", arguments.timeout)
    with unwinding(), naming_interpreter(arguments.command):
        found = audit(arguments.command, at=arguments.at, until=until, timeout_s=timeout_s, say=_say)
    if arguments.json:
        print_json(asdict(found))
    else:
        _print(found, everything=arguments.all)
    is_left_alone = found.exact or found.ignored  # what the contract ignores may be all that is lost
    is_well = is_left_alone and not found.confirmed and not _unsettled(found)
    return ExitCode.DONE if is_well else ExitCode.DIFFERENCES


def _unsettled(found: Audit) -> list[str]:
    """Components that two runs of the script differ in. Generators of the process may simply be used by nobody."""
    return [name for name in found.undetermined if name.partition("/")[0] != PROCESS_RNG]


def _say(step: str) -> None:
    print(f"perdure audit: {step}", file=sys.stderr)


def _print(found: Audit, *, everything: bool) -> None:
    resume = "exact" if found.exact else "not exact"
    print(f"resume     {resume}: interrupted at boundary {found.at}, compared up to boundary {found.until}")
    print(f"confirmed  {_listed(found.confirmed, 'variable')}")
    for each in found.confirmed:
        _print_confirmed(each)
    if not found.exact:
        print(f"           {_explanation(found)}")
    shown = found.suspects if everything else found.suspects[:SHOWN]
    print(f"suspects   {_listed(found.suspects, 'variable')}")
    for each in shown:
        print(f"  {each.place}{_where(each)}: {each.why}")
    if len(shown) < len(found.suspects):
        print(f"  … and {len(found.suspects) - len(shown):,} more; --all lists them")
    for place, why in found.ignored.items():
        print(f"ignored    {place}: {why}")
    if found.undetermined:
        names = ", ".join(found.undetermined)
        print(f"left out   {names}: two runs of the script differ in it, as if it were not seeded")
    if _unsettled(found):
        print("           The verdict speaks of the rest alone. Seed the script first; `perdure prove` names the leaf.")
    if found.skipped:
        kinds = sorted(found.skipped, key=lambda kind: (-found.skipped[kind], kind))
        print(f"not seen   {', '.join(kinds[:6])}{', …' if len(kinds) > 6 else ''}")


def _listed(findings: Sequence[AuditFinding], what: str) -> str:
    return count(len(findings), what) if findings else "none"


def _where(finding: AuditFinding) -> str:
    return f" ({', '.join(finding.assigned)})" if finding.assigned else ""


def _print_confirmed(finding: AuditFinding) -> None:
    print(f"  {finding.place}{_where(finding)}")
    parts = f" (and {count(finding.parts - 1, 'other part')})" if finding.parts > 1 else ""
    print(f"    {finding.straight} in the straight run, {finding.resumed} after the resume{parts}; {finding.why}.")
    print(f"    {finding.advice}")


def _explanation(found: Audit) -> str:
    if found.confirmed and found.explained:
        return "With these put right, the resume is exact."
    also = "Something else is lost, too" if found.confirmed else "Something is lost that this audit cannot see"
    return f"{also}: `perdure prove` names the first leaf that differs."
