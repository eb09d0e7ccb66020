"""`perdure promote RUN [best|latest|STEP] --as ROLE`: a policy of a checkpoint takes over a role."""

import argparse
from pathlib import Path

from perdure.cli.exit_codes import ExitCode
from perdure.cli.export import components_of, launch_in
from perdure.cli.output import print_json
from perdure.cli.targets import CheckpointTarget
from perdure.cli.which import add_which, checkpoint_of
from perdure.errors import UsageError
from perdure.format.role import Promotion
from perdure.runs.choosing import ranking_of
from perdure.runs.promotion import Candidate, promote

NOTE = """\
The policy goes to FOLDER/ROLE/, under a name of its own; FOLDER is `policies` beside the run. ROLE.json there names the
policy that has the role now, and keeps every promotion: run, step, digests, contract, score, note. Earlier policies
stay until you remove them; promoting an earlier checkpoint again goes back to its policy. A deployment finds the policy
with perdure.policy_path(FOLDER, ROLE); `perdure eval`, `show` and `verify` take FOLDER/ROLE.
example: perdure promote runs/x best --as production --note "first to clear level 9"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    add_which(parser)
    parser.add_argument("--as", dest="role", metavar="ROLE", required=True, help="the role, such as production")
    parser.add_argument("--note", metavar="TEXT", help="why, for the role's history")
    parser.add_argument(
        "--to", metavar="FOLDER", type=Path, help="where roles stand (default: policies beside the run)"
    )
    parser.add_argument(
        "--components", metavar="A,B", help="the components that are the policy, as for `perdure export`"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Promotes.

    Raises:
        NothingToLoadError: no run, no such checkpoint, or nothing intact.
        DamagedError: the checkpoint or the role's file is damaged.
        LockedError: another promotion to this role does not come to an end.
        UsageError: the words cannot be meant; the message says which.
    """
    checkpoint = checkpoint_of(arguments)
    folder = _folder(arguments.to, checkpoint)
    launch = launch_in(checkpoint.run)
    components = components_of(arguments.components, checkpoint.run, launch, checkpoint.manifest())
    is_best = arguments.which == "best" and checkpoint.run is not None
    ranking = ranking_of(checkpoint.run, arguments.metric, arguments.mode) if is_best and checkpoint.run else None
    candidate = Candidate(checkpoint.store, checkpoint.name, checkpoint.run, components, launch, ranking)
    promotion = promote(candidate, arguments.role, folder, arguments.note)
    if arguments.json:
        print_json({"role": arguments.role, "path": folder / arguments.role / promotion.policy, **vars(promotion)})
    else:
        print("\n".join(_lines(promotion, folder / arguments.role)))
    return ExitCode.DONE


def _folder(told: Path | None, checkpoint: CheckpointTarget) -> Path:
    if told is not None:
        return told.expanduser().absolute()
    if checkpoint.run is None:
        raise UsageError(f"{checkpoint.path}: it is in no run; say where roles stand: --to FOLDER.")
    return checkpoint.run.path.parent / "policies"


def _lines(promotion: Promotion, place: Path) -> list[str]:
    by = "" if promotion.score is None else ", {metric} {value:.6g}".format(**promotion.score)
    before = promotion.supersedes
    instead = "nothing had it before" if before is None else f"in place of {before}"
    return [
        f"{place.name}: {promotion.policy} (step {promotion.env_steps:,}{by}), {instead}",
        f"it stands in {place / promotion.policy}",
    ]
