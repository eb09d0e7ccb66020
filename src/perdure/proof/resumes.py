"""Where interrupted runs went on: a run that began anew, or was at its end already, proves nothing of a resume."""

from pathlib import Path

from perdure.proof.evidence import runs_in
from perdure.runs.chain import read_whole_links
from perdure.runs.directory import RunDirectory, steps_of
from perdure.runs.lineage import read_lineage


def went_on_from(run: RunDirectory) -> tuple[int, ...]:
    """The boundaries that the resumes of a run began at, in their order.

    Raises:
        DamagedError: its lineage is not what was written.
    """
    boundaries = _boundaries(run)
    steps = (event["env_steps"] for event in read_lineage(run.lineage) if event["event"] == "resumed")
    return tuple(boundaries[step] for step in steps if step in boundaries)


def telling_resumes(scratch: Path) -> tuple[int, ...]:
    """The boundaries that runs in a folder were resumed at, other than their start and their end."""
    found = [(run, at) for run in runs_in(scratch).values() for at in went_on_from(run)]
    return tuple(at for run, at in found if 0 < at < max(_boundaries(run).values()))


def nothing_proven(straight: Path, interrupted: Path, *, kill: bool) -> str:
    """Why equal runs prove nothing although one was interrupted, and what to do.

    Args:
        straight: runs that were not interrupted.
        interrupted: runs of which none was resumed at a boundary between start and end.
        kill: whether they were to be killed.
    """
    resumes = [at for run in runs_in(interrupted).values() for at in went_on_from(run)]
    head = "the runs are equal, but none was resumed, so that nothing is proven:"
    if any(resumes) or (kill and not resumes):
        return f"{head} the script came to its end before it was killed. Give a smaller --at, or a greater --until."
    if not resumes:
        return (
            f"{head} the script began anew after the interruption. It opens its run with mode='new', or empties the "
            "run's directory when it starts; train on in what is there."
        )
    went_on = "the script went on from boundary 0, where its last checkpoint stood (boundary_reset)"
    return f"{head} {went_on}; {_others(straight)}."


def resumed_elsewhere(straight: Path, resumed: Path, at: int) -> str | None:
    """What is wrong if no run was resumed at the boundary where it was interrupted; None: one was.

    Args:
        straight: runs that were not interrupted.
        resumed: runs that were, at boundary `at`.
        at: the boundary.
    """
    resumes = {each for run in runs_in(resumed).values() for each in went_on_from(run)}
    if at in resumes:
        return None
    if not resumes:
        return "it began anew: it opens its run with mode='new', or empties the run's directory when it starts."
    went_on = f"it went on from boundary {max(resumes)}, not {at}: checkpoints stand elsewhere (boundary_reset)"
    return f"{went_on}; {_others(straight)}."


def _others(straight: Path) -> str:
    """What to interrupt at instead."""
    between = sorted({at for run in runs_in(straight).values() for at in _checkpoints(run)})
    if not between:
        return "there is none before the end, so go further, with --until and --at"
    return f"others stand at {', '.join(map(str, between))}: --at {between[0]}"


def _boundaries(run: RunDirectory) -> dict[int, int]:
    """Env-steps -> boundary, of each link."""
    return {link.env_steps: link.boundary for link in read_whole_links(run.chain)}


def _checkpoints(run: RunDirectory) -> list[int]:
    """The boundaries between start and end at which a run has made a checkpoint."""
    boundaries = _boundaries(run)
    names = [event["checkpoint"] for event in read_lineage(run.lineage) if event["event"] == "committed"]
    found = [boundaries.get(steps_of(name) or 0, 0) for name in names]
    return [at for at in found if 0 < at < max(boundaries.values(), default=0)]
