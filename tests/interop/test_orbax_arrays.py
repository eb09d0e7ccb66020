"""What Orbax wrote is read as Orbax itself reads it; what contradicts itself is refused before memory is allocated."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.errors import DamagedError, UsageError
from perdure.interop.orbax_arrays import read_orbax
from perdure.tree.leaves import leaves

pytestmark = pytest.mark.jax

Document = dict[str, Any]


def written(directory: Path, tree: Any) -> Path:
    import orbax.checkpoint as orbax

    with orbax.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory, tree)
    return directory


def read_by_orbax(directory: Path) -> Any:
    import jax
    import orbax.checkpoint as orbax

    handler: Any = orbax.PyTreeCheckpointHandler()
    described = handler.metadata(directory).tree
    how = jax.tree.map(lambda _: orbax.RestoreArgs(restore_type=np.ndarray), described)
    return handler.restore(directory, args=orbax.args.PyTreeRestore(restore_args=how))


def bits(tree: Any) -> list[Any]:
    found = leaves(tree)
    return [
        (path, leaf.dtype, leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) else leaf for path, leaf in found
    ]


def test_it_is_read_as_orbax_reads_it(tmp_path: Path):
    import jax
    import jax.numpy as jnp

    matrix = jax.random.normal(jax.random.key(0), (70, 33))
    tree = {
        "half": {"value": matrix.astype(jnp.bfloat16)},
        "bytes": jnp.arange(5, dtype=jnp.uint8),
        "bools": jnp.asarray([True, False]),
        "nothing": None,
        "empty": {},
        "zeros": jnp.zeros((4, 4)),
        "layers": {0: {"kernel": matrix}, 1: {"odd.name/ü": jnp.float32(-0.0)}},
        "scalar": 3,
        "rate": 0.5,
    }
    directory = written(tmp_path / "x y%20z", tree)

    read = read_orbax(directory)
    assert (read.pop("scalar"), read.pop("rate")) == (3, 0.5)
    theirs = read_by_orbax(directory)
    assert (theirs.pop("scalar"), theirs.pop("rate")) == (3, 0.5)
    assert bits(read) == bits(theirs)
    assert read_orbax(directory)["half"]["value"].tobytes() == np.asarray(tree["half"]["value"]).tobytes()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    import jax.numpy as jnp

    return written(tmp_path / "x", {"a": jnp.ones((2, 3)), "b": {"c": jnp.ones(2)}})


def change(directory: Path, edit: Callable[[Document], object]) -> None:
    path = directory / "_METADATA"
    document = json.loads(path.read_text("utf-8"))
    edit(document)
    path.write_text(json.dumps(document), "utf-8")


def add(document: Document, *keys: Any, kind: Any = "None", key_type: int = 2) -> None:
    entry = {
        "key_metadata": [{"key": key, "key_type": key_type} for key in keys],
        "value_metadata": {"value_type": kind},
    }
    document["tree_metadata"][str(tuple(keys))] = entry


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.clear(), "_METADATA: without tree_metadata, which Orbax writes."),
        (lambda d: d.update(tree_metadata=[]), "_METADATA: not as Orbax writes it: AttributeError"),
        (lambda d: add(d, "a", "b"), "TypeError two leaves at a/b"),
        (lambda d: add(d, "b"), "TypeError two leaves at b"),
        (lambda d: add(d), "TypeError 0 keys in a row"),
        (lambda d: add(d, *["x"] * 61), "TypeError 61 keys in a row"),
        (lambda d: add(d, 1, kind="scalar"), "_METADATA: not as Orbax writes it: TypeError"),
        (lambda d: add(d, "l", key_type=1), "ValueError invalid literal for int() with base 10: 'l'"),
        (lambda d: add(d, "s", kind="string"), "_strings.json: missing."),
        (lambda d: add(d, "s", kind="function"), "TypeError 'function' at \"('s',)\", which Orbax's own handlers"),
        (lambda d: add(d, "s", kind=[]), "_METADATA: not as Orbax writes it: TypeError"),
        (lambda d: add(d, "s", kind="scalar"), 'x: s: NOT_FOUND: Error opening "zarr" driver'),
        (lambda d: d["tree_metadata"]["('a',)"].pop("key_metadata"), "not as Orbax writes it: KeyError 'key_metadata'"),
        (lambda d: d["tree_metadata"]["('a',)"]["key_metadata"][0].update(key="z"), "TypeError at \"('a',)\""),
        (
            lambda d: d["tree_metadata"]["('a',)"]["value_metadata"].update(write_shape=[3, 2]),
            "x: a: the shape (2, 3) in the array, written as (3, 2) in _METADATA. Convert another checkpoint",
        ),
        (lambda d: d.update(use_ocdbt=False), 'x: a: NOT_FOUND: Error opening "zarr" driver'),
        (lambda d: d.update(use_zarr3=True), 'x: a: NOT_FOUND: Error opening "zarr3" driver'),
    ],
)
def test_what_contradicts_itself_is_refused(directory: Path, edit: Callable[[Document], object], message: str):
    change(directory, edit)
    with pytest.raises(DamagedError) as caught:
        read_orbax(directory)

    assert message in str(caught.value)
    assert "ake an undamaged copy." in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"[]"])
def test_metadata_that_is_no_document(directory: Path, content: bytes):
    (directory / "_METADATA").write_bytes(content)
    with pytest.raises(DamagedError, match=r"_METADATA: (no JSON|without tree_metadata)"):
        read_orbax(directory)


def test_a_size_that_the_files_cannot_hold_is_refused_before_it_is_allocated(directory: Path):
    import tensorstore

    base = {"driver": "file", "path": f"{directory}/"}
    place = {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": base, "path": "huge/"}}
    tensorstore.open(place, create=True, dtype="float32", shape=[10**13]).result()
    change(directory, lambda document: add(document, "huge", kind="jax.Array"))
    change(directory, lambda document: document.update(store_array_data_equal_to_fill_value=False))

    with pytest.raises(DamagedError, match=r"huge: arrays of the shape \(10000000000000,\) and before are larger than"):
        read_orbax(directory)


def test_missing_data_is_not_filled_up_with_zeros(directory: Path):
    import tensorstore

    base = {"driver": "file", "path": f"{directory}/"}
    place = {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": base, "path": "new/"}}
    tensorstore.open(place, create=True, dtype="float32", shape=[3]).result()
    change(directory, lambda document: add(document, "new", kind="jax.Array"))

    with pytest.raises(DamagedError, match=r"new: .*missing"):
        read_orbax(directory)


def test_without_the_extra_it_says_what_to_install(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(UsageError, match=r"needs TensorStore, .* is not installed. .* pip install 'perdure\[jax\]'"):
        read_orbax(directory)
