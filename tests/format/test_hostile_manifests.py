"""Manifests that somebody made to do harm: only typed errors, bounded memory and time.

Digests guard against accidents, so here they are made to fit: a document with any content, intact by its own digest.
"""

import json
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.format.hostile_setup import RING, files

import perdure
from perdure.checkpoint.opening import open_checkpoint
from perdure.errors import DamagedError, PerdureError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.format.manifest import decode_manifest
from perdure.format.nodes import StoredArray, decode_node
from perdure.format.state_digest import component_digests, state_digest
from perdure.format.tensors import empty_array
from perdure.store.memory import MemoryStore
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Component, Snapshot

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["weights.safetensors", "../x", "/etc/passwd", "float32", "<M8[s]", "xxh3_128:" + 32 * "0", "array"]
    ),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=6), children, max_size=3),
    max_leaves=6,
)


def document() -> dict[str, Any]:
    return json.loads(files()["MANIFEST.json"])


def sealed(content: Any) -> bytes:
    """A document with its digest made to fit."""
    if not isinstance(content, dict):
        return canonical.encode(content)
    content = {name: value for name, value in content.items() if name != "digest"}
    return canonical.encode({**content, "digest": digest_of(canonical.encode(content))})


def forged(content: Any) -> bytes:
    """The same with the digests of components and state made to fit as well, where they can be told at all."""
    try:
        digests: dict[tuple, str] = {}

        def blank(path: tuple, stored: StoredArray) -> np.ndarray:
            if stored.place.length > 1 << 20:
                raise MemoryError
            digests[path] = stored.place.digest
            return empty_array(stored.dtype, stored.shape, stored.axes)

        ring = Rows(3, 17, RING)
        parts = content["components"]
        trees = {name: decode_node(part["tree"], (name,), blank, lambda *_: ring) for name, part in parts.items()}
        snapshot = Snapshot({name: Component("x", tree) for name, tree in sorted(trees.items())}, 0, 0, 0)
        found = component_digests(snapshot, lambda path, _: digests[path])
        parts = {name: {**part, "digest": found[name]} for name, part in parts.items()}
        whole = state_digest(found, content["env_steps"], content["updates"], content["boundary"])
        return sealed({**content, "components": parts, "state_digest": whole})
    except (PerdureError, RecursionError, MemoryError, KeyError, TypeError, AttributeError, ValueError):
        return sealed(content)


def open_with(manifest: bytes) -> Any:
    store = MemoryStore()
    store.entries["c"] = {**files(), "MANIFEST.json": manifest}
    return open_checkpoint(store, "c")


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    found = [path]
    if isinstance(node, dict | list):
        for step, child in node.items() if isinstance(node, dict) else enumerate(node):
            found += places(child, (*path, step))
    return found


def put(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at one place; `...` removes it."""
    if not path:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    first, *rest = path
    if value is ... and not rest:
        del copy[first]
    else:
        copy[first] = put(node[first], tuple(rest), value) if rest else value
    return copy


PLACES = places(document())


@st.composite
def hostile_documents(draw: st.DrawFn) -> Any:
    """The document with one to three places replaced, removed, doubled or exchanged."""
    content = document()
    for _ in range(draw(st.integers(1, 3))):
        there = places(content)
        at = draw(st.sampled_from(there))
        kind = draw(st.sampled_from(["replace", "remove", "copy"]))
        if kind == "replace":
            content = put(content, at, draw(JSON))
        elif kind == "remove" and at:
            content = put(content, at, ...)
        elif kind == "copy":
            source = draw(st.sampled_from(there))
            value = content
            for step in source:
                value = value[step]
            content = put(content, at, value)
    return content


def check_hostile(content: Any) -> None:
    try:
        data = forged(content)
    except (ValueError, RecursionError):
        return
    with TemporaryDirectory() as place:
        checkpoint = Path(place) / "c"
        checkpoint.mkdir()
        for name, bytes_ in {**files(), "MANIFEST.json": data}.items():
            (checkpoint / name).write_bytes(bytes_)
        try:
            assert perdure.read(checkpoint).keys() == content["components"].keys()
        except PerdureError:
            return


@settings(max_examples=300, deadline=None)
@given(hostile_documents())
def test_a_forged_manifest_opens_or_is_refused_by_a_typed_error(content: Any) -> None:
    check_hostile(content)


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None)
@given(hostile_documents())
def test_a_forged_manifest_opens_or_is_refused_by_a_typed_error_more_examples(content: Any) -> None:
    check_hostile(content)


@settings(max_examples=200, deadline=None)
@given(JSON | st.dictionaries(st.sampled_from(sorted(document())), JSON))
def test_any_document_is_a_manifest_or_is_refused_by_a_typed_error(content: Any) -> None:
    with pytest.raises(DamagedError):
        decode_manifest(sealed(content))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_by_a_typed_error(data: bytes) -> None:
    with pytest.raises(DamagedError):
        decode_manifest(data)


def tree_of(component: str, node: Any, **fields: Any) -> bytes:
    """The manifest with another tree for one component."""
    content = document()
    content["components"][component]["tree"] = node
    return forged({**content, **fields})


def nested(depth: int, kind: str = "list") -> Any:
    node: Any = 1
    for _ in range(depth):
        node = {kind: [["k", node]] if kind == "dict" else [node]}
    return node


def array(**fields: Any) -> dict[str, Any]:
    """The entry of `weights/b`, changed."""
    pairs = document()["components"]["weights"]["tree"]["dict"]
    return {"array": {**dict(pairs)["b"]["array"], **fields}}


HUGE = 2**61


def alias_bomb() -> Any:
    """Each level holds the one before it twice: 2**60 leaves, were they unfolded."""
    pairs: list[Any] = [["0", {"list": [1, 1]}]]
    pairs += [[str(n), {"list": [{"alias": ["counts", str(n - 1)]}] * 2}] for n in range(1, 60)]
    return {"dict": pairs}


def alias_chain() -> Any:
    """Aliases whose paths lead through aliases: each step would have to be followed twice as often."""
    pairs: list[Any] = [["0", {"list": [{"list": [1]}]}]]
    for n in range(1, 60):
        before = {"alias": ["counts", str(n - 1), 0]}
        pairs.append([str(n), {"list": [before, before]}])
    return {"dict": [*pairs, ["last", {"alias": ["counts", *(["59"] + [0] * 50)]}]]}


def alias_maze() -> bytes:
    """Each alias leads twice through the one before it: following it takes 2**50 steps."""
    pairs: list[Any] = [["0", {"list": [0, {"alias": ["counts", "0"]}, {"alias": ["counts", "1"]}]}]]
    for n in range(1, 50):
        twice = {"alias": ["counts", str(n - 1), 1, 1, 2]}
        pairs.append([str(n), {"list": [0, twice, {"alias": ["counts", str(n + 1)]}]}])
    pairs.append(["50", {"list": [0, {"alias": ["counts", "49", 1, 1, 2]}]}])
    # Sealed and no more: the digest of its state cannot be told in time either.
    return sealed(put(document(), ("components", "counts", "tree"), {"dict": pairs}))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "an array larger than its file": lambda: tree_of("weights", array(shape=[HUGE // 8], length=HUGE)),
    "an array and a file larger than any memory": lambda: sealed(
        put(
            put(document(), ("components", "weights", "tree"), array(shape=[HUGE // 8], length=HUGE)),
            ("files", "weights.safetensors", "size"),
            HUGE + 1000,
        )
    ),
    "an offset beyond the file": lambda: tree_of("weights", array(offset=HUGE)),
    "a thousand arrays in one place": lambda: tree_of("weights", {"list": [array()] * 1000}),
    "no bytes but many axes": lambda: tree_of("weights", array(shape=[0] + [HUGE] * 40, length=0)),
    "too many axes": lambda: tree_of("weights", array(shape=[1] * 65, length=8)),
    "an empty array of endless rows": lambda: tree_of("weights", array(shape=[HUGE, 0], length=0)),
    "huge text items": lambda: tree_of("weights", array(dtype="<U500000000", shape=[0], length=0)),
    "an object dtype": lambda: tree_of("weights", array(dtype="|O8")),
    "a structured dtype": lambda: tree_of("weights", array(dtype="i4,i4")),
    "nested lists, 199": lambda: tree_of("counts", nested(199)),
    "nested lists, 300": lambda: tree_of("counts", nested(300)),
    "nested lists, 400": lambda: tree_of("counts", nested(400)),
    "nested dicts, 150": lambda: tree_of("counts", nested(150, "dict")),
    "nested dicts, 240": lambda: tree_of("counts", nested(240, "dict")),
    "nested beyond the reader's limit": lambda: b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "an alias of itself": lambda: tree_of("counts", {"alias": ["counts"]}),
    "an alias loop": lambda: tree_of(
        "counts", {"dict": [["a", {"alias": ["counts", "b"]}], ["b", {"alias": ["counts", "a"]}]]}
    ),
    "an alias of a part of itself": lambda: tree_of("counts", {"list": [{"alias": ["counts", 0, 0]}]}),
    "an alias of what stands around it": lambda: tree_of("counts", {"tuple": [{"alias": ["counts"]}]}),
    "an alias of what stands later": lambda: tree_of("counts", {"alias": ["weights", "b"]}),
    "an alias of nothing": lambda: tree_of("shared", {"alias": ["weights", "zzz"]}),
    "an alias of no component": lambda: tree_of("shared", {"alias": ["zzz"]}),
    "an alias of a number": lambda: tree_of("shared", {"alias": [0]}),
    "an alias without a path": lambda: tree_of("shared", {"alias": []}),
    "an alias bomb": lambda: tree_of("counts", alias_bomb()),
    "a maze of aliases": alias_maze,
    "a chain of aliases": lambda: tree_of("counts", alias_chain()),
    "a number of a million digits": lambda: b'{"a":' + b"9" * 1_000_000 + b"}\n",
    "an integer of thousands of digits": lambda: tree_of("counts", {"int": "0x" + "f" * 3_500}),
    "a float beyond all floats": lambda: b'{"a":1e999}\n',
    "a negative size": lambda: sealed(put(document(), ("files", "weights.safetensors", "size"), -1)),
    "a score beyond all floats": lambda: sealed(put(document(), ("scores", "r"), 10**400)),
    "a file above": lambda: sealed(
        put(document(), ("files", "../weights.safetensors"), {"size": 1, "digest": digest_of(b"")})
    ),
    "an absolute file": lambda: sealed(
        put(document(), ("files", "/etc/passwd"), {"size": 1, "digest": digest_of(b"")})
    ),
    "a file of no valid text": lambda: sealed(
        put(document(), ("files", "weights.\ud800"), {"size": 1, "digest": digest_of(b"")})
    ),
    "an array in a file above": lambda: tree_of("weights", array(file="../weights.safetensors")),
    "an array in the manifest": lambda: tree_of("weights", array(file="MANIFEST.json", offset=0)),
    "a component above": lambda: sealed(put(document(), ("components", "../x"), document()["components"]["counts"])),
    "no component": lambda: sealed({**document(), "components": {}, "files": {}}),
    "a ring of endless capacity": lambda: sealed(
        put(document(), ("components", "replay", "tree", "dict", 0, 1, "rows", "capacity"), HUGE)
    ),
    "rows without end": lambda: sealed(
        put(document(), ("components", "replay", "tree", "dict", 0, 1, "rows", "stop"), HUGE)
    ),
    "a segment without end": lambda: sealed(
        put(document(), ("components", "replay", "tree", "dict", 0, 1, "rows", "segments", 0, "stop"), HUGE)
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_manifest_costs_neither_memory_nor_time(what: str) -> None:
    """A typed error (or a snapshot), in less memory than a few times the document, in a moment."""
    data = HOSTILE[what]()
    tracemalloc.start()
    started = time.process_time()
    with suppress(PerdureError):
        assert open_with(data).snapshot.components
    spent_s, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()

    if what != "a ring of endless capacity":
        assert peak < 30 * len(data) + (4 << 20)
    assert spent_s < 20  # no figure: an exponential walk would not end at all


def test_arrays_that_overlap_are_refused_before_their_memory_is_taken() -> None:
    """Together they may take what the file holds, and no more."""
    with pytest.raises(DamagedError, match=r"weights/\d+: lies outside of 'weights.safetensors'"):
        open_with(HOSTILE["a thousand arrays in one place"]())


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_checkpoint_on_disk_is_refused_by_every_verb(what: str, tmp_path: Path) -> None:
    """`read` and `load`, which go on from an opened snapshot."""
    checkpoint = tmp_path / "c"
    checkpoint.mkdir()
    for name, content in {**files(), "MANIFEST.json": HOSTILE[what]()}.items():
        (checkpoint / name).write_bytes(content)

    for verb in (
        lambda: perdure.read(checkpoint),
        lambda: perdure.load(checkpoint, counts={}),
        lambda: perdure.load(checkpoint, only=["shared", "weights"], shared={}, weights={}),
    ):
        try:
            verb()
        except PerdureError:
            continue
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


SPELLINGS: dict[str, Callable[[bytes], bytes]] = {
    "a key twice": lambda data: data.replace(b',"arithmetic":', b',"arithmetic":{},"arithmetic":', 1),
    "a key twice at the bottom": lambda data: data.replace(b'"dtype":', b'"dtype":"float32","dtype":', 1),
    "spaces": lambda data: data.replace(b":", b": ", 1),
    "no newline": lambda data: data.rstrip(b"\n"),
    "two newlines": lambda data: data + b"\n",
    "keys in another order": lambda data: (
        json.dumps(dict(reversed(json.loads(data).items())), separators=(",", ":")).encode() + b"\n"
    ),
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "another encoding": lambda data: data.decode().encode("utf-16"),
    "an escape that needs none": lambda data: data.replace(b'"counts"', b'"\\u0063ounts"', 1),
    "NaN": lambda data: data.replace(b'"boundary":1', b'"boundary":NaN', 1),
    "a number in another spelling": lambda data: data.replace(b'"boundary":1', b'"boundary":1.0', 1),
    "a minus zero": lambda data: data.replace(b'"boundary":1', b'"boundary":-0', 1),
    "invalid UTF-8": lambda data: data.replace(b'"counts"', b'"\xff\xfe"', 1),
    "a comment": lambda data: b"//\n" + data,
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_another_spelling_of_the_same_document_is_refused(spelling: str) -> None:
    data = files()["MANIFEST.json"]
    other = SPELLINGS[spelling](data)
    assert other != data

    with pytest.raises(DamagedError, match=r"MANIFEST\.json"):
        open_with(other)
