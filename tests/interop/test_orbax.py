"""Checkpoints that Orbax itself wrote come in and go out again bit for bit; damage and contradictions are refused."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import perdure
from perdure.errors import CommitError, DamagedError, NoCheckpointError, UsageError
from perdure.interop import convert, orbax_writing
from perdure.interop.carried import Carried
from perdure.interop.kinds.orbax import KIND
from perdure.interop.names import flat
from perdure.interop.recognition import kind_of
from perdure.tree.leaves import leaves

pytestmark = pytest.mark.jax


class Moments(NamedTuple):
    mu: Any
    nu: Any


def raw(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Random bits: NaNs with payloads, infinities, denormals."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.random.default_rng(size).integers(0, 256, size, np.uint8).view(dtype).reshape(shape)


ARRAYS = {
    "f32": raw(33, 7), "f64": raw(3, dtype=np.float64), "f16": raw(9, dtype=np.float16), "i64": np.arange(-2, 3),
    "c128": raw(2, dtype=np.complex128), "bf16": raw(5, 3, dtype=ml_dtypes.bfloat16), "zeros": np.zeros((4, 4)),
    "f8": raw(6, dtype=ml_dtypes.float8_e4m3fn), "u64": np.full(2, 2**64 - 1, np.uint64), "alone": np.array(-0.0),
    "i4": np.array([-8, 7, 3], ml_dtypes.int4), "bools": np.array([True, False]), "c64": raw(3, dtype=np.complex64),
    "i8": np.array([[[-1]]], np.int8),
}  # fmt: skip
PLAIN = {
    "none": None,
    "on": True,
    "step": -(1 << 63),
    "large": 2**63,
    "rate": 0.1,
    "empty": {},
    "list": [],
    "tuple": (),
}
TREE: dict[str, Any] = {
    "arrays": ARRAYS,
    "plain": PLAIN,
    "layers": [{"odd.name/ü": raw(2)}, {"": raw(3), "..": raw(4)}],
    "moments": Moments(raw(5), (raw(6), {"deep": raw(7)})),
}
"""What NumPy and Python hold; as it should come back, the tuples are lists and the named tuple a dict."""

EXPECTED: dict[Any, Any] = TREE | {"moments": {"mu": TREE["moments"].mu, "nu": list(TREE["moments"].nu)}}

WAYS: dict[str, dict[str, Any] | None] = {
    "standard": None,
    "pytree": {},
    "folders": {"use_ocdbt": False},
    "zarr3": {"use_zarr3": True},
    "zarr3 folders": {"use_zarr3": True, "use_ocdbt": False},
}


def written(directory: Path, tree: Any, options: dict[str, Any] | None = None) -> Path:
    import orbax.checkpoint as orbax

    if options is None:
        with orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(directory, tree)
    else:
        with orbax.Checkpointer(orbax.PyTreeCheckpointHandler(**options)) as checkpointer:
            checkpointer.save(directory, args=orbax.args.PyTreeSave(tree))
    return directory


def bits(tree: Any) -> list[Any]:
    def of(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | np.generic):
            return (type(leaf), leaf.dtype, leaf.shape, leaf.tobytes())
        return (type(leaf), leaf.hex() if isinstance(leaf, float) else leaf)

    return sorted(((path, of(leaf)) for path, leaf in leaves(tree)), key=lambda pair: str(pair[0]))


@pytest.mark.parametrize("way", WAYS)
def test_what_orbax_wrote_is_read_bit_for_bit(tmp_path: Path, way: str):
    tree = dict(TREE)
    if "folders" in way:  # where names are directories, Orbax writes these over others
        tree["layers"] = TREE["layers"][:1]
    if WAYS[way] is not None:
        tree |= {"text": {"a": "hélló", "b": ""}}
    directory = written(tmp_path / "x y%20z", tree, WAYS[way])

    assert kind_of(directory) is KIND
    read = KIND.read(directory)
    assert bits(read.tree) == bits(tree | {"moments": EXPECTED["moments"]})
    contents = KIND.contents(directory)
    named = flat(read.tree)
    assert {leaf.name for leaf in contents.leaves} == named.keys()
    for leaf in contents.leaves:
        value = named[leaf.name]
        if isinstance(value, np.ndarray):
            assert (leaf.size_bytes, leaf.what.split()[0]) == (value.nbytes, value.dtype.name)
    assert {"layers and 1 more: a list or a tuple, Orbax does not say which; it is a list."} <= set(read.losses)


def test_a_twin_that_loses_one_bit_is_found(tmp_path: Path):
    read = KIND.read(written(tmp_path / "x", TREE)).tree
    read["arrays"]["f32"].view(np.uint32)[0, 0] ^= 1

    differences = [one for one, other in zip(bits(read), bits(EXPECTED), strict=True) if one != other]
    assert [path for path, _ in differences] == [("arrays", "f32")]


def test_to_perdure_to_safetensors_and_back_to_orbax(tmp_path: Path):
    start = written(tmp_path / "start", TREE)
    convert(start, tmp_path / "ours")
    back = convert(tmp_path / "ours", tmp_path / "back", to="orbax")

    assert bits(KIND.read(tmp_path / "back").tree) == bits(EXPECTED)
    assert bits(perdure.read(tmp_path / "ours")) == bits(EXPECTED)
    assert back.target == "a checkpoint of Orbax"
    rules = [r"arrays\.(c128|i4)=", r"plain\.large="]  # safetensors has no code for these, and keeps integers in JSON
    convert(start, tmp_path / "x.safetensors", names=rules)
    convert(tmp_path / "x.safetensors", tmp_path / "again", to="orbax")
    named = {
        name: leaf for name, leaf in flat(EXPECTED).items() if name.rpartition(".")[2] not in ("c128", "i4", "large")
    }
    held = {".".join(map(str, path)): what for path, what in bits(KIND.read(tmp_path / "again").tree)}
    lost = {"plain.tuple"}  # an empty list there
    assert {name: held[name] for name in held.keys() - lost} == {
        ".".join(map(str, path)): what for path, what in bits(named) if path[0] not in lost
    }


def test_orbax_restores_what_we_write_as_it_was(tmp_path: Path):
    import orbax.checkpoint as orbax

    tree = {
        "w": raw(3, 2),
        "f64": raw(2, dtype=np.float64),
        "n": 7,
        "texts": ["a", "é"],
        "more": {"rate": 0.1, 3: np.ones(1)},
    }
    prepared = KIND.prepare(Carried(tree, {"note": "x", "step": 3}), widen=False)
    prepared.write(tmp_path / "deep" / "out")
    with orbax.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "deep" / "out")

    more = {"rate": 0.1, "3": np.ones(1)}
    assert bits(restored) == bits(tree | {"more": more})
    assert prepared.losses == (
        "texts/0 and 1 more: a text; StandardCheckpointer reads it, but only PyTreeCheckpointer writes such ones.",
        "more: integers as names became text.",
    )
    assert KIND.read(tmp_path / "deep" / "out").metadata == {"note": "x", "step": 3}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_modules_optimizers_and_keys_of_jax(tmp_path: Path):
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    module = nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(1)))
    state = nnx.state(nnx.Optimizer(module, optax.adam(1e-3), wrt=nnx.Param))
    keys = {"one": jax.random.key(3), "many": jax.random.split(jax.random.key(0, impl="rbg"), 3)}
    optimizer: Any = optax.adam(1e-3).init({"w": jnp.ones((2, 2), jnp.bfloat16)})
    tree = {"module": nnx.state(module), "optimizer": state, "keys": keys, "optax": optimizer}
    read = KIND.read(written(tmp_path / "x", tree, {}))
    found = flat(read.tree)

    pure: dict[Any, Any] = {"module": nnx.to_pure_dict(tree["module"]), "optimizer": nnx.to_pure_dict(state)}
    others: dict[Any, Any] = {"keys": keys, "optax": [optimizer[0]._asdict(), None]}
    wanted = {f"{name}.value": leaf for name, leaf in flat(pure).items()} | flat(others)
    assert found.keys() == wanted.keys()
    for name, leaf in wanted.items():
        is_key = leaf is not None and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        array = None if leaf is None else np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        assert bits({"x": found[name]}) == bits({"x": array}), name
    assert "keys/many: a rbg key became its key data." in read.losses
    told = {leaf.name: leaf.what for leaf in KIND.contents(tmp_path / "x").leaves}
    assert told["keys.many"] == "uint32 3×4, a rbg key"


def test_keys_of_jax_are_written_as_keys(tmp_path: Path):
    import jax

    KIND.prepare(Carried({"key": jax.random.key(3, impl="rbg")}), widen=False).write(tmp_path / "out")

    assert KIND.contents(tmp_path / "out").leaves[0].what == "uint32 4, a rbg key"
    assert bits(KIND.read(tmp_path / "out").tree) == bits({"key": np.array([0, 3, 0, 3], np.uint32)})


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What CheckpointManager makes: one item, several items, several steps."""
    import orbax.checkpoint as orbax

    root = tmp_path_factory.mktemp("managed")
    with orbax.CheckpointManager(root / "steps") as manager:
        for step in (3, 20):
            manager.save(step, args=orbax.args.StandardSave({"w": np.full(2, step)}))
    items = {
        "params": orbax.args.StandardSave({"w": np.ones(2)}),
        "optimizer": orbax.args.PyTreeSave([np.zeros(1), 2.5]),
        "networks": orbax.args.StandardSave({"w": np.ones(3)}),
        "notes": orbax.args.JsonSave({"lr": 0.1}),
        "rng": orbax.args.NumpyRandomKeySave(np.random.get_state()),
    }
    with orbax.CheckpointManager(root / "items", item_names=tuple(items)) as manager:
        manager.save(7, args=orbax.args.Composite(**items))
    return root


def test_the_items_of_a_manager(managed: Path):
    several = KIND.read(managed / "items" / "7")

    assert (
        kind_of(managed / "items" / "7") is kind_of(managed / "items") is KIND
    )  # not nnx-ppo, whose parts have such names
    assert bits(several.tree) == bits(
        {
            "networks": {"w": np.ones(3)},
            "notes": {"lr": 0.1},
            "optimizer": [np.zeros(1), 2.5],
            "params": {"w": np.ones(2)},
        }
    )
    assert "rng: an item that is neither a tree nor JSON; it is not read." in several.losses
    contents = KIND.contents(managed / "items")
    assert contents.metadata == {"step": "7"}
    assert [leaf.name for leaf in contents.leaves] == [
        "networks.w",
        "notes.metadata",
        "optimizer.0",
        "optimizer.1",
        "params.w",
    ]
    assert "rng: an item that is neither a tree nor JSON; it is not read." in contents.notes


def test_a_directory_of_several_steps_is_told(managed: Path, tmp_path: Path):
    assert kind_of(managed / "steps") is KIND
    with pytest.raises(NoCheckpointError) as caught:
        KIND.read(managed / "steps")

    steps = managed / "steps"
    assert str(caught.value) == (
        f"{steps}: holds the checkpoints 3, 20 and is none; name one of them, for instance {steps / '20'}."
    )
    assert bits(KIND.read(steps / "20").tree) == bits({"w": np.full(2, 20)})
    assert bits(KIND.read(steps / "3" / "default").tree) == bits({"w": np.full(2, 3)})


def test_a_list_at_the_root_gets_names(tmp_path: Path):
    read = KIND.read(written(tmp_path / "x", [np.ones(2), {"w": np.zeros(1)}]))

    assert bits(read.tree) == bits({0: np.ones(2), 1: {"w": np.zeros(1)}})
    assert "root: a list became a dict of its positions: what is carried has names." in read.losses


def test_what_orbax_cannot_hold_is_named_and_nothing_is_written(tmp_path: Path):
    tree: dict[Any, Any] = {
        "a": b"x", "b": 1j, "c": 1 << 64, "d": np.zeros((0, 3), np.float32), "e": np.array(["x"]), "f": "\ud800",
        "g": np.ones(2, ml_dtypes.uint4), "h": {1: np.ones(1), "1": {"x": 1}}, "ok": np.ones(1), "\ud800": 1,
    }  # fmt: skip
    with pytest.raises(UsageError) as caught:
        KIND.prepare(Carried(tree), widen=True)

    assert str(caught.value).startswith("a checkpoint of Orbax cannot hold 9 of the leaves; nothing was written.")
    for line in (
        "a: b'x': Orbax holds no bytes.",
        "b: 1j: Orbax holds no complex.",
        "c: 18446744073709551616: an integer of 65 bits, of 64 at most.",
        "d: float32 0×3: Orbax saves no array without elements.",
        "e: <U1 1: Orbax does not have this dtype.",
        "f: '\\ud800': a text that has no form in UTF-8.",
        "g: uint4 2: Orbax does not have this dtype.",
        "h: an integer and a text of the same digits as names.",
        "'\\ud800': a name that has no form in UTF-8.",
    ):
        assert f"\n  {line}" in str(caught.value)
    with pytest.raises(UsageError, match=r"root: Orbax saves no tree without leaves\."):
        KIND.prepare(Carried({}), widen=False)
    with pytest.raises(UsageError, match=r"would both be called a\.b; rename one of them with --map\."):
        KIND.prepare(Carried({"a.b": 1, "a": {"b": 2}}), widen=False)


def test_what_changes_its_form_is_said(tmp_path: Path):
    tree = {"t": (1, 2), "g": np.float32(3), "f": np.asfortranarray(raw(3, 2)), "big": np.arange(3, dtype=">f4")}
    prepared = KIND.prepare(Carried(tree, {"bad": {1, 2}}), widen=False)
    prepared.write(tmp_path / "out")

    expected = {"t": [1, 2], "g": np.array(3, np.float32), "f": raw(3, 2), "big": np.arange(3, dtype=np.float32)}
    assert bits(KIND.read(tmp_path / "out").tree) == bits(expected)
    assert prepared.losses == (
        "t: a tuple; Orbax stores it as it stores lists.",
        "g: a scalar of NumPy became an array without axes.",
        "f: its order in memory is not kept; sums over it may round otherwise.",
        "big: its bytes were in the other order than this machine's; the numbers are the same.",
        "bad: said beside the leaves; it has no form in JSON and is left out.",
    )


def test_what_orbax_wrote_otherwise_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    prepared = KIND.prepare(Carried({"a": {"w": np.zeros(2)}}), widen=False)
    monkeypatch.setattr(orbax_writing, "read_orbax", lambda _: {"a": {"w": np.zeros(2, np.float32)}})
    with pytest.raises(CommitError, match=r"out: a/w: Orbax wrote something else than it was given\."):
        prepared.write(tmp_path / "out")

    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    (tmp_path / "out").mkdir()
    with pytest.raises(CommitError, match=r"out: was not written: something stands there by now\."):
        prepared.write(tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.full
def test_arrays_that_lay_on_several_devices(tmp_path: Path):
    program = f"""
import jax, numpy as np, orbax.checkpoint as orbax
from jax.sharding import NamedSharding, PartitionSpec
mesh = jax.make_mesh((4,), ("x",))
array = jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), NamedSharding(mesh, PartitionSpec("x", None)))
with orbax.StandardCheckpointer() as checkpointer:
    checkpointer.save({str(tmp_path / "x")!r}, {{"w": array}})
assert len(array.addressable_shards) == 4
"""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)

    assert bits(KIND.read(tmp_path / "x").tree) == bits({"w": np.arange(64, dtype=np.float32).reshape(8, 8)})


# Damage.


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each array in a directory of its own, with a text beside them."""
    tree = {"a": raw(40, 40), "b": {"c": raw(2), "s": "text"}, "n": 3}
    return written(tmp_path_factory.mktemp("sound") / "x", tree, {"use_ocdbt": False})


@pytest.fixture
def directory(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "x"))


def cut(name: str) -> Callable[[Path], None]:
    def changed(at: Path) -> None:
        (at / name).write_bytes((at / name).read_bytes()[:-3])

    return changed


def edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def changed(at: Path) -> None:
        document = json.loads((at / "_METADATA").read_text("utf-8"))
        change(document)
        (at / "_METADATA").write_text(json.dumps(document), "utf-8")

    return changed


def add(*keys: Any, kind: Any = "None", key_type: Any = 2, **more: Any) -> Callable[[Path], None]:
    def change(document: dict[str, Any]) -> None:
        document["tree_metadata"][str(tuple(keys))] = {
            "key_metadata": [{"key": key, "key_type": key_type} for key in keys],
            "value_metadata": {"value_type": kind, **more},
        }

    return edit(change)


def array_metadata(text: bytes) -> Callable[[Path], None]:
    def change(at: Path) -> None:
        (at / "array_metadatas").mkdir(exist_ok=True)
        (at / "array_metadatas" / "process_0").write_bytes(text)

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda at: (at / "_METADATA").unlink(), "_METADATA: missing. Convert another checkpoint"),
        (lambda at: (at / "_strings.json").unlink(), "_strings.json: missing."),
        (lambda at: (at / "_strings.json").write_text("{}"), "_strings.json: no text of b/s. Take an undamaged copy."),
        (lambda at: (at / "_strings.json").write_text("[]"), "_strings.json: no text of b/s. Take an undamaged copy."),
        (lambda at: shutil.rmtree(at / "a"), "x: a: NOT_FOUND"),
        (lambda at: (at / "a" / "0.0").unlink(), "x: a: "),
        (cut("a/0.0"), "x: a: "),
        (cut("a/.zarray"), "x: a: "),
        (cut("_METADATA"), "_METADATA: no JSON"),
        (cut("_CHECKPOINT_METADATA"), "_CHECKPOINT_METADATA: no JSON"),
        (lambda at: (at / "_CHECKPOINT_METADATA").write_text("[]"), "_CHECKPOINT_METADATA: no mapping."),
        (add("..", kind="np.ndarray"), "ValueError the name '..' leads out of its directory, or to none"),
        (add("../y", kind="np.ndarray"), "ValueError the name '../y' leads out of its directory"),
        (add("/etc", kind="np.ndarray"), "ValueError the name '/etc' leads out of its directory"),
        (add("a/../../y", kind="scalar"), "ValueError the name 'a/../../y' leads out of its directory"),
        (add("", kind="np.ndarray"), "ValueError the name '' leads out of its directory"),
        (add("b.c", kind="np.ndarray"), "b.c and b/c share the name 'b.c': one was written over the other"),
        (add("0", key_type=1), "TypeError positions with gaps, or beside names, at"),
        (add("1", key_type=1), "TypeError positions with gaps, or beside names, at"),
        (add("01", key_type=1), "TypeError a key '01' of the type 1"),
        (add("-1", key_type=1), "TypeError a key '-1' of the type 1"),
        (add("q", key_type=3), "TypeError a key 'q' of the type 3"),
        (add("q", key_type="2"), "TypeError a key 'q' of the type '2'"),
        (add("q", kind="Foo"), "TypeError 'Foo' at \"('q',)\", which Orbax's own handlers do not write"),
        (add("q", kind=["None"]), "_METADATA: not as Orbax writes it: TypeError"),
        (add("q", kind="None", write_shape=[-1]), "TypeError the shape [-1]"),
        (add("q", kind="None", write_shape="abc"), "TypeError the shape abc"),
        (add(*["q"] * 61), "TypeError 61 keys in a row"),
        (edit(lambda d: d["tree_metadata"]["('n',)"]["value_metadata"].update(value_type="string")), "no text of n."),
        (
            edit(lambda d: d["tree_metadata"]["('a',)"]["value_metadata"].update(value_type="scalar")),
            "_METADATA has a scalar",
        ),
        (
            edit(lambda d: d["tree_metadata"]["('a',)"]["value_metadata"].update(write_shape=[3])),
            "written as (3,) in _METADATA",
        ),
        (edit(lambda d: d.update(use_zarr3=True)), "x: a: NOT_FOUND"),
        (array_metadata(b"{"), "process_0: no JSON"),
        (array_metadata(b'{"array_metadatas": [1]}'), "process_0: not as Orbax writes it: TypeError"),
    ],
)
def test_damage_is_refused_with_its_place(directory: Path, damage: Callable[[Path], object], message: str):
    damage(directory)
    assert kind_of(directory) is KIND
    with pytest.raises(DamagedError) as caught:
        KIND.read(directory)

    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{directory}")


def test_an_unfinished_save_is_told(directory: Path):
    unfinished = directory.rename(directory.with_name("x.orbax-checkpoint-tmp"))
    with pytest.raises(
        DamagedError, match="Orbax was stopped in the middle of this save; convert the checkpoint before"
    ):
        KIND.read(unfinished)


def test_an_absurd_shape_is_refused_before_memory_is_allocated(directory: Path):
    file = directory / "a" / ".zarray"
    document = json.loads(file.read_text("utf-8")) | {"shape": [1 << 40, 40]}
    file.write_text(json.dumps(document), "utf-8")
    with pytest.raises(
        DamagedError, match=r"x: a: arrays of the shape \(1099511627776, 40\) and before are larger than"
    ):
        KIND.read(directory)


def test_a_flipped_bit_in_the_numbers_is_noticed_or_changes_one_leaf(directory: Path):
    """Orbax's zarr files have no digests: this is what docs/interop.md says of them."""
    whole = bits(KIND.read(directory).tree)
    file = directory / "a" / "0.0"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    try:
        changed = [one[0] for one, other in zip(bits(KIND.read(directory).tree), whole, strict=True) if one != other]
    except DamagedError as error:
        changed = [("a",)] if "x: a: " in str(error) else [error]
    assert changed == [("a",)]
