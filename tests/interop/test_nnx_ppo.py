"""A real checkpoint of nnx-ppo 0.2.1 is carried bit for bit, every loss is said, and damage leaves nothing behind.

`tests/data/nnx_ppo/mlp` was written by nnx-ppo itself; `expected.json` holds the SHA-256 of each leaf, taken from the
live training state before it was saved.
"""

import hashlib
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.errors import DamagedError, NoCheckpointError, PerdureError, UnsupportedLeafError, UsageError
from perdure.interop import Conversion, convert
from perdure.tree.leaves import leaves

pytestmark = pytest.mark.jax

FIXTURE = Path(__file__).parent.parent / "data" / "nnx_ppo" / "mlp"
STEP = "step_0000000480"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FIXTURE / "expected.json").read_text("utf-8"))["leaves"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the checkpoint, to be damaged."""
    return Path(shutil.copytree(FIXTURE / STEP, tmp_path / STEP))


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Conversion]:
    """The checkpoint converted, and what was said of it."""
    target = tmp_path_factory.mktemp("converted") / "mlp"
    return target, convert(FIXTURE / STEP, target)


def described(value: np.ndarray) -> dict[str, Any]:
    """As expected.json describes a leaf."""
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return {"dtype": value.dtype.name, "shape": list(value.shape), "sha256": digest}


def arrays_of(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every array by its path, as expected.json names it."""
    found = {"/".join(map(str, path)): leaf for path, leaf in leaves(state) if isinstance(leaf, np.ndarray)}
    return {name: described(value) for name, value in found.items()}


def test_every_leaf_is_the_very_one_that_nnx_ppo_had(done: tuple[Path, Conversion]):
    state = perdure.read(done[0])
    steps = {"steps_taken": described(np.asarray(state["steps_taken"], np.float32))}

    assert arrays_of(state) | steps == EXPECTED
    assert type(state["steps_taken"]) is int


def test_a_twin_that_loses_one_bit_is_found(done: tuple[Path, Conversion]):
    state = perdure.read(done[0])
    state["networks"]["layers"][0]["mean"].view(np.uint32)[0] ^= 1

    changed = [name for name, leaf in arrays_of(state).items() if leaf != EXPECTED[name]]
    assert changed == ["networks/layers/0/mean"]


def test_what_is_no_array_is_carried_too(done: tuple[Path, Conversion]):
    state = perdure.read(done[0])

    assert list(state) == sorted(state)
    assert state.keys() == {
        "config", "env_states", "network_states", "networks", "optimizer", "rng_key", "steps_taken",
    }  # fmt: skip
    assert state["network_states"] == [(), {"action": [(), (), (), ()], "value": [(), (), ()]}]
    assert state["env_states"]["metrics"] == {}
    assert state["config"]["ppo"]["learning_rate"] == 0.003
    assert state["config"]["ppo"]["logging_level"] == 1
    assert state["config"]["eval"]["logging_percentiles"] == (0, 25, 50, 75, 100)
    assert state["config"]["video"]["render_kwargs"] == {"height": 480, "width": 640}


def test_the_conversion_says_what_it_did(done: tuple[Path, Conversion]):
    conversion = done[1]

    assert (conversion.metadata, len(conversion.leaves)) == ({"env_steps": 480}, 93)
    for loss in (
        "networks/layers/1/action/layers/3/rng/default/key: the variable's class flax.nnx.rnglib.RngKey and its "
        "metadata are not kept, its value is.",
        "networks/layers/0/counter: a float32 counter, kept as it is: it stops counting at 16,777,216.",
        "env_states: mujoco_playground._src.mjx_env.State became a mapping of its fields.",
        "config/ppo: nnx_ppo.algorithms.config.PPOConfig became a mapping of its fields.",
        "config/ppo/logging_level and 1 more: nnx_ppo.algorithms.types.LoggingLevel became its number.",
        "steps_taken: float32 480 became an exact integer.",
    ):
        assert loss in conversion.losses
    assert len(conversion.losses) == 11


def test_reading_the_result_needs_no_framework(done: tuple[Path, Conversion]):
    program = (
        f"import perdure, sys; state = perdure.read({str(done[0])!r}); "
        "print(state['rng_key'].dtype, sorted({'jax', 'flax', 'orbax'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "uint32 []\n"


def test_keys_come_back_as_keys_of_their_implementation(done: tuple[Path, Conversion]):
    import jax

    loaded = perdure.load(done[0], only=["rng_key"], rng_key=jax.random.key(0))["rng_key"]

    assert jax.random.key_impl(loaded) == jax.random.key_impl(jax.random.key(0))
    assert described(np.asarray(jax.random.key_data(loaded))) == EXPECTED["rng_key"]


def test_importing_it_loads_no_framework():
    program = "import sys, perdure.interop.kinds.nnx_ppo; print(sorted({'jax', 'flax', 'orbax'} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "[]\n"


# Metadata that tests write themselves: what nnx-ppo would save of other trainings.


def rewritten(source: Path, **changed: Any) -> None:
    """Other entries in the pickle; its records are not needed for them."""
    plain: dict[str, Any] = {
        "networks_rng_key_state": {}, "network_states": (), "env_states": {}, "rng_key": np.zeros(2, np.uint32),
        "steps_taken": np.float32(480), "step": 480, "config": None,
    }  # fmt: skip
    (source / "metadata.pkl").write_bytes(pickle.dumps(plain | changed, 4))


def converted(source: Path, target: Path, **changed: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    rewritten(source, **changed)
    losses = convert(source, target).losses
    return perdure.read(target), losses


def test_a_float32_count_beyond_its_limit_is_said(source: Path, tmp_path: Path):
    state, losses = converted(source, tmp_path / "new", steps_taken=np.float32(2**24), step=2**24 + 1)

    assert state["steps_taken"] == 2**24
    assert "steps_taken: float32 cannot count beyond 16,777,216: the true number may be another." in losses
    assert "steps_taken: 16,777,216 here, but the checkpoint is named by the step 16,777,217." in losses


def test_jax_s_weak_types_bfloat16_and_other_generators(source: Path, tmp_path: Path):
    import jax
    import jax.numpy as jnp

    half = jnp.arange(3, dtype=jnp.bfloat16)
    env_states = {"weak": jnp.asarray(1.5), "half": half, "keys": jax.random.split(jax.random.key(1, impl="rbg"), 2)}
    state, losses = converted(source, tmp_path / "new", env_states=env_states)

    assert any(loss.startswith("env_states/weak: JAX's weak type is not kept") for loss in losses)
    assert state["env_states"]["half"].dtype.name == "bfloat16"
    assert state["env_states"]["half"].tobytes() == np.asarray(half).tobytes()
    assert state["env_states"]["keys"].shape == (2, 4)
    assert perdure.load(tmp_path / "new", only=["config"], config=None) == {"config": None}


def test_an_entry_of_another_version_is_said(source: Path, tmp_path: Path):
    _, losses = converted(source, tmp_path / "new", wandb_id="x")

    assert "metadata.pkl/wandb_id: an entry that nnx-ppo 0.2.1 does not have; it is not carried over." in losses


# Damage. Nothing is ever left at the target.


def drop(*names: str) -> Callable[[Path], None]:
    def change(source: Path) -> None:
        for name in names:
            path = source / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def cut(name: str) -> Callable[[Path], None]:
    def change(source: Path) -> None:
        path = source / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return change


def write(name: str, data: bytes) -> Callable[[Path], None]:
    def change(source: Path) -> None:
        (source / name).write_bytes(data)

    return change


def entries(**changed: Any) -> Callable[[Path], None]:
    return lambda source: rewritten(source, **changed)


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (drop("metadata.pkl"), DamagedError, "metadata.pkl is missing. nnx-ppo writes it last"),
        (drop("networks"), DamagedError, "networks: missing. nnx-ppo was stopped in the middle"),
        (drop("optimizer"), DamagedError, "optimizer: missing. nnx-ppo was stopped in the middle"),
        (drop("networks", "optimizer", "metadata.pkl"), NoCheckpointError, "of no kind that is known here"),
        (cut("metadata.pkl"), DamagedError, "metadata.pkl: byte "),
        (write("metadata.pkl", b""), DamagedError, "metadata.pkl: byte 0: "),
        (write("metadata.pkl", pickle.dumps([1])), DamagedError, "without networks_rng_key_state, network_states"),
        (write("metadata.pkl", pickle.dumps({"step": 1})), DamagedError, "0.2.1 writes all of networks_rng_key_state"),
        (cut("networks/_METADATA"), DamagedError, "networks/_METADATA: no JSON: "),
        (drop("networks/_METADATA"), DamagedError, "networks/_METADATA: missing. Convert another checkpoint"),
        (drop("optimizer/manifest.ocdbt"), DamagedError, 'optimizer: opt_state/"1"/"0"/count/value: '),
        (cut("optimizer/manifest.ocdbt"), DamagedError, 'optimizer: opt_state/"1"/"0"/count/value: '),
        (drop("networks/ocdbt.process_0"), DamagedError, 'networks: layers/"'),
        (entries(step="480"), DamagedError, "step: str, not a number of env-steps."),
        (entries(step=-1), DamagedError, "step: int, not a number of env-steps."),
        (entries(steps_taken=np.float32(0.5)), DamagedError, "steps_taken: float32 of the shape (), not one whole"),
        (entries(steps_taken=np.float32(np.nan)), DamagedError, "steps_taken: float32"),
        (entries(steps_taken=np.zeros(2)), DamagedError, "steps_taken: float64 of the shape (2,)"),
        (entries(steps_taken="many"), DamagedError, "steps_taken: object of the shape ()"),
        (entries(steps_taken=[[1], [2, 3]]), DamagedError, "steps_taken: object of the shape ()"),
        (entries(steps_taken=10**100), DamagedError, "steps_taken: object of the shape ()"),
        (
            entries(networks_rng_key_state={"layers": {0: {"mean": 1}}}),
            DamagedError,
            "a key and something else at networks/layers/0/mean. The pickle and networks/ are not of one save",
        ),
        (entries(networks_rng_key_state=[1]), DamagedError, "a key and something else at networks."),
        (entries(env_states={"o": np.array([None])}), UnsupportedLeafError, "env_states/o: an array of dtype 'O8'"),
    ],
)
def test_a_damaged_source_is_refused_and_leaves_nothing(
    source: Path, tmp_path: Path, damage: Callable[[Path], None], kind: type[PerdureError], message: str
):
    damage(source)
    with pytest.raises(kind) as caught:
        convert(source, tmp_path / "deep" / "new")

    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert str(source) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [STEP]


@pytest.mark.parametrize("part", ["networks", "optimizer"])
def test_flipped_bits_in_orbax_metadata_are_refused_or_change_nothing(
    source: Path, tmp_path: Path, part: str, done: tuple[Path, Conversion]
):
    whole = perdure.read(done[0])
    path = source / part / "_METADATA"
    sound = path.read_bytes()
    for number, at in enumerate(range(7, len(sound), len(sound) // 12)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
        target = tmp_path / f"new{number}"
        with suppress(DamagedError):
            convert(source, target)
        if target.exists():
            assert arrays_of({part: perdure.read(target)[part]}) == arrays_of({part: whole[part]})


@pytest.mark.parametrize(
    ("target", "kind", "message"),
    [
        (
            "there",
            UsageError,
            "there: there is something already; name a place where nothing stands.",
        ),
        (f"{STEP}/new", UsageError, "new: inside of what is converted; choose a place beside it."),
    ],
)
def test_the_target_must_be_a_new_place(source: Path, tmp_path: Path, target: str, kind: type, message: str):
    (tmp_path / "there").mkdir()
    with pytest.raises(kind) as caught:
        convert(source, tmp_path / target)

    assert message in str(caught.value)
    assert list((tmp_path / "there").iterdir()) == []
    assert not (source / "new").exists()


def test_a_source_that_holds_checkpoints_is_told(source: Path, tmp_path: Path):
    with pytest.raises(NoCheckpointError, match=f"holds checkpoints and is none; name one of them, .* {STEP}"):
        convert(source.parent, tmp_path.parent / f"{tmp_path.name}-new")
    with pytest.raises(NoCheckpointError, match=r"nowhere: there is nothing\. Check the spelling\."):
        convert(tmp_path / "nowhere", tmp_path / "new")
