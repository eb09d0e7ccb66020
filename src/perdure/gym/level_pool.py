"""`LevelPool`: an endless stream of levels. Its position is part of a run's state, their contents of its contract."""

import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from perdure import File, UsageError

Level = Any
"""A path (`str`, `os.PathLike`) or an id (`str`, `int`)."""


class LevelPool:
    """Levels one after another, for environments that begin each episode with another one.

    ```python
    pool = LevelPool(sorted(Path("levels").glob("*.txt")), mode="random", seed=1)

    class Maze(gymnasium.Env):
        def __init__(self, pool): self.pool = pool
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.grid = read(self.pool.next())
    ```

    An environment that keeps a pool as an attribute is captured with it: a resume goes on with the level that would
    have come next (habitat-lab issue 133: a stream that restarts shows the same prefix after every crash).

    Files are compared by content: one changed byte refuses the resume, and names the file; a folder that moved does
    not. Keep no path of a level in the environment, for it is an attribute like any other and would come back from
    where the run began: ask `current`.

    Several environments of one process may share a pool: each `next` goes on from the one before, whoever asked. Those
    in processes of their own cannot; give each the stream of its index, `pool.for_env(index)`, in either case if
    checkpoints are to fit both.
    """

    def __init__(
        self, levels: Sequence[Level], *, mode: Literal["round-robin", "random"] = "round-robin", seed: int = 0
    ) -> None:
        """Reads all files once, to know their contents.

        Args:
            levels: paths of files, or ids (numbers, texts). A text is a path if it has a slash or names a file.
            mode: `round-robin` goes through them in their order, for ever; `random` draws each, with equal chances.
            seed: of the draws; not used by `round-robin`.

        Raises:
            UsageError: no levels, a file that is not there, an unknown mode.
        """
        if isinstance(levels, str | os.PathLike) or not isinstance(levels, Sequence) or not levels:
            example = 'LevelPool(sorted(Path("levels").glob("*.txt")))'
            raise UsageError(f"LevelPool: levels={levels!r}: a list of paths or ids: {example}.")
        if mode not in ("round-robin", "random"):
            raise UsageError(f"LevelPool: mode={mode!r}: one of 'round-robin', 'random'.")
        self.levels = tuple(levels)
        """Paths and ids, as they were given."""
        self.mode = mode
        """How the next is chosen."""
        self.contents = _contents(self.levels)
        """What each level is, in words: its name and, of files, the digest of its content. Compared at a resume."""
        self._seeds: tuple[int, ...] = (_seed(seed),)
        self._rng = _generator(self._seeds)
        self._first = 0
        self._drawn = 0
        self._at: int | None = None

    def __len__(self) -> int:
        """How many levels there are."""
        return len(self.levels)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed and, of `for_env`, the index."""
        return self._seeds

    @property
    def drawn(self) -> int:
        """How many levels were handed out so far."""
        return self._drawn

    @property
    def current(self) -> Level | None:
        """The level that was handed out last; None before the first."""
        return None if self._at is None else self.levels[self._at]

    def next(self) -> Level:
        """The next level, as it was given."""
        if self.mode == "random":
            at = int(self._rng.integers(len(self.levels)))
        else:
            at = (self._first + self._drawn) % len(self.levels)
        self._at = at
        self._drawn += 1
        return self.levels[at]

    def for_env(self, index: int) -> "LevelPool":
        """A stream of its own for one of several environments.

        Args:
            index: which environment, from 0. `random` draws from the seed and this; `round-robin` begins with the level
                of this number.
        """
        own = object.__new__(LevelPool)
        own.levels, own.mode, own.contents = self.levels, self.mode, self.contents
        own._seeds = (*self._seeds, _seed(index))
        own._rng = _generator(own._seeds)
        own._first, own._drawn, own._at = self._first + index, 0, None
        return own

    def state_dict(self) -> dict[str, Any]:
        """How many levels were handed out, which one last, and the generator."""
        return {"drawn": self._drawn, "at": self._at, "rng": self._rng}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there; the generator has been restored in place."""
        self._drawn, self._at, self._rng = state["drawn"], state["at"], state["rng"]


def _generator(seeds: tuple[int, ...]) -> np.random.Generator:
    """The indices as spawn keys: entropy alone would give (1,) and (1, 0) the same stream."""
    return np.random.default_rng(np.random.SeedSequence(seeds[0], spawn_key=seeds[1:]))


def _seed(number: Any) -> int:
    try:
        seed = operator.index(number)
    except TypeError:
        seed = -1
    if seed < 0:
        raise UsageError(f"LevelPool: {number!r} is no seed and no index: a whole number from 0.")
    return seed


def _contents(levels: Sequence[Level]) -> tuple[str, ...]:
    files = [Path(level).absolute() if _is_file(level) else None for level in levels]
    folders = [str(file.parent) for file in files if file is not None]
    above = os.path.commonpath(folders) if folders else ""
    return tuple(
        repr(level) if file is None else f"{file.relative_to(above).as_posix()} {File(file).fact()}"
        for level, file in zip(levels, files, strict=True)
    )


def _is_file(level: Level) -> bool:
    if isinstance(level, os.PathLike):
        return True
    if isinstance(level, bool) or not isinstance(level, str | int):
        raise UsageError(f"LevelPool: {level!r} is neither a path nor an id: ids are numbers or texts.")
    return isinstance(level, str) and ("/" in level or Path(level).is_file())
