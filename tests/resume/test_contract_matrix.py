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
from tests.resume.contract_cases import ADAM, GOES_ON, REFUSED
from tests.resume.contract_changes import Change, Refused, ppo
from tests.resume.contract_setup import (
    VARIABLE,
    Setup,
    base,
    digests_of_files,
    digests_of_process,
    disturb,
    make_files,
    train,
)

import perdure
from perdure.checkpoint.opening import read_manifest
from perdure.cli.exit_codes import code_of
from perdure.contract.arithmetic import JAX_SWITCHES
from perdure.runs import contract_terms
from perdure.runs.directory import RunDirectory, newest_first

pytestmark = pytest.mark.jax


@pytest.fixture
def clean_process():
    """Undoes what cases change in the process."""
    before, variable = {name: getattr(jax.config, name) for name in JAX_SWITCHES}, os.environ.get(VARIABLE)
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
    assert len(REFUSED) + len(GOES_ON) >= 90


@pytest.mark.usefixtures("clean_process")
@pytest.mark.parametrize("case", REFUSED)
def test_a_difference_is_refused_and_nothing_changes(case: str, begun: Path, tmp_path: Path):
    change, expected = REFUSED[case]
    setup = changed(begun, tmp_path, change)
    targets = setup.targets()
    disturb(targets)
    before = digests_of_files(tmp_path), digests_of_process(targets)

    with pytest.raises(perdure.ContractError) as caught:
        setup.run(tmp_path / "run").restore(**targets)

    assert (digests_of_files(tmp_path), digests_of_process(targets)) == before
    assert code_of(caught.value) == 3
    findings = list(caught.value.findings)
    for wanted in expected:
        finding = next((finding for finding in findings if is_meant(wanted, finding)), None)
        assert finding is not None, f"{wanted} is not among {findings}"
        findings.remove(finding)
        assert (finding.section, finding.acceptance is not None) == (wanted.section, wanted.is_acceptable)
        assert f"  {finding.key}: {finding.saved} in the run, {finding.found} here." in str(caught.value)
    assert [finding.key for finding in findings if not finding.key.startswith(ripples(expected))] == []


def is_meant(wanted: Refused, finding: perdure.Finding) -> bool:
    """The key, and what both sides hold."""
    return finding.key == wanted.key and is_shown(wanted.saved, finding.saved) and is_shown(wanted.found, finding.found)


def is_shown(wanted: str, text: str) -> bool:
    """Equal; one that ends in three dots is a beginning."""
    return text.startswith(wanted.removesuffix("…")) if wanted.endswith("…") else text == wanted


def ripples(expected: list[Refused]) -> tuple[str, ...]:
    """Where one structural difference of a network or an optimizer brings others, which differ by optax's version."""
    parts = ("net/", "optimizer/")
    is_wide = any(wanted.section == "structure" and wanted.key.startswith(parts) for wanted in expected)
    return parts if is_wide else ()


@pytest.mark.full
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
    setup = changed(begun, tmp_path, GOES_ON[case].change)
    run = setup.run(tmp_path / "run")

    train(run, setup.targets())

    assert (run.resumed, run.notices) == (True, list(GOES_ON[case].notices))
    store = RunDirectory(tmp_path / "run").store()
    manifest, _ = read_manifest(store, next(newest_first(store.names())))
    assert manifest.amended == ()


def test_a_resume_that_changed_something_would_be_seen(begun: Path, tmp_path: Path):
    """The twin of "nothing changes": each part of what is compared there tells a resume from a refusal."""
    setup = changed(begun, tmp_path, lambda setup: None)
    targets = setup.targets()
    disturb(targets)
    before = digests_of_files(tmp_path), digests_of_process(targets)

    run = setup.run(tmp_path / "run")
    run.restore(**targets)
    run.close()

    files, process = digests_of_files(tmp_path), digests_of_process(targets)
    assert {name for name in files if files[name] != before[0].get(name)} == {"run/lineage.jsonl"}
    assert {name for name in process if process[name] != before[1][name]} == {"net", "python", "numpy"}


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


SAVED_VALUE = "Pass the saved value, accept the change, or start a new run with the new value."
MESSAGES = {
    "observation": [
        "  interface.obs_shape.0: 4 in the run, 5 here. The policy would see, or do, something else. Build the spaces "
        "that the run has, or start a new run.",
    ],
    "version of dynamics": [
        "  env.gymnasium: '1.2.0' in the run, '1.2.1' here. From here on the policy would train in another "
        f"environment. {SAVED_VALUE}",
        "  To go on all the same: --accept env.gymnasium=1.2.0:1.2.1",
    ],
    "own section is gone": [
        f"  my_rules.opponents: 'frozen' in the run, nothing here. The run declared that this must not change. "
        f"{SAVED_VALUE}",
        "  To go on all the same: --accept my_rules.opponents=frozen:nothing",
    ],
    "text with a space": [
        f"  algorithm.ppo.name: 'a b' in the run, 'a  b' here. From here on another learner would train. {SAVED_VALUE}",
        """  To go on all the same: --accept 'algorithm.ppo.name='"'"'a b'"'"':'"'"'a  b'"'"''""",
    ],
    "a total below the present step": [
        "  horizon.total: 100 in the run, 10 here. The run has taken 20 steps already: pass a total of at least that.",
    ],
    "number of environments": [
        f"  algorithm.ppo.n_envs: 4 in the run, 8 here. From here on another learner would train. {SAVED_VALUE}",
        "  env_states: float64 4×3 in the run, float64 8×3 here. Build it with the run's sizes.",
        "  One of them cannot be accepted; the others could be, by: --accept algorithm.ppo.n_envs=4:8",
    ],
    "which numbers a key stands for": [
        "  numerics.jax_threefry_partitionable: True in the run, False here. Other numbers would be drawn, or rounded "
        "in another way. Set it as the run had it, or accept the change.",
        "  To go on all the same: --accept numerics.jax_threefry_partitionable=True:False",
    ],
}


@pytest.mark.usefixtures("clean_process")
@pytest.mark.parametrize("case", MESSAGES)
def test_messages_say_what_where_and_the_way_out(case: str, begun: Path, tmp_path: Path):
    refusal = attempt(changed(begun, tmp_path, REFUSED[case][0]))

    number = sum(" here. " in line for line in MESSAGES[case])
    differences = "1 difference" if number == 1 else f"{number} differences"
    assert str(refusal).splitlines() == [
        f"{tmp_path / 'run'}, step_0000000020: this is not the same run: {differences}; nothing was changed.",
        *MESSAGES[case],
    ]
