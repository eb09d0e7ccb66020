"""perdure's own checkpoints and policies, as a source and as a target of conversions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import PLAIN_ADAPTERS
from perdure.checkpoint.capture import Counters, capture, check_names
from perdure.checkpoint.oneshot import read_snapshot, save_snapshot_at
from perdure.checkpoint.policy import is_policy, open_policy
from perdure.errors import UsageError
from perdure.format.manifest import FILE_NAME
from perdure.interop.carried import Carried, Prepared
from perdure.interop.losses import Losses
from perdure.store.local import LocalStore
from perdure.tree.leaves import Alias, Array, PRNGKey, Tree
from perdure.tree.paths import Path as TreePath
from perdure.tree.paths import format_path
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Snapshot

CONTENT = "content"
"""The one component of what has none."""

NO_TARGETS = "is kept as plain values: a resume needs the objects that they were made of."


class PerdureDirectory:
    """A checkpoint or a policy of perdure."""

    name = "perdure"
    title = "a checkpoint of perdure"

    def recognises(self, path: Path) -> bool:
        """A directory with a manifest in it."""
        return path.is_dir() and ((path / FILE_NAME).is_file() or is_policy(path))

    def read(self, path: Path) -> Carried:
        """Every component as plain values, verified."""
        policy = None
        if is_policy(path):
            policy = open_policy(LocalStore(path.parent, path.parent / "damaged"), path.name)
        snapshot = policy.snapshot if policy else read_snapshot(path)
        losses = Losses()
        tree = {name: _Plain(snapshot, losses).at(part.tree, (name,)) for name, part in snapshot.components.items()}
        for name, part in snapshot.components.items():
            if part.adapter not in PLAIN_ADAPTERS:
                losses.add(name, f"captured by {part.adapter}, {NO_TARGETS}")
        return Carried(tree, _metadata(snapshot), losses)

    def prepare(self, carried: Carried, *, widen: bool) -> Prepared:
        """Captures what is carried; components are the dicts at its root, if all there are dicts with plain names.

        Raises:
            CaptureError: a leaf has no exact form.
        """
        del widen  # every dtype can be held
        components = _components(carried.tree)
        losses = Losses()
        if list(components) == [CONTENT]:
            losses.add(CONTENT, "the one component that everything stands in.")
        counters = {name: carried.metadata.get(name) for name in ("env_steps", "updates", "boundary")}
        known = {name: count for name, count in counters.items() if type(count) is int and count >= 0}
        for name in carried.metadata.keys() - known.keys():
            losses.add(str(name), "said beside the leaves; a checkpoint has no place for it.")
        snapshot = capture(components, Resolver(), Counters(**known)).snapshot
        return Prepared(lambda target: save_snapshot_at(target, snapshot), losses.lines())


def _components(tree: Mapping[Any, Tree]) -> dict[str, Tree]:
    if not tree or not all(isinstance(name, str) for name in tree):
        return {CONTENT: dict(tree)}
    try:
        check_names(tree)
    except UsageError:
        return {CONTENT: dict(tree)}
    if not any(isinstance(part, dict | list | tuple) for part in tree.values()):
        return {CONTENT: dict(tree)}
    return dict(tree)


def _metadata(snapshot: Snapshot) -> dict[str, Any]:
    return {"env_steps": snapshot.env_steps, "updates": snapshot.updates, "boundary": snapshot.boundary}


class _Plain:
    """Nodes of a snapshot as plain values."""

    def __init__(self, snapshot: Snapshot, losses: Losses) -> None:
        self._snapshot = snapshot
        self._losses = losses

    def at(self, node: Tree, path: TreePath) -> Tree:
        """One node; every loss is noted."""
        match node:
            case dict():
                return {step: self.at(child, (*path, step)) for step, child in node.items()}
            case list() | tuple():
                return type(node)(self.at(child, (*path, at)) for at, child in enumerate(node))
            case Alias():
                self._losses.add(path, f"the same object as {format_path(node.path)}; it became a copy.")
                return self.at(self._snapshot.resolve(node), path)
            case PRNGKey():
                self._losses.add(path, f"a {node.implementation} key became its key data.")
                return node.data.value
            case Rows():
                self._losses.add(path, "rows became their columns, and the numbers of the first row and the last.")
                held = {name: list(node.views(name, node.start, node.stop)) for name in node.columns}
                columns = {name: np.concatenate(views) for name, views in held.items() if views}
                return {"start": node.start, "stop": node.stop, "columns": columns}
            case Array():
                if node.weak_type:
                    self._losses.add(path, "JAX's weak type is not kept, the value is.")
                return node.value[()] if node.scalar else node.value
            case _:
                return node


KIND = PerdureDirectory()
