"""Probing: whether checkpoints of an environment are exact, found out on throw-away twins."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium

import perdure
from perdure.gym.outcomes import digest_of_value, leaves_of

Verdict = Literal["exact", "inexact", "not deterministic", "refused"]


@dataclass(frozen=True)
class Probe:
    """What a probe found."""

    verdict: Verdict
    """`exact`: at every point the restored twin went on as the original. `inexact`: it did not. `not deterministic`:
    two fresh environments with equal seeds and actions differ, so that no class of checkpoint can be exact.
    `refused`: the environment cannot be captured or restored."""
    points: int
    """Points of capture that were tried, the failing one included."""
    reason: str
    """The first difference, or why it was refused; empty if exact."""

    def __str__(self) -> str:
        """A sentence."""
        found = f"{self.verdict} ({self.points} points of capture)"
        return f"{found}: {self.reason}" if self.reason else found


def probe(
    factory: Callable[[], gymnasium.Env], *, points: int = 20, steps: int = 300, between: int = 7, seed: int = 0
) -> Probe:
    """Captures and restores an environment again and again, and compares what follows.

    The twins have another past each: another seed, other actions, another number of steps. No environment of a
    training is touched.

    Args:
        factory: makes the environment, the same one each time.
        points: how many points of capture.
        steps: steps after each, compared bit by bit: observation, reward, terminated, truncated and info (without
            real time), across resets.
        between: steps from one comparison to the next point.
        seed: of the first reset and of the actions.

    Returns:
        The verdict; the first differing key is named.
    """
    source, space = factory(), factory().action_space  # drawing from another one's space leaves the source's alone
    problem = _first_difference(_begin(source, seed), _begin(factory(), seed), space, steps, seed, "step")
    if problem is not None:
        return Probe("not deterministic", 0, f"twins with equal seeds differ: {problem}")
    for point in range(1, points + 1):
        twin = _begin(factory(), seed + 1000 + point)
        list(_go(twin, _drawn(space, 5 + 3 * point, seed + point)))
        list(_go(source, _drawn(space, between, seed + 2000 + point)))
        try:
            _carry_over(source, twin)
        except perdure.PerdureError as error:
            return Probe("refused", point, str(error))
        problem = _first_difference(source, twin, space, steps, seed + 3000 + point, f"point {point}, step")
        if problem is not None:
            return Probe("inexact", point, problem)
    return Probe("exact", points, "")


def _begin(env: gymnasium.Env, seed: int) -> gymnasium.Env:
    env.reset(seed=seed)
    return env


def _carry_over(source: gymnasium.Env, twin: gymnasium.Env) -> None:
    with tempfile.TemporaryDirectory() as folder:
        perdure.save(Path(folder) / "probe", env=source)
        perdure.load(Path(folder) / "probe", env=twin)


def _first_difference(
    one: gymnasium.Env, other: gymnasium.Env, space: gymnasium.Space, steps: int, seed: int, place: str
) -> str | None:
    actions = _drawn(space, steps, seed)
    rows = zip(_go(one, actions), _go(other, actions), strict=True)
    for at, (row, counterpart) in enumerate(rows, start=1):
        if digest_of_value(row) != digest_of_value(counterpart):
            return f"{place} {at}: {_difference(row, counterpart)}"
    return None


def _difference(row: dict[str, Any], counterpart: dict[str, Any]) -> str:
    found, others = dict(leaves_of(row)), dict(leaves_of(counterpart))
    keys = (key for key in [*found, *others] if digest_of_value(found.get(key)) != digest_of_value(others.get(key)))
    key = next(keys, "")
    return f"{key.lstrip('/')} is {found.get(key)!r} in one and {others.get(key)!r} in the other"


def _drawn(space: gymnasium.Space, steps: int, seed: int) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(steps)]


def _go(env: gymnasium.Env, actions: list[Any]) -> Iterator[dict[str, Any]]:
    """One row for each step; where an episode ends the reset is a row, too."""
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        yield {
            "observation": observation,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "info": info,
        }
        if (terminated or truncated) and not isinstance(env, gymnasium.wrappers.Autoreset):
            observation, info = env.reset()
            yield {"reset observation": observation, "info": info}
