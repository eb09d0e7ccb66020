"""Damage of every kind to a checkpoint: thousands of cases, zero silent loads, and each names the part.

`test_bit_flips.py` damages whole runs on disk. Here a checkpoint's files are damaged in memory, so that all boundaries
of the grammar and all pairs of files can be gone through. `./dev test` takes a sample of each kind, `slow` all.
"""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.save import About, save
from perdure.errors import DamagedError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.store.memory import MemoryStore
from perdure.tree.leaves import Alias, Array, PRNGKey
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Component, Snapshot

SEED = 7
SAMPLE = 32
"""Cases of each kind in the default run."""

Files = dict[str, bytes]


@dataclass(frozen=True)
class Case:
    """One way to damage a checkpoint."""

    what: str
    """In words."""
    files: Files
    """All files afterwards."""
    named: tuple[str, ...]
    """One of these must stand in the message."""


@cache
def checkpoint(number: int) -> Files:
    """A checkpoint of every kind of node; another number is another state of the same structure."""
    draw = np.random.default_rng(number)
    ring = {"obs": draw.normal(size=(3000, 2)).astype(np.float32), "done": draw.integers(0, 2, 3000).astype(bool)}
    weights = {
        "kernel": Array(draw.normal(size=(5, 3)).astype(np.float32)),
        "bias": Array(draw.normal(size=3).astype(np.float32)),
        "twin": Array(draw.normal(size=3).astype(np.float32)),
        "order": Array(np.asfortranarray(draw.normal(size=(3, 4)))),
        "weak": Array(np.float32(number) * np.ones((), np.float32), weak_type=True),
    }
    components = {
        "counts": Component("dict", {"n": 2**70 + number, "x": 0.1 * number, "name": f"run {number}", "none": None}),
        "keys": Component("dict", {"k": PRNGKey("threefry2x32", Array(draw.integers(0, 9, 2).astype(np.uint32)))}),
        "replay": Component("x-ring", {"rows": Rows(100 + number, 2900, ring)}),
        "shared": Component("dict", {"w": Alias(("weights", "kernel")), "more": [1, (2, b"\x00\xff")]}),
        "weights": Component("dict", weights),
    }
    store = MemoryStore()
    save(store, "c", Snapshot(components, number, number, number), About(created="2026-01-01T00:00:00.000+00:00"))
    return store.entries["c"]


def refusal(files: Files) -> str | None:
    """What opening it says; None if it loads."""
    store = MemoryStore()
    store.entries["c"] = files
    try:
        open_checkpoint(store, "c")
    except DamagedError as error:
        return str(error)
    return None


def changed(file: str, data: bytes | None) -> Files:
    rest = {name: whole for name, whole in checkpoint(1).items() if name != file}
    return rest if data is None else {**rest, file: data}


def named_by(file: str) -> tuple[str, ...]:
    """A file, or the component that it belongs to."""
    return (file, f"/{file.partition('.')[0]}:") if file != "MANIFEST.json" else (file,)


def boundaries(file: str) -> Iterator[int]:
    """Where one element of the grammar ends: tokens of JSON, the header's length, padding, arrays, blocks of rows."""
    data = checkpoint(1)[file]
    if file == "MANIFEST.json":
        yield from (at for at, byte in enumerate(data) if byte in b'{}[]:,"\n')
        return
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length]
    yield from (0, 8, 8 + len(header.rstrip(b" ")), 8 + length)
    yield from (8 + at for at, byte in enumerate(header) if byte in b'{}[]:,"')
    for name, entry in json.loads(header).items():
        if name != "__metadata__":
            yield from (8 + length + offset for offset in entry["data_offsets"])


def truncations() -> Iterator[Case]:
    for file, data in checkpoint(1).items():
        around = {at + near for at in boundaries(file) for near in (-1, 0, 1)}
        for at in sorted(at for at in around if 0 <= at < len(data)):
            yield Case(f"{file} cut to {at} bytes", changed(file, data[:at]), (file,))


def extensions() -> Iterator[Case]:
    for file, data in checkpoint(1).items():
        for more in (b"\0", b" ", b"\n", b"{}", bytes(4096), data):
            yield Case(f"{file} with {len(more)} bytes more", changed(file, data + more), (file,))


def flips() -> Iterator[Case]:
    draw = random.Random(SEED)
    for file, data in checkpoint(1).items():
        for _ in range(300):
            at, bit = draw.randrange(len(data)), draw.randrange(8)
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            yield Case(f"{file}: bit {bit} of byte {at}", changed(file, flipped), named_by(file))


def sectors() -> Iterator[Case]:
    """Zeroed, swapped, or filled with another sector, as disks do."""
    for file, data in checkpoint(1).items():
        size = 512 if len(data) > 2048 else 64
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        for at, part in enumerate(parts):
            for what, new in (("zeroed", bytes(len(part))), ("like the next", parts[(at + 1) % len(parts)])):
                damaged = b"".join([*parts[:at], new[: len(part)], *parts[at + 1 :]])
                if damaged != data:
                    yield Case(f"{file}: part {at} {what}", changed(file, damaged), named_by(file))
        for a, b in itertools.pairwise(range(len(parts))):
            swapped = b"".join([*parts[:a], parts[b], parts[a], *parts[b + 1 :]])
            if swapped != data:
                yield Case(f"{file}: parts {a} and {b} swapped", changed(file, swapped), named_by(file))


def whole_files() -> Iterator[Case]:
    """Deleted, emptied, zeroed, swapped, doubled, from another checkpoint."""
    files, other = checkpoint(1), checkpoint(2)
    for file, data in files.items():
        yield Case(f"{file} deleted", changed(file, None), (file,))
        yield Case(f"{file} emptied", changed(file, b""), (file,))
        yield Case(f"{file} zeroed", changed(file, bytes(len(data))), named_by(file))
        yield Case(f"{file} all ones", changed(file, b"\xff" * len(data)), named_by(file))
        if file in other and file != "MANIFEST.json":
            yield Case(f"{file} of another checkpoint", changed(file, other[file]), named_by(file))
        yield Case(f"{file} renamed", {**changed(file, None), f"{file}.bak": data}, (file,))
    for a, b in itertools.permutations(files, 2):
        named = (*named_by(a), *named_by(b))
        yield Case(f"{a} in the place of {b}", changed(b, files[a]), named)
        if a < b:
            yield Case(f"{a} and {b} swapped", {**files, a: files[b], b: files[a]}, named)
    names = ("c/keys", "c/replay", "c/weights")
    yield Case("the manifest of another checkpoint", changed("MANIFEST.json", other["MANIFEST.json"]), names)
    yield Case("no file left", {}, ("MANIFEST.json",))
    yield Case("only the manifest left", {"MANIFEST.json": files["MANIFEST.json"]}, names)


def same_size_swaps() -> Iterator[Case]:
    """Two arrays of one file that have the same dtype and shape change places."""
    file = "weights.safetensors"
    data = checkpoint(1)[file]
    length = int.from_bytes(data[:8], "little")
    offsets = {
        name: entry["data_offsets"] for name, entry in json.loads(data[8 : 8 + length]).items() if name[0] != "_"
    }
    (a, b), (c, d) = ([8 + length + offset for offset in offsets[name]] for name in ("bias", "twin"))
    swapped = data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]
    yield Case("bias and twin swapped", changed(file, swapped), ("weights/bias", "weights/twin"))


def with_manifest(edit: Callable[[dict[str, Any]], object], *, digest: bool = True) -> Files:
    """The checkpoint with an edited manifest, in canonical spelling; with a digest that fits, or with the old one."""
    document = json.loads(checkpoint(1)["MANIFEST.json"])
    old = document.pop("digest")
    edit(document)
    document["digest"] = digest_of(canonical.encode(document)) if digest else old
    return changed("MANIFEST.json", canonical.encode(document))


def edited_numbers() -> Iterator[Case]:
    """Counters, plain leaves and array entries that somebody edited, the manifest's digest made to fit."""
    for name in ("env_steps", "updates", "boundary"):
        for value in (0, 2, 10, 2**53, -1):
            for digest in (True, False):
                files = with_manifest(lambda document, n=name, v=value: document.update({n: v}), digest=digest)
                yield Case(f"{name}={value}, digest {digest}", files, ("the state does not have", "MANIFEST.json"))
    for component in ("counts", "shared", "keys", "weights", "replay"):
        for path, value in _leaves(json.loads(checkpoint(1)["MANIFEST.json"])["components"][component]["tree"]):
            for other in _others(value):
                files = with_manifest(
                    lambda document, c=component, p=path, o=other: _put(document["components"][c]["tree"], p, o)
                )
                yield Case(f"{component}: {path} {value!r} -> {other!r}", files, (component, "MANIFEST.json"))


def _leaves(node: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    if isinstance(node, dict | list):
        for step, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _leaves(child, (*path, step))
    else:
        yield path, node


def _put(node: Any, path: tuple, value: Any) -> None:
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value


def _others(value: Any) -> list[Any]:
    if value is None:
        return [0, False]
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int):
        # Not 1024.0 for the 1024 of `block_rows`, the one number that Python compares equal there.
        return [value + 1, value - 1, str(value), *([float(value)] if value != 1024 else [])]
    if isinstance(value, float):
        return [value + 1, -value, str(value)]
    flipped = ("0" if value[-1:] != "0" else "1") if value else "x"
    return [value[:-1] + flipped, value + "x", "", None]


def upper_case_twins() -> Iterator[Case]:
    """Each hexadecimal letter of the manifest in upper case, with the old digest and with one that fits."""
    text = checkpoint(1)["MANIFEST.json"].decode()
    for at, letter in enumerate(text):
        if letter in "abcdef" and _inside_digest(text, at):
            twin = (text[:at] + letter.upper() + text[at + 1 :]).encode()
            yield Case(f"{letter} at {at} in upper case", changed("MANIFEST.json", twin), ("MANIFEST.json",))
            document = json.loads(twin)
            if document.pop("digest") == json.loads(text)["digest"]:
                document["digest"] = digest_of(canonical.encode(document))
                files = changed("MANIFEST.json", canonical.encode(document))
                yield Case(f"{letter} at {at} in upper case, digest made to fit", files, ("MANIFEST.json", "c/"))


def _inside_digest(text: str, at: int) -> bool:
    start = text.rfind("xxh3_128:", 0, at)
    return start >= 0 and at - start < len("xxh3_128:") + 32 and '"' not in text[start:at]


def swapped_digests() -> Iterator[Case]:
    """Places and digests of two arrays exchanged, the manifest's digest made to fit."""

    def nodes(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
        pairs = document["components"]["weights"]["tree"]["dict"]
        return {name: node["array"] for name, node in pairs}

    for a, b in itertools.combinations(("bias", "kernel", "order", "twin", "weak"), 2):
        for fields in (("digest",), ("offset",), ("offset", "length", "digest"), ("shape",), ("dtype",)):

            def exchange(document: dict[str, Any], a: str = a, b: str = b, fields: tuple[str, ...] = fields) -> None:
                one, two = nodes(document)[a], nodes(document)[b]
                for name in fields:
                    one[name], two[name] = two[name], one[name]

            files = with_manifest(exchange)
            if files != checkpoint(1):
                yield Case(f"{fields} of {a} and {b} exchanged", files, ("weights",))


def swapped_entries() -> Iterator[Case]:
    """Whole entries of two files or two components exchanged, or a field of them."""
    for kind in ("files", "components"):
        for a, b in itertools.combinations(json.loads(checkpoint(1)["MANIFEST.json"])[kind], 2):

            def exchange_entries(document: dict[str, Any], kind: str = kind, a: str = a, b: str = b) -> None:
                document[kind][a], document[kind][b] = document[kind][b], document[kind][a]

            # Two components under each other's names are intact, each for itself: the state as a whole is not.
            named = (a, b, *named_by(a), *named_by(b), "c: the state does not have the digest")
            yield Case(f"{a} and {b} exchanged", with_manifest(exchange_entries), named)
            for field in ("digest", "tree"):
                if field in json.loads(checkpoint(1)["MANIFEST.json"])[kind][a]:

                    def exchange_fields(
                        document: dict[str, Any], kind: str = kind, a: str = a, b: str = b, field: str = field
                    ) -> None:
                        one, two = document[kind][a], document[kind][b]
                        one[field], two[field] = two[field], one[field]

                    named = (a, b, *named_by(a), *named_by(b))
                    yield Case(f"{field} of {a} and {b} exchanged", with_manifest(exchange_fields), named)


KINDS = {
    "truncations": truncations,
    "extensions": extensions,
    "flips": flips,
    "sectors": sectors,
    "whole files": whole_files,
    "arrays of one size": same_size_swaps,
    "edited numbers": edited_numbers,
    "upper-case twins": upper_case_twins,
    "exchanged arrays": swapped_digests,
    "exchanged entries": swapped_entries,
}


@cache
def cases_of(kind: str) -> tuple[Case, ...]:
    return tuple(KINDS[kind]())


def check(cases: list[Case]) -> None:
    silent, unnamed = [], []
    for case in cases:
        assert case.files != checkpoint(1), f"{case.what}: no damage"
        told = refusal(case.files)
        if told is None:
            silent.append(case.what)
        elif not told.startswith("c") or not any(name in told for name in case.named):
            unnamed.append(f"{case.what}: {told}")
    assert silent == []
    assert unnamed == []


def test_the_checkpoint_itself_loads() -> None:
    """And holds what the cases need: every file kind, segments among them."""
    assert refusal(checkpoint(1)) is None
    assert refusal(checkpoint(2)) is None
    assert set(checkpoint(1)) == {
        "MANIFEST.json",
        "keys.safetensors",
        "replay.00000101-00002900.safetensors",
        "weights.safetensors",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_damage_is_refused_and_named(kind: str) -> None:
    cases = list(cases_of(kind))
    random.Random(SEED).shuffle(cases)

    check(cases[: SAMPLE if kind != "whole files" else None])


def test_there_are_enough_cases() -> None:
    numbers = {kind: len(cases_of(kind)) for kind in KINDS}

    assert sum(numbers.values()) >= 2_000, numbers
    assert min(numbers.values()) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all_damage_is_refused_and_named(kind: str) -> None:
    check(list(cases_of(kind)))
