"""`make_vec`: in one process or several the same numbers and the same state, exact at every step, and safe to stop."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import wrappers  # noqa: E402
from gymnasium.wrappers import vector as vector_wrappers  # noqa: E402
from tests.gym.stepping import (  # noqa: E402
    MODES,
    Make,
    advanced,
    cartpole,
    exact,
    limits,
    pendulum,
    step_at,
    steps,
    wrapped,
)

import perdure  # noqa: E402
from perdure.adapters.resolve import Resolver  # noqa: E402
from perdure.checkpoint.capture import Counters, capture  # noqa: E402
from perdure.checkpoint.restore import restore  # noqa: E402
from perdure.errors import CaptureError, ContractError, RestoreError, UsageError, WorkerDiedError  # noqa: E402
from perdure.format.state_digest import component_digests  # noqa: E402
from perdure.gym import AsyncVectorEnv, make_vec  # noqa: E402
from perdure.tree.leaves import owned  # noqa: E402
from perdure.tree.snapshot import Snapshot  # noqa: E402

pytestmark = [
    # A fork of a process that other tests made JAX start threads in: these workers use none of them.
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning"),
]


@contextmanager
def made(factories: list[Make], mode: Any, **options: Any) -> Iterator[Any]:
    envs = make_vec(factories, mode=mode, context="fork", **options)
    try:
        yield envs
    finally:
        envs.close()


def in_processes(factories: list[Make], context: Any = "fork") -> AsyncVectorEnv:
    envs = make_vec(factories, mode="async", context=context)
    assert isinstance(envs, AsyncVectorEnv)
    return envs


def snapshot_of(envs: Any) -> Snapshot:
    snapshot = capture({"c": envs}, Resolver(), Counters()).snapshot
    return replace(
        snapshot, components={"c": replace(snapshot.components["c"], tree=owned(snapshot.components["c"].tree))}
    )


def put(snapshot: Snapshot, envs: Any) -> None:
    restore(snapshot, {"c": envs}, Resolver(), "step")


def digest(envs: Any) -> str:
    return component_digests(snapshot_of(envs))["c"]


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
def test_both_modes_step_alike_and_every_step_of_one_goes_on_in_both(mode: str):
    """Nine wrappers inside; after each of 24 steps the state goes from the workers to both, which go on as one that
    was never stopped."""
    factories = [wrapped(make) for make in limits(cartpole)]
    with (
        made(factories, "sync", autoreset_mode=mode) as straight,
        made(factories, "async", autoreset_mode=mode) as source,
        made(factories, "async", autoreset_mode=mode) as there,
        made(factories, "sync", autoreset_mode=mode) as here,
    ):
        assert exact(straight.reset(seed=5)) == exact(source.reset(seed=5))
        rows = [step_at(straight, number) for number in range(40)]
        pending = set()
        for number in range(24):
            snapshot = snapshot_of(source)
            pending.add(tuple(snapshot.at(("c", "pending"))))
            for target in (there, here):
                put(snapshot, target)
                assert [step_at(target, at) for at in range(number, number + 16)] == rows[number : number + 16], number
            assert step_at(source, number) == rows[number]
        assert len(pending) > (1 if mode != "Disabled" else 0)


@pytest.mark.full
def test_a_checkpoint_of_either_mode_fits_the_other(tmp_path: Path):
    """With vector wrappers around, through files, in both directions."""

    def stack(mode: Any) -> Any:
        envs: Any = make_vec(limits(pendulum), mode=mode, context="fork")
        return vector_wrappers.NormalizeReward(vector_wrappers.NormalizeObservation(envs))

    for first, second in (("sync", "async"), ("async", "sync")):
        source, target = advanced(stack(first), 13), stack(second)
        perdure.save(tmp_path / first, envs=source)
        perdure.load(tmp_path / first, envs=target)

        assert steps(target, 40, seed=3) == steps(source, 40, seed=3)
        assert digest(target) == digest(source)
        source.close()
        target.close()


def test_twin_pending_resets_that_are_lost_are_found():
    with made(limits(cartpole), "async") as source, made(limits(cartpole), "async") as target:
        advanced(source, 5)
        snapshot = snapshot_of(source)
        tree = snapshot.components["c"].tree
        assert any(tree["pending"])
        lost = replace(snapshot.components["c"], tree={**tree, "pending": [False] * 3})
        put(replace(snapshot, components={"c": lost}), target)

        assert steps(target, 20, seed=3) != steps(source, 20, seed=3)


@pytest.mark.full
@pytest.mark.parametrize("part", ["envs", "observations"])
def test_twin_a_part_that_is_lost_is_found(part: str):
    """Observations count where a reset by mask shows those of the environments that it leaves alone."""
    with made(limits(cartpole), "async", autoreset_mode="Disabled") as source, made(limits(cartpole), "async") as other:
        advanced(source, 9)
        snapshot = snapshot_of(source)
        advanced(source, 3)
        lost = snapshot_of(source).components["c"].tree[part]
        put(snapshot, source)
        tree = {**snapshot.components["c"].tree, part: lost}
        before = exact(source.reset(options={"reset_mask": np.array([True, False, False])}))
        put(replace(snapshot, components={"c": replace(snapshot.components["c"], tree=tree)}), source)

        assert exact(source.reset(options={"reset_mask": np.array([True, False, False])})) != before
        with pytest.raises(ContractError, match=r"c/autoreset_mode: Disabled in the run, NextStep here"):
            put(snapshot, other)


class Pair(gymnasium.Env):
    """Observations of two parts; raises what an action tells it to."""

    observation_space = gymnasium.spaces.Dict(
        {"a": gymnasium.spaces.Box(-9, 9, (2, 3)), "b": gymnasium.spaces.MultiBinary(4)}
    )
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self) -> None:
        self.a = np.zeros((2, 3), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.a = self.np_random.standard_normal((2, 3)).astype(np.float32)
        return self._seen(), {"mask": np.array([1, 0, 1], np.int8)}

    def step(self, action: Any) -> Any:
        self.a += self.np_random.standard_normal((2, 3)).astype(np.float32)
        return self._seen(), float(self.a.sum()), bool(self.a[0, 0] > 1), False, {"level": f"{self.a[0, 0]:.1f}"}

    def _seen(self) -> Any:
        return {"a": self.a.copy(), "b": (self.a.reshape(-1)[:4] > 0).astype(np.int8)}

    def explode(self) -> None:
        raise Custom("two", "arguments")


class Custom(Exception):
    """Cannot be made from one text, so that another process cannot raise it."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one, two)


@pytest.mark.parametrize("options", [{}, {"copy": False}, {"shared_memory": False}], ids=["", "no copies", "pipes"])
def test_observations_of_several_parts(options: dict[str, Any]):
    with made([Pair] * 2, "async", **options) as source, made([Pair] * 2, "async", **options) as target:
        advanced(source, 7)
        held, parts = target.observations, dict(target.observations)
        put(snapshot_of(source), target)

        assert exact(target.observations) == exact(source.observations)
        assert target.observations is held
        assert all(target.observations[name] is part for name, part in parts.items())
        mask = np.array([False, True])
        assert exact(target.reset(options={"reset_mask": mask})) == exact(source.reset(options={"reset_mask": mask}))
        assert [step_at(target, at) for at in range(20)] == [step_at(source, at) for at in range(20)]


def test_capturing_changes_nothing_in_the_workers():
    with made(limits(cartpole), "async") as captured, made(limits(cartpole), "async") as left_alone:
        advanced(captured, 6)
        advanced(left_alone, 6)
        assert digest(captured) == digest(captured)

        assert steps(captured, 30, seed=3) == steps(left_alone, 30, seed=3)


def test_workers_outlive_signals_to_their_group_and_end_when_they_are_told():
    envs = in_processes(limits(cartpole))
    advanced(envs, 2)
    for process in envs.processes:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            os.kill(process.pid, number)

    assert len(steps(envs, 3, seed=1)) == 3
    envs.close()
    assert [process.exitcode for process in envs.processes] == [0, 0, 0]


def test_a_worker_that_died_is_named_with_its_exit_code():
    with made(limits(cartpole), "async") as envs:
        advanced(envs, 2)
        envs.processes[1].kill()
        envs.processes[1].join()
        message = r"environment 1: its worker process died \(signal 9 killed it\)\. Look at what it printed"

        with pytest.raises(WorkerDiedError, match=message):
            snapshot_of(envs)
        with pytest.raises(WorkerDiedError, match=message) as caught:
            steps(envs, 1, seed=1)
        assert (caught.value.index, caught.value.exit_code) == (1, -9)


def test_a_worker_that_dies_in_a_step_is_named_with_its_exit_code():
    class Quitting(Pair):
        def step(self, action: Any) -> Any:
            os._exit(3)

    with made([Pair, Quitting], "async") as envs:
        envs.reset(seed=1)
        with pytest.raises(WorkerDiedError, match=r"environment 1: .*\(its exit code is 3\)"):
            steps(envs, 1, seed=1)


@pytest.mark.filterwarnings("ignore:.*ERROR:UserWarning")  # Gymnasium's logger
def test_what_an_environment_raises_is_raised_here():
    """Gymnasium's own way; what cannot travel is told in words."""
    with made([Pair] * 2, "async") as envs, pytest.raises(RuntimeError, match=r"Custom: \('two', 'arguments'\)"):
        envs.call("explode")
    with pytest.raises(ValueError, match="no such level"), made([_failing] * 2, "async"):
        pass


def _failing() -> Any:
    raise ValueError("no such level")


def test_an_environment_that_was_built_otherwise_is_a_finding_and_no_worker_is_changed():
    """Every worker checks before any is changed."""
    other = [*limits(cartpole)[:2], lambda: wrappers.NormalizeReward(cartpole(11)())]
    with made(limits(cartpole), "async") as source, made(other, "async") as target:
        advanced(source, 7)
        advanced(target, 3)
        before = digest(target)

        with pytest.raises(ContractError) as caught:
            put(snapshot_of(source), target)

        assert [
            (finding.key, finding.found) for finding in caught.value.findings if finding.section == "structure"
        ] == [("c/envs/2", "class gymnasium:NormalizeReward")]
        assert digest(target) == before


def test_another_number_of_environments_is_a_finding():
    with made(limits(cartpole), "async") as source, made(limits(cartpole)[:2], "async") as target:
        snapshot = snapshot_of(source)
        with pytest.raises(ContractError, match=r"c/envs: list of 3 in the run, list of 2 here"):
            put(snapshot, target)


def test_gymnasiums_own_vector_is_another_thing():
    with made(limits(cartpole), "sync") as target:
        own = gymnasium.vector.SyncVectorEnv(limits(cartpole))
        with pytest.raises(ContractError, match=r"c: class gymnasium:SyncVectorEnv in the run, perdure.gym vector env"):
            put(snapshot_of(own), target)


class Refusing(gymnasium.Wrapper):
    """Cannot take its state the first time; the time is told by a file, for it runs in a process of its own."""

    def __init__(self, env: Any, told: Path) -> None:
        super().__init__(env)
        self.told = told

    def state_dict(self) -> dict[str, Any]:
        return {"x": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not self.told.exists():
            self.told.touch()
            raise OSError("no")


def test_a_worker_that_cannot_be_restored_undoes_all(tmp_path: Path):
    factories = [cartpole(9), lambda: Refusing(cartpole(9)(), tmp_path / "told")]
    with made(factories, "async") as source, made(factories, "async") as target:
        advanced(source, 7)
        advanced(target, 3)
        before = digest(target)
        with pytest.raises(
            RestoreError, match=r"c/envs/1: Refusing\.load_state_dict\(\) raised OSError: no\. The state from"
        ):
            put(snapshot_of(source), target)

        assert digest(target) == before


def test_what_cannot_be_captured_is_refused_by_its_place():
    def with_engine() -> Any:
        env: Any = Pair()
        env.engine = threading.Lock()
        return env

    with made([Pair, with_engine], "async") as envs:
        with pytest.raises(perdure.UnknownObjectError, match=r"c/envs/1/engine: no adapter knows a .*lock"):
            snapshot_of(envs)
        assert exact(envs.reset(seed=1))  # the worker lives on


def test_a_step_under_way_cannot_be_captured():
    with made(limits(cartpole), "async") as envs:
        envs.reset(seed=1)
        envs.step_async(np.zeros(3, int))
        with pytest.raises(CaptureError, match=r"a step is under way\. Call step_wait before the boundary"):
            snapshot_of(envs)
        envs.step_wait()


def test_metadata_tell_the_own_mode_though_another_vector_was_built_since():
    first = make_vec(limits(cartpole), autoreset_mode="SameStep")
    make_vec(limits(cartpole), autoreset_mode="NextStep")

    assert first.metadata["autoreset_mode"].value == "SameStep"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factories": "CartPole-v1"}, r"factories='CartPole-v1': a list of functions that each make one"),
        ({"factories": []}, r"factories=\[\]: a list of functions"),
        ({"factories": [Pair, Pair()]}, r"factories\[1\] is a Pair, not a function that makes an"),
        ({"mode": "threads"}, r"mode='threads': one of 'sync', 'async'"),
        ({"autoreset_mode": "never"}, r"'never': one of 'NextStep', 'SameStep', 'Disabled'"),
        ({"context": "thread"}, r"context='thread': one of 'fork', 'spawn', 'forkserver'"),
    ],
    ids=["id", "none", "an environment", "mode", "autoreset mode", "context"],
)
def test_bad_arguments(arguments: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        make_vec(**{"factories": [Pair], **arguments})


@pytest.mark.full
def test_a_run_of_environments_elsewhere_that_is_stopped_equals_one_that_is_not(tmp_path: Path):
    def train(directory: Path, updates: int) -> list[Any]:
        with made([wrapped(make) for make in limits(cartpole)], "async") as envs:
            envs.action_space.seed(1)
            observation, _ = envs.reset(seed=1)
            run = perdure.Run(directory, config={"seed": 1}, every=perdure.Every(updates=1))
            observation = run.restore(envs=envs, observation=observation).observation
            while run.updates < updates:
                for _ in range(7):
                    observation, *_ = envs.step(envs.action_space.sample())
                run.boundary(env_steps=run.env_steps + 21, observation=observation)
            run.finish()
            return [exact(observation), *steps(envs, 30, seed=1)]

    straight = train(tmp_path / "straight", 9)
    for updates in (2, 3, 7):
        train(tmp_path / "stopped", updates)

    assert train(tmp_path / "stopped", 9) == straight


@pytest.mark.full
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_that_are_not_forked(context: str):
    source = in_processes(limits(cartpole, (5, 7)), context)
    advanced(source, 5)
    target = make_vec(limits(cartpole, (5, 7)))
    put(snapshot_of(source), target)

    assert steps(target, 20, seed=3) == steps(source, 20, seed=3)
    source.close()
    assert [process.exitcode for process in source.processes] == [0, 0]


@pytest.mark.full
@pytest.mark.parametrize("how", ["exit", "kill"])
def test_no_worker_is_left_behind_by_a_process_that_leaves(how: str):
    """By the end of the script, which must not hang, or by SIGKILL."""
    script = Path(__file__).with_name("leaving.py")
    done = subprocess.run([sys.executable, script, how], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == (0 if how == "exit" else -signal.SIGKILL), done.stderr
    ids = [int(word) for word in done.stdout.split()]
    assert len(ids) == 3
    until = time.monotonic() + 20
    while any(_lives(process) for process in ids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(_lives(process) for process in ids)


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Drawing(gymnasium.Wrapper):
    """Adds noise to the reward, from wherever it is told to."""

    def __init__(self, env: Any, draw: Callable[[], float]) -> None:
        super().__init__(env)
        self.draw = draw

    def step(self, action: Any) -> Any:
        observation, reward, *ends = self.env.step(action)
        return observation, reward + self.draw(), *ends


def drawing(draw: Callable[[], float]) -> Make:
    def make() -> Any:
        random.seed(3)
        np.random.seed(3)
        return Drawing(gymnasium.make("Pendulum-v1"), draw)

    return make


GLOBAL = {
    "random": lambda: random.random(),
    "numpy": lambda: np.random.random(),
    "seeds": lambda: float(random.seed(4) or 0),
}


@pytest.mark.parametrize("draw", GLOBAL)
def test_a_worker_whose_environment_draws_from_global_generators_is_refused(draw: str):
    """No checkpoint holds those of other processes: a resume would go on with other numbers, and say nothing."""
    with made([drawing(lambda: 0.0), drawing(GLOBAL[draw])], "async") as envs:
        envs.reset(seed=1)
        snapshot_of(envs)  # what was seeded while the environments were made changes nothing
        envs.step(envs.action_space.sample())
        with pytest.raises(
            CaptureError, match=r"^c/envs/1: the environment has drawn from a global .* self\.np_random"
        ):
            snapshot_of(envs)


def test_in_one_process_the_global_generators_are_those_of_the_run(tmp_path: Path):
    def rewards(directory: Path, *stops: int) -> list[list[float]]:
        seen: list[list[float]] = []
        for stop in stops:
            with made([drawing(lambda: random.random())] * 2, "sync") as envs:
                envs.reset(seed=1)
                with perdure.Run(directory, every=perdure.Every(updates=1)) as run:
                    seen = run.restore(envs=envs, seen=[]).seen
                    while run.updates < stop:
                        seen = [*seen, envs.step(np.zeros((2, 1), np.float32))[1].tolist()]
                        run.boundary(env_steps=run.env_steps + 1, seen=seen)
        return seen

    straight = rewards(tmp_path / "straight", 9)
    assert rewards(tmp_path / "stopped", 2, 5, 9) == straight
    assert straight[0][0] != straight[1][0]
