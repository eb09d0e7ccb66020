"""What real scripts do: each pattern resumes exactly, or is refused where it can still be mended."""

import copy
import dataclasses
import functools
from collections import deque, namedtuple
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import perdure
from perdure.errors import CaptureError, ContractError, UnknownObjectError, UsageError

EACH = perdure.Every(updates=1)
Step = namedtuple("Step", "obs act")


def save_and_open(directory: Path, saved: dict[str, Any], fresh: dict[str, Any]) -> Any:
    """What a run that held `saved` hands back to a script that starts with `fresh`."""
    with perdure.Run(directory, every=EACH) as run:
        run.restore(**saved)
    with perdure.Run(directory, every=EACH) as run:
        return run.restore(**fresh)


class Box:
    """Speaks for itself with whatever it holds."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def state_dict(self) -> dict[str, Any]:
        """What it holds."""
        return {"held": self.held}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes what is handed in."""
        self.held = state["held"]


@pytest.mark.parametrize("held", [[Step(1, 2)], [np.random.default_rng(1)], {"a": Step(1, 2)}, Step(1, 2)])
def test_typed_objects_inside_of_an_object_s_own_state_never_come_back_as_plain_data(tmp_path: Path, held: Any):
    """A fresh object that holds nothing yet cannot tell their types: the resume is refused."""
    empty = type(held)() if isinstance(held, list | dict) else None
    with pytest.raises(ContractError, match="box/state/held"):
        save_and_open(tmp_path / "run", {"box": Box(held)}, {"box": Box(empty)})


@pytest.mark.parametrize(
    ("held", "empty"),
    [(jnp.ones(2), None), ([jnp.ones(2)], []), (deque([1, 2], 3), None), (jax.random.key(3), None)],
)
def test_arrays_keys_and_deques_come_back_without_a_target(tmp_path: Path, held: Any, empty: Any):
    """A carry that starts as None, a history that starts empty."""
    box = Box(empty)
    save_and_open(tmp_path / "run", {"box": Box(held)}, {"box": box})

    assert type(box.held) is type(held)
    assert jax.tree.map(str, box.held) == jax.tree.map(str, held)


class BufferedEnv:
    """Hands out its own buffer, which the next step overwrites."""

    def __init__(self) -> None:
        self.buffer = np.zeros(2)

    def step(self) -> np.ndarray:
        """Overwrites the buffer in place."""
        self.buffer += 1
        return self.buffer

    def state_dict(self) -> dict[str, Any]:
        """The buffer itself."""
        return {"buffer": self.buffer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Into the same memory."""
        self.buffer[:] = state["buffer"]


def sum_over_buffer(directory: Path, total: int) -> float:
    """A loop that reads the environment's buffer through the observation it was handed once."""
    env, run = BufferedEnv(), perdure.Run(directory, every=EACH)
    s = run.restore(env=env, observation=env.buffer, total=0.0)
    observation, summed = s.observation, s.total
    while run.updates < total:
        env.step()
        summed += float(observation.sum())
        run.boundary(env_steps=run.env_steps + 1, observation=observation, total=summed)
    run.finish()
    return summed


def test_an_observation_that_is_the_environment_s_own_buffer_stays_it(tmp_path: Path):
    """Even where `load_state_dict` copies into the buffer: what is shared is what the object holds afterwards."""
    sum_over_buffer(tmp_path / "stopped", 3)

    assert sum_over_buffer(tmp_path / "stopped", 6) == sum_over_buffer(tmp_path / "straight", 6)


class Schedule:
    """A rate that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def value(self) -> float:
        """One call."""
        self.calls += 1
        return 1.0 / self.calls

    def state_dict(self) -> dict[str, Any]:
        """The count."""
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets the count."""
        self.calls = state["calls"]


def test_the_object_behind_a_bound_method_is_state(tmp_path: Path):
    """`{"lr": schedule.value}` holds the schedule."""
    schedule, fresh = Schedule(), Schedule()
    schedule.value()
    schedule.value()

    save_and_open(tmp_path / "run", {"parts": {"lr": schedule.value}}, {"parts": {"lr": fresh.value}})

    assert fresh.calls == 2


class Counted:
    """A callable that looks like the function it wraps, and counts."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self.calls = 0

    def __call__(self) -> None:
        """Counts."""
        self.calls += 1


class Forwarding:
    """A wrapper in the old Gym manner."""

    def __init__(self, env: Any) -> None:
        self.env, self.episode_return = env, 0.0

    def __getattr__(self, name: str) -> Any:
        """Whatever it lacks, the wrapped one has."""
        return getattr(self.env, name)


@pytest.mark.parametrize("obj", [Counted(sum_over_buffer), Forwarding(Schedule())], ids=["callable", "forwarding"])
def test_an_object_that_only_looks_stateless_or_self_describing_is_refused(tmp_path: Path, obj: Any):
    """Its own attributes would be lost in silence."""
    with pytest.raises(UnknownObjectError, match=r"^parts/0: no adapter knows a "):
        perdure.save(tmp_path / "x", parts=[obj])


class ByDeepCopy:
    """Everything it is, by deepcopy, its generator too."""

    def __init__(self, seed: int) -> None:
        self.rng, self.x = np.random.default_rng(seed), 0.0

    def state_dict(self) -> dict[str, Any]:
        """A copy of all attributes."""
        return copy.deepcopy(self.__dict__)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets all attributes."""
        self.__dict__.update(copy.deepcopy(state))


def test_a_generator_in_a_deep_copied_state_is_restored(tmp_path: Path):
    """The state that is handed to `load_state_dict` holds restored generators already."""
    saved, fresh = ByDeepCopy(1), ByDeepCopy(2)
    saved.rng.normal(size=5)

    save_and_open(tmp_path / "run", {"env": saved}, {"env": fresh})

    assert fresh.rng.normal() == saved.rng.normal()


def test_a_seed_sequence_shared_with_a_generator_stays_shared(tmp_path: Path):
    """Two places that spawn in turn never spawn the same child."""

    def make(entropy: int) -> tuple[np.random.SeedSequence, np.random.Generator]:
        sequence = np.random.SeedSequence(entropy)
        return sequence, np.random.default_rng(sequence)

    sequence, rng = make(5)
    sequence.spawn(2)
    fresh_sequence, fresh_rng = make(5)

    s = save_and_open(tmp_path / "run", {"rng": rng, "ss": sequence}, {"rng": fresh_rng, "ss": fresh_sequence})

    of_generator: Any = fresh_rng.bit_generator.seed_seq
    keys = [sequence.spawn(1)[0].spawn_key for sequence in (s.ss, of_generator, s.ss)]
    assert keys == [(2,), (3,), (4,)]


@pytest.mark.parametrize(
    ("saved", "fresh"),
    [
        (jnp.asarray(3), 0),
        (jnp.float32(0.5), 0.0),
        (np.array(0.5), 0.0),
        (np.True_, False),
        (np.str_("a"), ""),
        (3, np.int64(0)),
    ],
)
def test_a_number_may_have_become_an_array_scalar(tmp_path: Path, saved: Any, fresh: Any):
    """`TrainState.create` starts with step 0, a Python int; under `jit` it is an array."""
    value = save_and_open(tmp_path / "run", {"step": saved}, {"step": fresh}).step

    assert type(value) is type(saved)
    assert value == saved


PARAMS = {"w": jnp.ones(2)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (optax.adam(1e-3), optax.adabelief(1e-3)),
        (optax.adam(1e-3), optax.sgd(1e-3, momentum=0.9)),
        (optax.adam(1e-3), optax.chain(optax.clip(1.0), optax.adam(1e-3))),
    ],
)
def test_another_optimizer_is_refused_by_its_state(tmp_path: Path, before: Any, after: Any):
    """Two states with the same field names are not the same state."""
    with pytest.raises(ContractError):
        save_and_open(tmp_path / "run", {"opt": before.init(PARAMS)}, {"opt": after.init(PARAMS)})


def test_another_learning_rate_in_an_optimizer_is_refused(tmp_path: Path):
    """Hyper-parameters live in the closures of the transformation."""
    from flax import nnx

    def optimizer(tx: Any) -> nnx.Optimizer[Any]:
        return nnx.Optimizer(nnx.Linear(1, 1, rngs=nnx.Rngs(0)), tx, wrt=nnx.Param)

    with pytest.raises(ContractError, match=r"/step_size: -0\.001 in the run, -0\.1 here\."):
        save_and_open(
            tmp_path / "run", {"optimizer": optimizer(optax.adam(1e-3))}, {"optimizer": optimizer(optax.adam(1e-1))}
        )


class Whole(int):
    """A number as a YAML reader makes it."""


class Settings:
    """A configuration in class attributes."""

    learning_rate = 1e-3


@dataclasses.dataclass
class Nested:
    """A configuration that holds another."""

    inner: Any


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        ({"n": Whole(3)}, {"n": Whole(4)}),
        (Settings, type("Settings", (), {"learning_rate": 5.0})),
        (Settings(), type("Settings", (), {"learning_rate": 5.0})()),
        (Nested(np.float32(1)), Nested(np.float32(2))),
    ],
)
def test_every_value_of_a_configuration_counts(tmp_path: Path, config: Any, changed: Any):
    """Whatever it is made of."""
    with perdure.Run(tmp_path / "x", config=config) as run:
        run.restore(x=1)
    with pytest.raises(ContractError), perdure.Run(tmp_path / "x", config=changed) as run:
        run.restore(x=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"free": "wandb_*"}, r"free='wandb_\*': a list of patterns"),
        ({"config": {"total": 5}, "horizon": "total", "free": ["total"]}, "cannot be free"),
        ({"every": 1}, "an Every"),
        ({"keep": 1}, "a Keep"),
        ({"horizon": True}, "a total of environment steps is an int"),
        ({"horizon": -1}, "a total of environment steps is an int"),
        ({"horizon": 10.5}, "a total of environment steps is an int"),
    ],
)
def test_arguments_that_cannot_be_right_are_refused_at_once(tmp_path: Path, arguments: Any, message: str):
    """Not at the first boundary, hours later."""
    with pytest.raises(UsageError, match=message):
        perdure.Run(tmp_path / "x", **arguments)


def test_a_configuration_that_contains_itself_is_refused(tmp_path: Path):
    """With a message, not with Python's own."""
    config: dict[str, Any] = {}
    config["self"] = config
    with pytest.raises(UsageError, match="contains itself"):
        perdure.Run(tmp_path / "x", config=config)


def test_a_state_that_cannot_be_captured_leaves_the_boundary_untaken(tmp_path: Path):
    """The same call with a better value works, and no row stands twice."""
    with perdure.Run(tmp_path / "x", every=EACH) as run:
        run.restore(x=0)
        with pytest.raises(CaptureError):
            run.boundary(env_steps=1, x=object(), metrics={"a": 1})
        run.boundary(env_steps=1, x=1, metrics={"a": 1})
        assert (run.env_steps, run.updates) == (1, 1)
        assert [row["boundary"] for row in run.metrics_rows()] == [1]


def test_a_checkpoint_of_a_run_loads_into_the_script_s_own_objects(tmp_path: Path):
    """The process's generators belong to the run, not to a script that only wants the weights."""
    with perdure.Run(tmp_path / "x") as run:
        run.restore(w=np.ones(2), n=3)

    loaded = perdure.load(tmp_path / "x" / "checkpoints" / "step_0000000000", w=np.zeros(2), n=0)

    assert (loaded["w"].tolist(), loaded["n"]) == ([1, 1], 3)
    with pytest.raises(perdure.NoCheckpointError, match="a run; name one of its checkpoints"):
        perdure.read(tmp_path / "x")
