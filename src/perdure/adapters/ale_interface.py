"""The Arcade Learning Environment's emulator: its system state, random number generator included, as its own bytes."""

from functools import partial
from typing import Any

import ale_py
import numpy as np

from perdure.adapters.adapter import ExactAdapter, Kind
from perdure.adapters.ale_sticky import consequence, find_last_action, repeats_to_come
from perdure.adapters.walk import Walk
from perdure.errors import CaptureError, Finding, RestoreError
from perdure.tree.diff import summary
from perdure.tree.leaves import Array, Tree
from perdure.tree.paths import format_path

STATE = "system"
NEXT = "after the repeats to come"
TURNED = "paddle turned by the next repeat"


class Ale(ExactAdapter):
    """`ale_py.ALEInterface`, restored in place. `cloneState` would lack the generator that sticky actions draw from."""

    id = "ale-interface"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The serialised system state (uint8, about 14 kB), and what the last action leads to if it is repeated."""
        state = obj.cloneSystemState().serialize()
        try:
            repeats = repeats_to_come(obj, state)
        except CaptureError as error:
            raise CaptureError(f"{format_path(walk.path)}: {error}") from error
        follows, turned = consequence(obj, state, repeats, partial(_restore, obj)) if repeats else (None, 0)
        paddle = {TURNED: turned} if turned else {}
        return {STATE: Array(np.frombuffer(state, np.uint8), immutable=True), NEXT: follows, **paddle}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """A state, at least: the game is a fact of the environment."""
        if isinstance(tree, dict) and tree.keys() - {TURNED} == {STATE, NEXT} and isinstance(tree[STATE], Array):
            return []
        return [walk.finding(summary(tree), "an ALE emulator", "Build the environment as the run did.")]

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the system state.

        Raises:
            RestoreError: no last action leads to what followed in the run.
        """
        state, wanted, turned = tree[STATE].value.tobytes(), tree[NEXT], tree.get(TURNED, 0)
        _restore(obj, state)
        repeats = repeats_to_come(obj, state)
        if repeats and not find_last_action(obj, state, repeats, wanted, turned, partial(_restore, obj)):
            raise RestoreError(f"{format_path(walk.path)}: no action leads the emulator where it went in the run")
        return obj


def _restore(ale: Any, state: bytes) -> None:
    ale.restoreSystemState(ale_py.ALEState(state))
