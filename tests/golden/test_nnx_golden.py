"""Golden checkpoints of a JAX training load under this JAX and another one, leaf for leaf, and go on.

`nnx_golden.py` wrote `nnx_v0`, once. `./dev test slow` makes the environment with the other JAX.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import perdure

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOLDEN = HERE / "nnx_v0"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
SCRIPT = HERE / "nnx_golden.py"
OTHER = ROOT / ".cache" / "other-jax" / "bin" / "python"
STEPS = 10

pytestmark = [pytest.mark.jax, pytest.mark.full]


def told_by(python: str | Path, *arguments: str | Path) -> dict[str, Any]:
    """What the script prints in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [python, SCRIPT, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def here(nnx_golden: ModuleType) -> ModuleType:
    """The script's functions in this process."""
    return nnx_golden


def test_every_leaf_is_what_was_saved(here):
    found = here.load(GOLDEN)

    assert found["read"] == EXPECTED["read"]
    assert found["loaded"] == EXPECTED["loaded"]
    assert found["actions"] == [found["actions"][0]] * 3


def test_what_is_expected_has_every_kind_of_leaf():
    """Weak types, keys of each implementation, small floats, an empty array; every component of a training."""
    values, training = EXPECTED["loaded"]["values"], EXPECTED["loaded"]["step_0000000020"]

    assert [name for name, leaf in values.items() if leaf["weak_type"]] == ["weak/float", "weak/int"]
    kinds = {leaf["key_implementation"] for leaf in values.values()}
    assert kinds == {None, "threefry2x32", "rbg", "unsafe_rbg"}
    assert {"bfloat16", "float8_e4m3fn"} <= {leaf["dtype"] for leaf in values.values()}
    assert [0, 4] in [leaf["shape"] for leaf in values.values()]
    components = {name.split("/")[0] for name in training}
    assert components == {"networks", "optimizer", "network_states", "env_states", "rng_key"}


def test_twin_one_other_bit_is_seen(here, tmp_path):
    """A leaf that is saved otherwise is described otherwise."""
    tree = here.values(3)
    tree["raw_key"] = tree["raw_key"].at[0].set(1)
    perdure.save(tmp_path / "values", values=tree)
    found = dict(here.described_jax(perdure.load(tmp_path / "values", values=here.values(0))["values"]))
    expected = EXPECTED["loaded"]["values"]

    assert [name for name, leaf in found.items() if leaf != expected[name]] == ["raw_key"]


def test_the_training_goes_on(here):
    assert here.go_on(GOLDEN) == {"total_steps": 3 * STEPS, "evaluated_at": [STEPS, 2 * STEPS, 3 * STEPS]}


def test_a_golden_file_is_written_once(here):
    with pytest.raises(FileExistsError):
        here.make(GOLDEN)


@pytest.fixture(scope="module")
def other() -> Path:
    """A Python whose JAX is of another minor version."""
    if not OTHER.exists():
        pytest.skip("no .cache/other-jax: ./dev test slow makes it")
    return OTHER


@pytest.fixture(scope="module")
def elsewhere(other) -> dict[str, Any]:
    return told_by(other, "load", GOLDEN)


def minor(version: str) -> list[str]:
    return version.split(".")[:2]


@pytest.mark.slow
def test_the_other_jax_is_of_another_minor_version(here, elsewhere):
    assert minor(elsewhere["versions"]["jax"]) != minor(here.versions()["jax"])


@pytest.mark.slow
def test_the_other_jax_is_the_oldest_that_is_allowed(elsewhere):
    extra = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("jax = ["))

    assert all(f'"{name}>={elsewhere["versions"][name]}"' in extra for name in ("flax", "jax", "optax"))


@pytest.mark.slow
def test_every_leaf_is_what_was_saved_under_another_jax(elsewhere):
    assert elsewhere["read"] == EXPECTED["read"]
    assert elsewhere["loaded"] == EXPECTED["loaded"]
    assert elsewhere["actions"] == [elsewhere["actions"][0]] * 3


@pytest.mark.slow
def test_the_training_goes_on_under_another_jax(other):
    assert told_by(other, "go-on", GOLDEN)["total_steps"] == 3 * STEPS


@pytest.mark.slow
def test_the_key_among_every_kind_of_node_loads_under_another_jax(other):
    found = told_by(other, "load-v0", HERE / "v0")

    assert found["data"] == [1, 2**32 - 1]
    assert found["key"]["key_implementation"] == "threefry2x32"


@pytest.mark.slow
def test_what_another_jax_wrote_loads_and_goes_on_here(here, other, tmp_path):
    told_by(other, "make", tmp_path / "made")
    expected = json.loads((tmp_path / "made" / "expected.json").read_text())

    assert here.read(tmp_path / "made") == expected["read"]
    assert here.loaded(tmp_path / "made") == expected["loaded"]
    assert expected["loaded"]["values"] == EXPECTED["loaded"]["values"]
    assert here.go_on(tmp_path / "made")["total_steps"] == 3 * STEPS


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    """A run that stands after two updates, of a process of its own."""
    path = tmp_path_factory.mktemp("begun") / "run"
    assert told_by(sys.executable, "run", path, "2")["notices"] == []
    return path


@pytest.mark.slow
def test_a_run_goes_on_under_another_jax_and_says_so(here, other, begun, tmp_path):
    """Contracts do not refuse another version: they tell, keep it in the lineage, and train on."""
    shutil.copytree(begun, tmp_path / "run")

    resumed = told_by(other, "run", tmp_path / "run", "4")

    assert resumed["total_steps"] == 4 * STEPS
    told = "\n".join(resumed["notices"])
    for name in ("flax", "jax", "jaxlib", "optax"):
        assert f"arithmetic changed: {name}: " in told
    then, now = here.versions()["jax"], resumed["versions"]["jax"]
    assert f"arithmetic changed: jax: {then} then, {now} now. The last bits of results may differ from here on." in told
    log = subprocess.run(
        [sys.executable, "-m", "perdure", "log", tmp_path / "run"], capture_output=True, text=True, check=True
    )
    assert f"arithmetic changed: jax: {then} then, {now} now" in log.stdout


@pytest.mark.slow
def test_a_run_that_went_on_under_another_jax_comes_back(here, other, begun, tmp_path):
    shutil.copytree(begun, tmp_path / "run")
    there = told_by(other, "run", tmp_path / "run", "3")

    back = told_by(sys.executable, "run", tmp_path / "run", "4")

    assert back["total_steps"] == 4 * STEPS
    then, now = there["versions"]["jax"], back["versions"]["jax"]
    assert any(f"arithmetic changed: jax: {then} then, {now} now" in notice for notice in back["notices"])


@pytest.mark.slow
def test_twin_the_same_jax_has_nothing_to_tell(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "run")

    notices = told_by(sys.executable, "run", tmp_path / "run", "3")["notices"]

    assert [notice.partition(": ")[2] for notice in notices] == ["the total of steps changed from 20 to 30."]
