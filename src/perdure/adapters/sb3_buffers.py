"""Replay buffers of Stable-Baselines3 as rows by position: what did not change since the last checkpoint is shared.

They keep a position and whether they are full, and no count of what was ever added. So row `i` is the one at index `i`,
and what was overwritten or edited since is found by the digests of blocks, over all that the buffer holds.
"""

from typing import Any

import numpy as np
import stable_baselines3

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.row_checks import check_rows
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree
from perdure.tree.rows import Rows

ROWS = "rows"
_COLUMNS = ("actions", "dones", "next_observations", "observations", "rewards", "timeouts")
_CHOSEN = ("gamma", "handle_timeout_termination", "n_steps", "optimize_memory_usage")
"""Arguments that the buffer keeps as attributes: compared, not restored."""
_NO_STATE = frozenset(
    {"action_dim", "action_space", "buffer_size", "device", "n_envs", "obs_shape", "observation_space"}
)
"""Sizes show in the columns; spaces are drawn from by the algorithm and the environments, never by the buffer."""


class ReplayBuffer(ExactAdapter):
    """`ReplayBuffer`, `DictReplayBuffer` and `NStepReplayBuffer`.

    Not their subclasses, which may hold more: `sb3_algorithms.Buffer` takes those, with all their attributes.
    """

    id = "sb3-replay-buffer"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The rows, borrowed, and what else the buffer holds: `pos`, `full`, attributes of the user's."""
        walk.facts[(walk.path[0], "stable_baselines3")] = stable_baselines3.__version__
        for name in _CHOSEN:
            if name in vars(obj):
                walk.fact(repr(vars(obj)[name]), name)
        return {ROWS: _rows(obj), **{name: walk.capture(value, name) for name, value in _others(obj).items()}}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The same size, environments and columns."""
        others = _others(obj)
        if not isinstance(tree, dict) or tree.keys() != {ROWS, *others}:
            return [walk.finding(summary(tree), type(obj).__name__, "Build the buffer as the run did.")]
        findings = check_rows(_rows(obj), tree[ROWS], walk, ROWS, capacity="buffer_size // n_envs")
        return [*findings, *(each for name, value in others.items() for each in walk.check(value, tree[name], name))]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place, without memory of its own beyond what the rows were read into."""
        saved = tree[ROWS]
        Rows(saved.start, saved.stop, _columns(obj)).fill_from(saved)
        for name, value in _others(obj).items():
            vars(obj)[name] = walk.restore(value, tree[name], name)
        return obj


def _rows(obj: Any) -> Rows:
    size = obj.size()
    if obj.optimize_memory_usage and 0 < size < obj.buffer_size:
        size += 1  # the newest next observation stands where the next observation will
    return Rows(0, size, _columns(obj), cut=obj.pos)


def _columns(obj: Any) -> dict[str, np.ndarray]:
    columns = {}
    for name in _COLUMNS:
        value = vars(obj).get(name)
        if isinstance(value, dict):
            columns |= {f"{name}/{key}": column for key, column in value.items()}
        elif value is not None:
            columns[name] = value
    return columns


def _others(obj: Any) -> dict[str, Any]:
    skipped = _NO_STATE.union(_COLUMNS, _CHOSEN)
    return {name: value for name, value in sorted(vars(obj).items()) if name not in skipped}
