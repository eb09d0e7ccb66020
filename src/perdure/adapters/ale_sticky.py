"""Sticky actions: the action that ALE would repeat, which none of its own states holds.

With a repeat probability above zero (0.25 in the v5 environments) the emulator draws, at each frame, whether to take
the new action or the last one that it took. That last one is a private variable: not in `cloneSystemState`, and
nothing gives it away, for it may be older than the last action asked for. What can be known is whether it matters. The
generator is part of the state, so the coming draws can be computed: unless the next ones repeat it, it will be
overwritten unseen. If they do, it shows in the state that follows them, and an action that leads there is as good.

Continuous actions have a strength, which is repeated with them. It counts where the game has paddles, and there it
shows in how far the first repeat turns one.
"""

import itertools
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from perdure.errors import CaptureError
from perdure.format.digests import digest_of

Restore = Callable[[bytes], None]
"""Sets the emulator's system state."""

MOST_REPEATS = 200
"""More repeats in a row than this are refused: only a repeat probability near one makes them."""

_GENERATOR = re.compile(rb"(?:\d+ ){624}\d+")
"""A `std::mt19937` as C++ writes it: 624 words and the position. The second one of a state is the environment's."""


def repeats_to_come(ale: Any, state: bytes) -> int:
    """How often the last action will be repeated before a new one is taken.

    Raises:
        CaptureError: it cannot be told.
    """
    probability = ale.getFloat("repeat_action_probability")
    if probability == 0.0:
        return 0
    found = _GENERATOR.findall(state)
    if len(found) != 2 or ale.getInt("frame_skip") != 1 or probability >= 1.0:
        raise CaptureError(
            "ALE's generator was not found where ale-py 0.12 keeps it, its own frame_skip is not 1, or "
            "repeat_action_probability is 1, so that the action it would repeat cannot be told. Build the environment "
            "with repeat_action_probability=0, or wrap it in perdure.gym.Recorded."
        )
    draws = _draws(found[1], MOST_REPEATS + 1)
    taken = np.flatnonzero(draws >= np.float64(np.float32(probability)))
    if not taken.size:
        raise CaptureError(f"ALE will repeat an action more than {MOST_REPEATS} times; lower the repeat probability.")
    return int(taken[0])


def consequence(ale: Any, state: bytes, repeats: int, restore: Restore) -> tuple[str, int]:
    """What follows while the last action is repeated; `state` comes back.

    The steps made for it repeat that action, and so leave it as it is. A reset would overwrite it.

    Returns:
        A digest of the states behind each repeat and of their rewards, and how far the first of them turns the paddle.
        The last state alone would not do: what a player sees in between may differ and end in the same.
    """
    rewards, states = [], []
    for _ in range(repeats):
        rewards.append(ale.act(0))
        states.append(ale.cloneSystemState().serialize())
    restore(state)
    return digest_of(b"".join(states) + repr(rewards).encode()), _paddle(states[0]) - _paddle(state)


def find_last_action(ale: Any, state: bytes, repeats: int, wanted: str, turned: int, restore: Restore) -> bool:
    """Makes the emulator's last action one that leads to the `wanted` consequence; False if none does.

    `turned` is how far its first repeat turned the paddle in the run. Stopped at an end, any strength that gets there
    does the same.
    """
    # The emulator rounds towards 0: half a unit more turns as far.
    strengths = [1.0] if turned in (0, _FARTHEST, -_FARTHEST) else [(abs(turned) + 0.5) / _FARTHEST, 1.0]
    for strength, action in itertools.product(strengths, ale.getLegalActionSet()):
        restore(state)
        for _ in range(repeats + 1):  # the last of these is taken
            ale.act(action, strength)
        restore(state)
        if consequence(ale, state, repeats, restore)[0] == wanted:
            return True
    return False


_FARTHEST = 23_000
"""How far an action of full strength turns a paddle in a frame."""


def _paddle(state: bytes) -> int:
    """Where the first player's paddle stands: the state begins with it."""
    return struct.unpack_from("<i", state)[0]


def _draws(generator: bytes, count: int) -> np.ndarray:
    """The next numbers in [0, 1) that are drawn for the first player; the second player's lie between them."""
    *key, position = map(int, generator.split())
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": np.array(key, np.uint32), "pos": position}}
    return np.asarray(twister.random_raw(2 * count), np.float64)[::2] / 2.0**32
