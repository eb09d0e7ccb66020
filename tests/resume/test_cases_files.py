"""CASES, the faults of files and of paths that users met: names that files depend on, and paths that were mistyped."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.errors import AllDamagedError, NoRunError

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("global_generators")]

KINDS: dict[str, Any] = {
    "visits": {3: 1, -1: 2, 2**70: 3},
    "pair": (1, (2.0, None)),
    "words": {"3": (), "list": [1, (2,)]},
}

READ_WITHOUT_FRAMEWORKS = """
import sys
for name in ("jax", "jaxlib", "flax", "optax", "torch", "gymnasium"):
    sys.modules[name] = None
import perdure
read = perdure.read(sys.argv[1])
print(repr((read["visits"], read["pair"], read["words"])))
print(read["weights"].dtype.str, read["weights"].tolist(), read["key"].tolist())
"""


def test_case_18_a_file_loads_without_the_frameworks_and_classes_it_was_written_with(tmp_path: Path):
    jax = pytest.importorskip("jax")
    key, weights = jax.random.key(7), np.array([1.5, -0.0], np.float32)
    perdure.save(tmp_path / "saved", **KINDS, weights=jax.numpy.asarray(weights), key=key)

    done = subprocess.run(
        [sys.executable, "-c", READ_WITHOUT_FRAMEWORKS, str(tmp_path / "saved")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    loaded = perdure.load(tmp_path / "saved", **KINDS, weights=jax.numpy.zeros(2), key=jax.random.key(0))

    assert done.stdout.splitlines() == [repr(tuple(KINDS.values())), "<f4 [1.5, -0.0] [0, 7]"]
    assert jax.dtypes.issubdtype(loaded["key"].dtype, jax.dtypes.prng_key)
    assert jax.random.bits(loaded["key"]) == jax.random.bits(key)
    assert {name: loaded[name] for name in KINDS} == KINDS


def test_twin_of_case_18_text_in_place_of_integers_and_lists_in_place_of_tuples_would_be_seen(tmp_path: Path):
    """What JSON makes of the same values, as other formats keep them."""
    through_json = json.loads(json.dumps(KINDS))
    perdure.save(tmp_path / "saved", **through_json)
    read = perdure.read(tmp_path / "saved")

    assert all(read[name] != KINDS[name] for name in KINDS)


def train(directory: Path, updates: int, **told: Any) -> perdure.Run:
    """So many updates of numbers, every one saved."""
    rng = np.random.default_rng(5)
    run = perdure.Run(directory, every=perdure.Every(updates=1), keep=None, **told)
    total = run.restore(rng=rng, total=0.0).total
    while run.updates < updates:
        total = total + rng.normal()
        run.boundary(env_steps=run.env_steps + 1, total=total)
    run.finish()
    return run


def test_case_19_missing_and_corrupt_and_fresh_are_three_things(tmp_path: Path):
    train(tmp_path / "runs" / "ppo", 2, mode="new")
    shutil.copytree(tmp_path / "runs" / "ppo", tmp_path / "damaged")
    for file in (tmp_path / "damaged" / "checkpoints").rglob("*.json"):
        file.write_bytes(file.read_bytes()[:-40])

    with pytest.raises(NoRunError, match=r"pp0: no such directory\. Check the spelling; nothing was created\."):
        train(tmp_path / "runs" / "pp0", 4, mode="resume")
    with pytest.raises(AllDamagedError, match=r"all 3 checkpoints are damaged; nothing was changed"):
        train(tmp_path / "damaged", 4, mode="resume")
    assert train(tmp_path / "runs" / "ppo", 4, mode="resume").updates == 4

    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["ppo"]
    assert not issubclass(NoRunError, AllDamagedError)
    assert not issubclass(AllDamagedError, NoRunError)


def test_twin_of_case_19_a_script_that_does_not_insist_begins_at_the_mistyped_path(tmp_path: Path):
    """Why `perdure resume` insists: without it the misspelt run trains, from the start."""
    train(tmp_path / "runs" / "ppo", 2)
    run = train(tmp_path / "runs" / "pp0", 2)

    assert not run.resumed
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["pp0", "ppo"]
