"""One thing changed at a time over every section of the contract: verdict, message, acceptance, exit code.

Refused: nothing of the run and of the process changed. Acceptable: exactly the text of the refusal lets it pass.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import optax
import pytest
from flax import nnx
from tests.resume.contract_cases import ADAM, GOES_ON, REFUSED, Change, ppo
from tests.resume.contract_setup import (
    VARIABLE,
    Setup,
    base,
    digests_of_files,
    digests_of_process,
    make_files,
    train,
)

import perdure
from perdure.checkpoint.opening import read_manifest
from perdure.cli.exit_codes import code_of
from perdure.runs import contract_terms
from perdure.runs.directory import RunDirectory, newest_first

pytestmark = pytest.mark.jax


@pytest.fixture
def clean_process():
    """Undoes what cases change in the process."""
    names = ("jax_threefry_partitionable", "jax_numpy_dtype_promotion")
    before, variable = {name: getattr(jax.config, name) for name in names}, os.environ.get(VARIABLE)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    os.environ.pop(VARIABLE, None)
    if variable is not None:
        os.environ[VARIABLE] = variable


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory):
    """A run that stands at 20 of 100 steps, and the files that it declares."""
    folder = tmp_path_factory.mktemp("begun")
    make_files(folder)
    setup = base(folder)
    train(setup.run(folder / "run"), setup.targets())
    yield folder
    os.environ.pop(VARIABLE)


def changed(begun: Path, folder: Path, change: Change) -> Setup:
    """A copy of the begun run and its files, and the training changed in one place."""
    shutil.copytree(begun, folder, dirs_exist_ok=True)
    setup = base(folder)
    new = change(setup)
    return new if isinstance(new, Setup) else setup


def attempt(setup: Setup, **options: Any) -> perdure.ContractError | None:
    """Resumes for a boundary; the refusal, if there is one."""
    try:
        train(setup.run(setup.folder / "run", **options), setup.targets())
    except perdure.ContractError as refusal:
        return refusal
    return None


def test_the_matrix_is_large_enough():
    assert len(REFUSED) + len(GOES_ON) >= 55


@pytest.mark.usefixtures("clean_process")
@pytest.mark.parametrize("case", REFUSED)
def test_a_difference_is_refused_and_nothing_changes(case: str, begun: Path, tmp_path: Path):
    change, expected = REFUSED[case]
    setup = changed(begun, tmp_path, change)
    targets = setup.targets()
    before = digests_of_files(tmp_path), digests_of_process(targets)

    with pytest.raises(perdure.ContractError) as caught:
        setup.run(tmp_path / "run").restore(**targets)

    refusal = caught.value
    assert code_of(refusal) == 3
    assert (digests_of_files(tmp_path), digests_of_process(targets)) == before
    for wanted in expected:
        keys = [finding.key for finding in refusal.findings]
        named = [key for key in keys if key.startswith(wanted.key)]
        assert named, f"{wanted.key} is not among {keys}"
        finding = refusal.findings[keys.index(wanted.key if wanted.key in named else named[0])]
        assert (finding.section, finding.acceptance is not None) == (wanted.section, wanted.is_acceptable)
        assert finding.saved.startswith(wanted.saved)
        assert finding.found.startswith(wanted.found)
        assert f"  {finding.key}: {finding.saved} in the run, {finding.found} here." in str(refusal)
    unexpected = [finding.key for finding in refusal.findings if finding.section in ("seed", "interface", "numerics")]
    assert len(unexpected) == len(
        [wanted for wanted in expected if wanted.section in ("seed", "interface", "numerics")]
    )


@pytest.mark.usefixtures("clean_process")
@pytest.mark.parametrize("case", REFUSED)
def test_what_the_refusal_offers_lets_it_pass_and_nothing_else_does(case: str, begun: Path, tmp_path: Path):
    change, _ = REFUSED[case]
    setup = changed(begun, tmp_path, change)
    refusal = attempt(setup)
    assert refusal is not None
    offered = [finding.acceptance for finding in refusal.findings if finding.acceptance and not finding.follows]
    final = [finding.key for finding in refusal.findings if finding.acceptance is None]

    again = attempt(setup, accept=offered)

    if final:
        assert again is not None
        assert [finding.key for finding in again.findings] == final
        forced = attempt(setup, accept=[*offered, f"{final[0]}=1:2"])
        assert forced is not None
        assert f"--accept {final[0]}=1:2" in [finding.key for finding in forced.findings]
    else:
        assert again is None
        store = RunDirectory(tmp_path / "run").store()
        manifest, _ = read_manifest(store, next(newest_first(store.names())))
        assert set(offered) <= set(manifest.amended)
        assert attempt(setup) is None  # the next one needs no acceptance: the contract is the new one
        assert attempt(setup, accept=offered) is None  # and to say it again is no error
        assert attempt(base(begun_files(begun, tmp_path))) is not None  # but the old way is another run now


def begun_files(begun: Path, folder: Path) -> Path:
    """Declared files as they were."""
    for name in ("pool", "levels.json", "other", "elsewhere.json"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.copytree(begun / "pool", folder / "pool")
    shutil.copy(begun / "levels.json", folder)
    os.environ[VARIABLE] = "-Xmx1g"
    jax.config.update("jax_threefry_partitionable", True)
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    return folder


@pytest.mark.usefixtures("clean_process")
@pytest.mark.parametrize("case", GOES_ON)
def test_what_is_no_difference_goes_on(case: str, begun: Path, tmp_path: Path):
    setup = changed(begun, tmp_path, GOES_ON[case])

    assert attempt(setup) is None
    store = RunDirectory(tmp_path / "run").store()
    manifest, _ = read_manifest(store, next(newest_first(store.names())))
    assert manifest.amended == ()


@pytest.mark.usefixtures("clean_process")
def test_all_differences_come_in_one_message(begun: Path, tmp_path: Path):
    setup = changed(begun, tmp_path, ppo(learning_rate=1e-4, clip=2))
    setup.config["seed"] = 2
    setup.contract["reward"]["weight"] = 1.0
    setup = replace(setup, tx=lambda: optax.adam(1e-4), rate=0.3, components={"table": None})

    refusal = attempt(setup)

    saved_value = "Pass the saved value, accept the change, or start a new run with the new value."
    assert str(refusal).splitlines() == [
        f"{tmp_path / 'run'}, step_0000000020: this is not the same run: 7 differences; nothing was changed.",
        "  algorithm.ppo.clip: 1 in the run, 2 here.",
        "  algorithm.ppo.learning_rate: 0.0003 in the run, 0.0001 here.",
        "  net/dropout/rate: 0.1 in the run, 0.3 here.",
        f"    From here on another learner would train. {saved_value}",
        "  reward.weight: 0.5 in the run, 1.0 here. "
        f"Returns from before and after could not be compared. {saved_value}",
        "  seed.seed: 1 in the run, 2 here. A resume goes on with the run's own random numbers, whatever the seed. "
        "Pass the saved seed, or start a new run.",
        f"  {ADAM}/step_size: -0.0003 in the run, -0.0001 here. It follows from algorithm.ppo.learning_rate.",
        "  table: a component in the run, nothing here. Hand table=… to restore.",
        "  2 of them cannot be accepted; the others could be, by: --accept algorithm.ppo.clip=1:2 --accept "
        "algorithm.ppo.learning_rate=0.0003:0.0001 --accept net/dropout/rate=0.1:0.3 --accept reward.weight=0.5:1.0",
    ]


@pytest.mark.usefixtures("clean_process")
@pytest.mark.parametrize("name", ["numpy", "threads", "XLA_FLAGS"])
def test_a_change_of_arithmetic_is_told_and_goes_on_unless_it_must_not(
    name: str, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    setup = changed(begun, tmp_path, lambda setup: None)
    now = {**contract_terms.arithmetic(), name: "another"}
    monkeypatch.setattr(contract_terms, "arithmetic", lambda: now)

    strict = attempt(setup, numerics="strict")
    run = setup.run(tmp_path / "run")
    run.restore(**setup.targets())
    run.close()

    assert strict is not None
    assert [(finding.key, finding.found) for finding in strict.findings] == [(f"numerics.{name}", "'another'")]
    assert [notice.split(": ")[1] for notice in run.notices] == [name]
    assert attempt(setup, numerics="strict", accept=[str(strict.findings[0].acceptance)]) is None


def test_a_schedule_that_cannot_be_read_is_told_by_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two lambdas of one name: only what they compute tells them apart, and only under one version of JAX."""
    schedules = [lambda count: 0.1 / (count + 1), lambda count: 0.1 / (count + 2)]
    targets: list[dict[str, Any]] = [
        {"optimizer": nnx.Optimizer(nnx.Linear(1, 1, rngs=nnx.Rngs(0)), optax.sgd(schedule), wrt=nnx.Param)}
        for schedule in (schedules[0], *schedules)
    ]
    train(perdure.Run(tmp_path / "run"), targets[0])

    run = perdure.Run(tmp_path / "run")
    run.restore(**targets[1])
    run.close()
    with pytest.raises(perdure.ContractError) as caught:
        perdure.Run(tmp_path / "run").restore(**targets[2])

    assert [finding.key for finding in caught.value.findings] == ["optimizer/tx/traced"]
    from perdure.adapters import jax_optimizers

    monkeypatch.setattr(jax_optimizers.jax, "__version__", "0.99")
    jax_optimizers.trace.cache_clear()
    run = perdure.Run(tmp_path / "run")
    run.restore(**targets[2])  # another version's digest says nothing
    run.close()
    jax_optimizers.trace.cache_clear()
