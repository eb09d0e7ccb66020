"""A MiniGrid that reads its levels from files. A module of its own: checkpoints name the class by it."""

from pathlib import Path
from typing import Any

from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Goal, Lava, Wall
from minigrid.minigrid_env import MiniGridEnv

from perdure.gym import LevelPool

THINGS = {"#": Wall, "~": Lava, "G": Goal}


def mission() -> str:
    """The only one."""
    return "get to the goal"


class Maze(MiniGridEnv):
    """`#` walls, `~` lava, `G` the goal; the agent begins at a place that is drawn."""

    def __init__(self, pool: LevelPool, *, max_steps: int) -> None:
        """Levels of 7 × 7."""
        self.pool = pool
        super().__init__(MissionSpace(mission), width=7, height=7, max_steps=max_steps, agent_view_size=5)

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid, self.mission = Grid(width, height), mission()
        level: Any = self.pool.next()
        for y, row in enumerate(Path(level).read_text().splitlines()):
            for x, sign in enumerate(row):
                if sign in THINGS:
                    self.grid.set(x, y, THINGS[sign]())
        self.place_agent()
