"""`PrioritizedRing`: a `Ring` from which transitions are drawn in proportion to their priorities."""

import os
from collections.abc import Mapping

import numpy as np

from perdure.adapters.ring import Ring
from perdure.adapters.ring_columns import Column
from perdure.errors import UsageError


class PrioritizedRing(Ring):
    """A ring with proportional prioritisation (Schaul et al., 2016, https://arxiv.org/abs/1511.05952).

    ```python
    places = replay.draw(rng, 32)
    batch, weights = replay.take(places), replay.weights(places, beta=0.4)
    replay.prioritise(places, np.abs(errors) + 1e-6)
    ```

    New transitions have the greatest priority that there ever was, at first 1. A checkpoint holds the sum tree bit for
    bit, as a whole: 16 bytes a transition beside the rows.

    Attributes:
        alpha: exponent of the priorities.
        tree: the sum tree, float64: node 1 is the sum of all, node `i` that of nodes `2 * i` and `2 * i + 1`; the
            second half are the priorities to the power of `alpha`, by place.
        max_priority: the greatest priority so far, to the power of `alpha`.
    """

    def __init__(
        self,
        capacity: int,
        columns: Mapping[str, Column],
        *,
        alpha: float = 0.6,
        num_envs: int | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        """Makes an empty ring; see `Ring`.

        Args:
            capacity: rows that it can hold.
            columns: as for `Ring`.
            alpha: exponent of the priorities; 0 draws uniformly.
            num_envs: as for `Ring`.
            directory: as for `Ring`; the tree stays in memory.

        Raises:
            UsageError: an argument cannot be right.
        """
        super().__init__(capacity, columns, num_envs=num_envs, directory=directory)
        self.alpha = float(alpha)
        self._leaves = 1 << (self.capacity * (num_envs or 1) - 1).bit_length()
        self.tree = np.zeros(2 * self._leaves)
        self.max_priority = 1.0

    def draw(self, generator: np.random.Generator, batch: int) -> np.ndarray:
        """Places drawn in proportion to their priorities, one from each of `batch` equal shares of their sum.

        See `Ring.draw`.
        """
        self._refuse_draw(generator)
        mass = (np.arange(batch) + generator.random(batch)) * self.tree[1] / batch
        nodes = np.ones(batch, np.int64)
        while nodes.size and nodes[0] < self._leaves:
            left = self.tree[2 * nodes]
            mass, nodes = np.where(mass < left, mass, mass - left), 2 * nodes + (mass >= left)
        return np.minimum(nodes - self._leaves, len(self) - 1)  # sums round, and mass may come out beyond the last

    def weights(self, places: np.ndarray, beta: float) -> np.ndarray:
        """Importance weights of what was drawn, the greatest of them 1; float64, shape (number,)."""
        shares = self.tree[self._places(places) + self._leaves] / self.tree[1]
        weights = (len(self) * shares) ** -beta
        return weights / weights.max()

    def prioritise(self, places: np.ndarray, priorities: np.ndarray) -> None:
        """Sets priorities, such as absolute errors; of a place that is there twice the last counts.

        Args:
            places: which, shape (number,).
            priorities: greater than 0, shape (number,).

        Raises:
            UsageError: there is no such place, or a priority is not greater than 0 or not finite.
        """
        places, priorities = self._places(places), np.asarray(priorities, np.float64)
        if priorities.shape != places.shape or not (np.isfinite(priorities).all() and (priorities > 0).all()):
            raise UsageError("PrioritizedRing.prioritise: a finite priority greater than 0 for each place.")
        self._set(places, priorities**self.alpha)

    def _write(self, rows: Mapping[str, np.ndarray], number: int) -> None:
        super()._write(rows, number)
        slots = np.arange(max(self.start, self.total - number), self.total) % self.capacity
        envs = self.num_envs or 1
        places = (slots[:, None] * envs + np.arange(envs)).reshape(-1)
        self._set(places, np.full(len(places), self.max_priority))

    def _set(self, places: np.ndarray, scaled: np.ndarray) -> None:
        if not len(places):
            return
        self.max_priority = max(self.max_priority, float(scaled.max()))
        nodes = places + self._leaves
        self.tree[nodes] = scaled
        while nodes[0] > 1:
            nodes = np.unique(nodes // 2)
            self.tree[nodes] = self.tree[2 * nodes] + self.tree[2 * nodes + 1]
