"""From any kind of file that is read to any that is written: checked, then written, and every loss said."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.errors import UsageError
from perdure.interop.carried import Carried, Kind, Leaf, described
from perdure.interop.losses import Losses
from perdure.interop.names import Rule, listed, renamed
from perdure.interop.recognition import kind_of, target_kind


@dataclass(frozen=True)
class Conversion:
    """What a conversion carried, or would carry."""

    source: str
    """The title of the source's kind."""
    target: str
    """The title of the target's kind."""
    leaves: tuple[Leaf, ...]
    """What was carried: arrays, keys, plain values, empty containers, by the names that the target has for them."""
    origins: tuple[str, ...]
    """The names of the same leaves in the source."""
    losses: tuple[str, ...]
    """What was carried in another form or not at all, `PLACE: SENTENCE` each."""
    metadata: dict[str, object]
    """What the source says beside its leaves."""


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: str | None = None,
    component: str | None = None,
    names: Sequence[str] = (),
    widen: bool = False,
    dry_run: bool = False,
) -> Conversion:
    r"""Writes what stands at `source` anew as a file or directory of another kind. The source is only read.

    Args:
        source: of any kind that is read (docs/interop.md).
        target: where nothing stands yet; after a failure nothing does.
        to: the kind to write: `perdure`, `safetensors`, …; None: by the end of `target`, else `perdure`.
        component: of a source that has several (a checkpoint of perdure), only this one, without its name before the
            leaves' names.
        names: rules `PATTERN=REPLACEMENT` that rename leaves (`layers.0.kernel`), one after another, by regular
            expressions: `policy\.(.*)=actor.\1`. A leaf whose name they empty
            is left out (`.*eps.*=`). With rules, the target is flat.
        widen: floating-point numbers that the target cannot hold become wider ones, exactly.
        dry_run: everything but the writing.

    Returns:
        What was carried, and what was not.

    Raises:
        UsageError: something stands at `target`, a name is wrong, or the target cannot hold a leaf.
        NoCheckpointError: there is nothing at `source`, or nothing that is known.
        DamagedError: the source is not what was written.
        CommitError: the disk failed.
    """
    start, end = Path(source).expanduser(), Path(target).expanduser()
    rules = [Rule.of(text) for text in names]
    reader, writer = kind_of(start), target_kind(to, end)
    check_target(end, start)
    losses = Losses()
    carried, origins = mapped(component_of(read_by(reader, start), component), rules, losses)
    prepared = writer.prepare(carried, widen=widen)
    told = (*carried.losses, *losses.lines(), *prepared.losses)
    named = listed(carried.tree)
    shown = tuple(Leaf(name, described(leaf), getattr(leaf, "nbytes", 0)) for name, leaf in named.items())
    origins_of = tuple(origins.get(name, name) for name in named)
    if not dry_run:  # last: nothing can fail behind it
        prepared.write(end)
    return Conversion(reader.title, writer.title, shown, origins_of, told, dict(carried.metadata))


def read_by(kind: Kind, path: Path) -> Carried:
    """Everything that stands at a path, in memory.

    Raises:
        UsageError: there is not enough memory.
        DamagedError: it is not what was written.
    """
    try:
        return kind.read(path)
    except MemoryError as error:
        raise UsageError(f"{path}: does not fit into the memory there is; use a machine with more.") from error


def check_target(target: Path, source: Path) -> None:
    """Refuses a place where something stands, or that is inside of the source."""
    if os.path.lexists(target):
        raise UsageError(f"{target}: there is something already; name a place where nothing stands.")
    if target.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"{target}: inside of what is converted; choose a place beside it.")


def component_of(carried: Carried, name: str | None) -> Carried:
    """What was read of one component; of all of them if `name` is None."""
    if name is None:
        return carried
    key = next((key for key in (name, *carried.tree) if key in carried.tree and str(key) == name), None)
    if key is None:
        raise UsageError(f"--component {name}: there is none; there are {', '.join(map(str, carried.tree))}.")
    part = carried.tree[key]
    others = [str(other) for other in carried.tree if other != key]
    noted = carried.noted.outside_of(others)
    for other in others:
        noted.add(other, f"left out, for only {name} was asked for.")
    tree = part if isinstance(part, dict) else {key: part}
    return replace(carried, tree=tree, noted=noted)


def mapped(carried: Carried, rules: Sequence[Rule], losses: Losses) -> tuple[Carried, dict[str, str]]:
    """What was read under other names, and the old name of each; nothing changes without rules."""
    if not rules:
        return carried, {}
    named, origins = renamed(listed(carried.tree), rules, losses)
    return replace(carried, tree=named), origins
