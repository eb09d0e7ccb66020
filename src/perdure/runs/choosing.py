"""Choosing one checkpoint of a run: the best, the latest, or the one at a step. Tensor files are not read."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.errors import (
    AllDamagedError,
    DamagedError,
    NoCheckpointError,
    NoRunError,
    UnsupportedVersionError,
    UsageError,
)
from perdure.format.manifest import Manifest
from perdure.runs.directory import RunDirectory, newest_first, open_directory, step_name, steps_of
from perdure.runs.loading import manifest_of_run
from perdure.runs.record import read_record
from perdure.runs.resumption import read_history
from perdure.runs.retention import Candidate, Keep, KeepAny, Order, Ranking

Which = str | int
"""`best`, `latest`, or env-steps."""

_NAME_ONE = "Name one: `--metric`, `RUN@best:METRIC`, or `metric=` in Python."

_log = logging.getLogger("perdure")


def checkpoint_path(
    run: str | os.PathLike[str], which: Which = "latest", *, metric: str | None = None, mode: Order | None = None
) -> Path:
    """The directory of one checkpoint of a run, which may be training.

    Manifests are proven, tensor files are not read: whoever opens the checkpoint reads every byte.

    Args:
        run: the run's directory.
        which: `best`, `latest`, or env-steps.
        metric: of `best`: a name among the boundaries' metrics; default: what the script's `Keep(best=…)` names.
        mode: of `best`: whether a greater (`max`) or a smaller (`min`) metric is better; default: the script's, or max.

    Raises:
        NoRunError: there is no run.
        NoCheckpointError: the run has no checkpoint, or none at this step.
        AllDamagedError: no manifest is intact.
        UsageError: nobody says by which metric, or no checkpoint has it; the message lists those that there are.
    """
    directory = open_directory(run)
    if not directory.record.exists():
        read_record(directory.record)
    return directory.checkpoints / choose(directory, which, metric=metric, mode=mode)


def choose(
    directory: RunDirectory,
    which: Which,
    *,
    metric: str | None = None,
    mode: Order | None = None,
    rankings: Sequence[Ranking] | None = None,
) -> str:
    """The name of the checkpoint that `which` stands for.

    Args:
        directory: the run.
        which: as for `checkpoint_path`.
        metric: as there.
        mode: as there.
        rankings: what the script calls best; None: as the lineage tells of the process that opened the run last.

    Raises:
        NoCheckpointError: see `checkpoint_path`, as for the others.
        AllDamagedError: see there.
        UsageError: see there.
    """
    _check(which, metric, mode)
    names = list(newest_first(directory.store().names()))
    if isinstance(which, int):
        return _at(directory, names, which)
    if not names:
        raise NoCheckpointError(f"{directory.path}: the run has no checkpoint.")
    sound = _sound(directory, names)
    if which == "latest":
        return next(sound)[0]
    manifests = dict(sound)
    told = told_rankings(read_history(directory)[0]) if rankings is None else rankings
    ranking = _ranking(directory, manifests, metric, mode, told)
    candidates = [Candidate(name, manifest.env_steps, manifest.scores) for name, manifest in manifests.items()]
    best = ranking.best_first(candidates)
    if not best:
        problem = f"no checkpoint has the score {ranking.metric!r}; {_there_are(manifests)}"
        raise UsageError(f"{directory.path}: {problem}.")
    return best[0].name


def _check(which: Any, metric: Any, mode: Any) -> None:
    is_step = type(which) is int and which >= 0
    if not is_step and which not in ("best", "latest"):
        raise UsageError(f"which={which!r}: 'best', 'latest', or the checkpoint's env-steps.")
    if mode not in (None, "max", "min"):
        raise UsageError(f"mode={mode!r}: 'max' or 'min'.")
    if which != "best" and not (metric is None and mode is None):
        raise UsageError(f"metric and mode say what the best one is; {which!r} needs neither.")


def _at(directory: RunDirectory, names: Sequence[str], env_steps: int) -> str:
    name = step_name(env_steps)
    if name not in names:
        steps = ", ".join(str(steps_of(there)) for there in names) or "none"
        raise NoCheckpointError(f"{directory.path}: no checkpoint at {env_steps} env-steps; there are: {steps}.")
    return name


def _sound(directory: RunDirectory, names: Iterable[str]) -> Iterator[tuple[str, Manifest]]:
    """Those whose manifests are intact, the newest first; says which are not, for one of them may be the best."""
    run_id, is_any, damage = _run_id(directory), False, []
    for name in names:
        try:
            manifest = manifest_of_run(directory.store(), name, run_id)
        except UnsupportedVersionError:
            raise
        except DamagedError as error:
            damage.append(str(error))
            _log.warning("%s: a damaged checkpoint is passed over: %s", directory.path, error)
            continue
        is_any = True
        yield name, manifest
    if not is_any:
        raise AllDamagedError("\n  ".join([f"{directory.path}: no manifest is intact.", *damage]))


def _run_id(directory: RunDirectory) -> str | None:
    try:
        return read_record(directory.record).run_id
    except (DamagedError, NoRunError):
        return None


def _ranking(
    directory: RunDirectory,
    manifests: Mapping[str, Manifest],
    metric: str | None,
    mode: Order | None,
    told: Sequence[Ranking],
) -> Ranking:
    if metric is not None:
        own = next((ranking for ranking in told if ranking.metric == metric), Ranking(metric))
        return Ranking(metric, mode or own.mode)
    if len(told) == 1:
        return Ranking(told[0].metric, mode or told[0].mode)
    several = f"the run ranks by {' and '.join(map(str, told))}" if told else "the run keeps no best one"
    raise UsageError(f"{directory.path}: best by which metric? {several}; {_there_are(manifests)}. {_NAME_ONE}")


def _there_are(manifests: Mapping[str, Manifest]) -> str:
    scores = sorted({name for manifest in manifests.values() for name in manifest.scores})
    return f"its checkpoints have {', '.join(scores)}" if scores else "its checkpoints have no scores at all"


def ranking_of(directory: RunDirectory, metric: str | None, mode: Order | None) -> Ranking:
    """What `best` means for a run, seen from outside.

    Raises:
        UsageError: nobody says it.
    """
    manifests = dict(_sound(directory, newest_first(directory.store().names())))
    return _ranking(directory, manifests, metric, mode, told_rankings(read_history(directory)[0]))


def rankings_of(keep: Keep | KeepAny | None) -> tuple[Ranking, ...]:
    """What a retention policy calls best."""
    return () if keep is None else keep.rankings


def told_rankings(history: Iterable[Mapping[str, Any]]) -> tuple[Ranking, ...]:
    """What the script called best when it opened the run last."""
    openings = [event["ranks"] for event in history if event["event"] in ("started", "resumed") and "ranks" in event]
    return tuple(Ranking(metric, mode) for metric, mode in openings[-1]) if openings else ()
