"""Checkpoints written by past versions still load, with the values that were saved.

`python tests/golden/test_golden.py` writes those of today's version where there are none. Version 0 may be replaced
until it is frozen; a frozen version's files are never written again.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.checkpoint.opening import open_checkpoint
from perdure.checkpoint.save import About, save
from perdure.store.local import LocalStore
from perdure.tree.diff import diff_snapshots
from perdure.tree.leaves import Alias, Array, PRNGKey
from perdure.tree.rows import Rows
from perdure.tree.snapshot import Component, Snapshot

GOLDEN = Path(__file__).parent
VERSIONS = sorted(path.name for path in GOLDEN.glob("v*"))


def snapshot() -> Snapshot:
    """A snapshot with every kind of node."""
    weights = np.arange(6, dtype=np.float32).reshape(2, 3) / 7
    ring = {"obs": np.arange(24, dtype=np.float64).reshape(8, 3), "done": np.arange(8) % 3 == 0}
    plain: dict[str | int, Any] = {
        "none": None,
        "flags": [True, False],
        "ints": (0, -1, 2**53, 2**53 + 1, -(2**200)),
        "floats": [0.0, -0.0, 0.1, 1e300, float("inf"), float("nan")],
        "complex": 1 - 0.0j,
        "text": 'ü/"\\\n',
        "bytes": b"\x00\xff",
        7: {"empty": {}, "list": [], "tuple": ()},
    }
    arrays = {
        "weights": Array(weights),
        "fortran": Array(np.asfortranarray(weights)),
        "weak": Array(np.float32(1.5) * np.ones((), np.float32), weak_type=True),
        "scalar": Array(np.asarray(np.int16(-3)), scalar=True),
        "text": Array(np.array(["a", "ßß"])),
        "time": Array(np.array(["2026-11-30"], "M8[D]")),
        "big_endian": Array(np.array([1, 2], ">i4")),
        "complex": Array(np.array([1 + 2j, -0.0j])),
        "empty": Array(np.zeros((0, 4), np.uint8)),
        "again": Alias(("arrays", "weights")),
    }
    key = PRNGKey("threefry2x32", Array(np.array([1, 2**32 - 1], np.uint32)))
    return Snapshot(
        {
            "arrays": Component("dict", arrays, {"fn": "function golden:f"}, made={("arrays", "weak"): "jax-array"}),
            "key": Component("jax-key", key),
            "plain": Component("dict", plain),
            "replay": Component("x-ring", Rows(3, 11, ring), fidelity="exact-replay", reason="as an example"),
        },
        env_steps=2**40,
        updates=12,
        boundary=11,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_past_version_loads_bit_by_bit(version: str):
    """Every leaf is what was saved, and so is the state digest."""
    store = LocalStore(GOLDEN / version, GOLDEN / version / "damaged")

    opened = open_checkpoint(store, "checkpoint")

    assert diff_snapshots(opened.snapshot, snapshot()) == []
    assert (opened.manifest.amended, opened.manifest.trained_s) == (("algorithm.lr=0.001:0.0003",), 12.5)
    assert {name: part.made for name, part in opened.snapshot.components.items() if part.made} == {
        "arrays": {("arrays", "weak"): "jax-array"}
    }


def test_today_s_version_has_a_golden_checkpoint():
    """The newest golden file is of the version that is written today."""
    assert VERSIONS == ["v0"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_past_version_reads_without_a_framework(version: str):
    """`perdure.read` gives plain values."""
    read = perdure.read(GOLDEN / version / "checkpoint")

    assert read["plain"]["ints"] == (0, -1, 2**53, 2**53 + 1, -(2**200))
    assert read["replay"]["columns"]["obs"].tolist() == [[row % 8 * 3 + at for at in range(3)] for row in range(3, 11)]
    assert read["arrays"]["again"] is read["arrays"]["weights"]


if __name__ == "__main__":
    target = GOLDEN / "v0"
    if (target / "checkpoint").exists():
        sys.exit(f"{target} exists; a golden file is written once")
    about = About(
        run_id="ab" * 16,
        contract={"seed": {"seed": 2**60}, "algorithm": {"lr": 3e-4, "clip": float("inf")}},
        arithmetic={"numpy": "2.4.6"},
        metrics={"offset": 0, "digest": "xxh3_128:99aa06d3014798d86001c324468d497f"},
        scores={"return": 1.5},
        amended=["algorithm.lr=0.001:0.0003"],
        trained_s=12.5,
        created="2026-11-30T00:00:00.000+00:00",
    )
    save(LocalStore(target, target / "damaged"), "checkpoint", snapshot(), about)
