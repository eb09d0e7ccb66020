"""Seeds of spaces: the same ones wherever environments are, others for each environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.wrappers import vector as vector_wrappers  # noqa: E402

from perdure.errors import WorkerDiedError  # noqa: E402
from perdure.gym import make_vec, seed_spaces  # noqa: E402

pytestmark = [
    # A fork of a process that other tests made JAX start threads in: these workers use none of them.
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]


class Sampling(gymnasium.Wrapper):
    """Acts at random now and then, from a space of its own."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))

    def draws(self) -> list[float]:
        """Numbers from its own space and from that of the environment inside."""
        return [float(space.sample()[0]) for space in (self.action_space, self.env.action_space)]


def made(mode: Any) -> Any:
    envs = make_vec([lambda: Sampling(gymnasium.make("Pendulum-v1"))] * 2, mode=mode, context="fork")
    return vector_wrappers.RescaleAction(envs, np.full(1, -1, np.float32), np.full(1, 1, np.float32))


def drawn(envs: Any) -> list[Any]:
    of_the_batch = [space.sample().tolist() for space in (envs.action_space, envs.env.action_space)]
    singles = [envs.single_action_space.sample().tolist(), envs.unwrapped.single_observation_space.sample().tolist()]
    return [*of_the_batch, *singles, *envs.unwrapped.call("draws")]


@pytest.mark.full
def test_one_seed_gives_the_same_numbers_in_every_process():
    found = []
    for mode, seed in (("sync", 1), ("async", 1), ("async", 2)):
        envs = made(mode)
        seed_spaces(envs, seed)
        found.append(drawn(envs))
        envs.close()

    assert found[0] == found[1]
    assert all(first != other for first, other in zip(found[1], found[2], strict=True))
    numbers = [number for draws in found[0][-2:] for number in draws]
    assert len(set(numbers)) == 4


def test_twin_without_it_two_vectors_differ():
    first, second = drawn(made("sync")), drawn(made("sync"))

    assert all(one != other for one, other in zip(first, second, strict=True))


@pytest.mark.full
def test_a_dead_worker_is_named():
    envs: Any = made("async").unwrapped
    envs.processes[1].kill()
    envs.processes[1].join()

    with pytest.raises(WorkerDiedError, match=r"environment 1: its worker process died \(signal 9 killed it\)"):
        seed_spaces(envs, 1)
    envs.close()


def test_a_single_environment_draws_what_the_seed_says():
    envs = [Sampling(gymnasium.make("Pendulum-v1")) for _ in range(3)]
    for env, seed in zip(envs, (7, 7, 8), strict=True):
        seed_spaces(env, seed)
    one, same, other = (env.draws() for env in envs)

    assert one == same
    assert all(a != b for a, b in zip(one, other, strict=True))
