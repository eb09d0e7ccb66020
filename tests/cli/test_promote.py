"""`perdure promote`: a role is switched at once, keeps its whole history, and overwrites nothing."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import contents

import perdure
from perdure.errors import DamagedError, NoCheckpointError, UsageError
from perdure.format.digests import digest_of
from perdure.runs import promotion
from perdure.runs.roles import read_role

RETURNS = (1.0, 9.0, 3.0)


def make_run(path: Path, scale: float = 1.0, **options: Any) -> Path:
    """Checkpoints at 0, 10, 20 and 30; the best by `return` is at 20. `weights` are the step times `scale`."""
    options = {"keep": perdure.Keep(last=9, best=1, metric="return"), "policy": ["weights"], **options}
    with perdure.Run(path, every=perdure.Every(updates=1), **options) as run:
        run.restore(weights=np.zeros(2), rng=np.random.default_rng(1))
        for number, value in enumerate(RETURNS, start=1):
            weights = np.full(2, 10.0 * number * scale)
            run.boundary(env_steps=10 * number, weights=weights, metrics={"return": value})
    return path


@pytest.fixture
def ranked(tmp_path: Path) -> Path:
    return make_run(tmp_path / "runs" / "a")


@pytest.fixture
def roles(ranked: Path) -> Path:
    """Where roles stand by default."""
    return ranked.parent / "policies"


def weights_of(path: Path) -> float:
    return float(perdure.load_policy(path, weights=np.zeros(2))["weights"][0])


def test_the_best_one_takes_over_and_the_deployment_finds_it(perdure_cli, ranked: Path, roles: Path):
    result = perdure_cli("promote", ranked, "best", "--as", "production", "--note", "first")
    [entry] = read_role(roles / "production")
    name = f"step_0000000020-{json.loads((ranked / 'run.json').read_text())['run_id'][:8]}"

    assert (result.code, result.err) == (0, "")
    assert result.out == (
        f"production: {name} (step 20, return 9), nothing had it before\nit stands in {roles}/production/{name}\n"
    )
    assert perdure.policy_path(roles, "production") == roles / "production" / name
    assert weights_of(perdure.policy_path(roles, "production")) == weights_of(roles / "production") == 20.0
    assert entry.score == {"metric": "return", "mode": "max", "value": 9.0}


def test_provenance(perdure_cli, ranked: Path, roles: Path):
    perdure_cli("promote", ranked, "10", "--as", "production")
    perdure_cli("promote", ranked, "--as", "production", "--note", "later")
    first, second = read_role(roles / "production")
    record = json.loads((ranked / "run.json").read_text())
    manifest = json.loads((ranked / "checkpoints" / "step_0000000030" / "MANIFEST.json").read_text())
    policy = json.loads((roles / "production" / second.policy / "POLICY.json").read_text())

    assert (second.run, second.run_id, second.env_steps) == (str(ranked), record["run_id"], 30)
    assert (second.checkpoint, second.checkpoint_digest) == ("step_0000000030", manifest["digest"])
    assert second.digest == policy["digest"]
    assert second.contract == digest_of(
        json.dumps(policy["contract"], sort_keys=True, separators=(",", ":")).encode() + b"\n"
    )
    assert (second.note, second.supersedes, second.score) == ("later", first.policy, None)
    assert (first.note, first.supersedes) == (None, None)


def test_the_policy_of_before_stays_and_one_goes_back_to_it_without_another_copy(perdure_cli, ranked, roles: Path):
    perdure_cli("promote", ranked, "10", "--as", "production")
    before = contents(roles / "production" / read_role(roles / "production")[0].policy)
    perdure_cli("promote", ranked, "best", "--as", "production")
    perdure_cli("promote", ranked, "10", "--as", "production", "--note", "back")
    history = read_role(roles / "production")

    assert [entry.env_steps for entry in history] == [10, 20, 10]
    assert history[2].policy == history[0].policy
    assert history[2].supersedes == history[1].policy
    assert contents(roles / "production" / history[0].policy) == before
    assert len([path for path in (roles / "production").iterdir() if path.is_dir()]) == 2


def test_two_runs_share_a_role_and_no_path(perdure_cli, ranked: Path, roles: Path):
    other = make_run(ranked.parent / "b", 2.0)
    before = contents(ranked) | contents(other)
    perdure_cli("promote", ranked, "10", "--as", "production")
    perdure_cli("promote", other, "10", "--as", "production")
    first, second = read_role(roles / "production")

    assert first.policy != second.policy
    assert (weights_of(roles / "production" / first.policy), weights_of(roles / "production")) == (10.0, 20.0)
    assert contents(ranked) | contents(other) == before


def test_other_components_are_another_policy(perdure_cli, ranked: Path, roles: Path):
    perdure_cli("promote", ranked, "10", "--as", "production")
    perdure_cli("promote", ranked, "10", "--as", "production", "--components", "weights,rng")
    first, second = read_role(roles / "production")

    assert second.policy == f"{first.policy}.2"
    assert perdure.Policy(roles / "production").components == ("rng", "weights")


def test_another_folder_a_checkpoint_and_json(perdure_cli, ranked: Path, tmp_path: Path):
    words = (ranked / "checkpoints" / "step_0000000020", "--as", "canary", "--to", tmp_path / "deploy", "--json")
    document = json.loads(perdure_cli("promote", *words).out)

    assert document["path"] == str(tmp_path / "deploy" / "canary" / document["policy"])
    assert (document["role"], document["env_steps"], document["run"]) == ("canary", 20, str(ranked))
    assert not (ranked.parent / "policies").exists()


def test_a_checkpoint_without_a_run_needs_a_folder(perdure_cli, tmp_path: Path):
    perdure.save(tmp_path / "alone", weights=np.ones(2))
    refused = perdure_cli("promote", tmp_path / "alone", "--as", "canary", "--components", "weights")
    words = ("--components", "weights", "--to", tmp_path / "deploy")

    assert (refused.code, refused.out) == (2, "")
    assert "it is in no run; say where roles stand: --to FOLDER." in refused.err
    assert perdure_cli("promote", tmp_path / "alone", "--as", "canary", *words).code == 0
    assert weights_of(tmp_path / "deploy" / "canary") == 1.0


@pytest.mark.parametrize("role", ["", ".", "..", "a/b", "../up", ".hidden", "damaged", "step_0000000010", "two words"])
def test_names_that_are_no_folder_of_their_own(perdure_cli, ranked: Path, roles: Path, role: str):
    result = perdure_cli("promote", ranked, f"--as={role}")

    assert result.code == 2
    assert f"role {role!r}: a role's name is letters, digits" in result.err
    assert not roles.exists()


def test_a_run_is_no_folder_of_roles(perdure_cli, ranked: Path):
    inside = perdure_cli("promote", ranked, "--as", "production", "--to", ranked)
    over = perdure_cli("promote", ranked, "--as", ranked.name, "--to", ranked.parent)

    assert (inside.code, over.code) == (2, 2)
    assert f"{ranked}: a run stands there; choose another place with --to." in inside.err
    assert f"{ranked}: a run stands there; choose another place with --to." in over.err


@pytest.mark.parametrize("folder", ["checkpoints", "policies", "damaged"])
def test_nor_is_a_folder_of_a_run(perdure_cli, ranked: Path, folder: str):
    inside = perdure_cli("promote", ranked, "--as", "production", "--to", ranked / folder)

    assert inside.code == 2
    assert f"{ranked}: a run stands there; choose another place with --to." in inside.err
    assert not (ranked / folder / "production").exists()


def test_a_folder_that_is_a_file(perdure_cli, ranked: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    result = perdure_cli("promote", ranked, "--as", "production", "--to", tmp_path / "file")

    assert result.code == 2
    assert "a folder above it is a file; choose another place with --to." in result.err


def test_roles_that_are_not_there(perdure_cli, ranked: Path, roles: Path):
    perdure_cli("promote", ranked, "--as", "production")
    perdure_cli("promote", ranked, "--as", "canary")

    with pytest.raises(NoCheckpointError) as caught:
        perdure.policy_path(roles, "prod")
    assert str(caught.value) == f"{roles}/prod: no such role; there are: canary, production."
    with pytest.raises(NoCheckpointError, match="no such role; there are: none"):
        perdure.policy_path(ranked, "prod")
    with pytest.raises(UsageError, match=r"role '\.\./a': a role's name is"):
        perdure.policy_path(roles, "../a")


DAMAGE = [lambda data: data[:-30], lambda _: b"", lambda data: data.replace(b"20", b"21", 1)]


@pytest.mark.parametrize("cut", DAMAGE, ids=["cut", "empty", "edited"])
def test_a_damaged_pointer_is_named_and_nothing_is_promoted_over_it(
    perdure_cli, ranked: Path, roles: Path, cut: Callable[[bytes], bytes]
):
    perdure_cli("promote", ranked, "20", "--as", "production")
    file, [entry] = roles / "production" / "ROLE.json", read_role(roles / "production")
    file.write_bytes(cut(file.read_bytes()))
    before = contents(roles)

    with pytest.raises(DamagedError) as caught:
        perdure.policy_path(roles, "production")
    assert str(caught.value).startswith(f"{roles}/production: ROLE.json: ")
    assert "To promote again, move the file away first; a new history begins." in str(caught.value)
    assert perdure_cli("promote", ranked, "10", "--as", "production").code == 4
    assert perdure_cli("eval", roles / "production", "--env", "X").code == 4
    assert contents(roles) == before
    assert weights_of(roles / "production" / entry.policy) == 20.0

    file.rename(file.with_suffix(".damaged"))
    assert perdure_cli("promote", ranked, "10", "--as", "production").code == 0
    assert [entry.env_steps for entry in read_role(roles / "production")] == [10]


def test_a_pointer_that_was_copied_from_another_role(perdure_cli, ranked: Path, roles: Path):
    perdure_cli("promote", ranked, "--as", "production")
    (roles / "production").rename(roles / "canary")

    with pytest.raises(DamagedError, match=r"canary: ROLE\.json: written for the role 'production'\."):
        perdure.policy_path(roles, "canary")


def test_a_policy_that_is_gone_or_another_one(perdure_cli, ranked: Path, roles: Path):
    perdure_cli("promote", ranked, "10", "--as", "production")
    perdure_cli("promote", ranked, "20", "--as", "production")
    first, second = (roles / "production" / entry.policy for entry in read_role(roles / "production"))
    second.rename(roles / "away")

    with pytest.raises(NoCheckpointError, match=r"which is gone\. Put it back, or promote another one\."):
        perdure.policy_path(roles, "production")
    first.rename(second)
    with pytest.raises(DamagedError, match=r"another policy than the one that was promoted"):
        perdure.policy_path(roles, "production")


def test_a_damaged_policy_is_not_promoted_again(perdure_cli, ranked: Path, roles: Path, flip):
    perdure_cli("promote", ranked, "10", "--as", "production")
    [first] = read_role(roles / "production")
    flip(roles / "production" / first.policy / "weights.safetensors")
    perdure_cli("promote", ranked, "10", "--as", "production")

    assert read_role(roles / "production")[1].policy == f"{first.policy}.2"
    assert weights_of(roles / "production") == 10.0


def test_whoever_dies_before_the_switch_leaves_the_role_as_it_was(
    perdure_cli, ranked: Path, roles: Path, monkeypatch: pytest.MonkeyPatch
):
    perdure_cli("promote", ranked, "10", "--as", "production")

    def fail(path: Path, data: bytes) -> None:
        path.with_name(f".{path.name}.new").write_bytes(data[:40])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(promotion, "replace_durably", fail)
        failed = perdure_cli("promote", ranked, "20", "--as", "production")
    assert failed.code == 70
    assert "ROLE.json was not written: [Errno 28] No space left on device. The role is as it was." in failed.err
    assert weights_of(roles / "production") == 10.0

    perdure_cli("promote", ranked, "20", "--as", "production")
    assert [entry.env_steps for entry in read_role(roles / "production")] == [10, 20]
    assert not [path for path in (roles / "production").iterdir() if path.name.endswith((".2", ".new"))]


def test_half_written_policies_of_whoever_was_killed_go_with_the_next_promotion(perdure_cli, ranked, roles: Path):
    (roles / "production" / ".staging.00").mkdir(parents=True)
    (roles / "production" / ".staging.00" / "weights.safetensors").write_bytes(b"half")
    perdure_cli("promote", ranked, "--as", "production")

    assert not (roles / "production" / ".staging.00").exists()


def test_a_promotion_that_hangs_is_not_waited_for_for_ever(
    perdure_cli, ranked: Path, roles: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(promotion, "LONGEST_WAIT_S", 0.0)
    (roles / "production").mkdir(parents=True)
    with promotion._alone(roles / "production"):
        result = perdure_cli("promote", ranked, "--as", "production")

    assert result.code == 5
    assert "another promotion to this role has gone on for more than 0 s. Wait for it, or stop it." in result.err


PROMOTE = """\
import sys
from perdure.cli.main import main
for step in sys.argv[2:]:
    assert main(["promote", sys.argv[1], step, "--as", "production"]) == 0
"""


@pytest.mark.full
def test_two_processes_promote_to_one_role(ranked: Path, roles: Path):
    """Each promotion stands in the history once, in one chain, and whoever looks meanwhile finds a whole policy."""
    other = make_run(ranked.parent / "b", 2.0)
    steps = ["10", "20", "30", "0", "10", "20"]
    commands = [[sys.executable, "-c", PROMOTE, str(run), *steps] for run in (ranked, other)]
    seen, done = set(), threading.Event()

    def look() -> None:
        while not done.is_set():
            if (roles / "production" / "ROLE.json").exists():
                seen.add(weights_of(roles / "production"))

    watcher = threading.Thread(target=look)
    watcher.start()
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in commands]
    codes = [(process.communicate(), process.returncode)[1] for process in processes]
    done.set()
    watcher.join()
    history = read_role(roles / "production")

    assert codes == [0, 0]
    for run in (ranked, other):
        assert [entry.env_steps for entry in history if entry.run == str(run)] == [10, 20, 30, 0, 10, 20]
    assert [entry.supersedes for entry in history] == [None, *(entry.policy for entry in history[:-1])]
    assert seen <= {0.0, 10.0, 20.0, 30.0, 40.0, 60.0}
    assert seen


def test_show_tells_the_role_s_history(perdure_cli, ranked: Path, roles: Path):
    perdure_cli("promote", ranked, "10", "--as", "production")
    perdure_cli("promote", ranked, "best", "--as", "production", "--note", "better")
    first, second = read_role(roles / "production")
    shown = perdure_cli("show", roles / "production").out
    lines = [line.split() for line in shown.splitlines()]

    assert f"policy      {roles}/production/{second.policy}\n" in shown
    assert "role production: 2 promotions, the newest first\n" in shown
    assert [second.policy, "return", "9", str(ranked), "0", "s", "better"] in lines
    assert [first.policy, "–", str(ranked), "0", "s"] in lines
    document = json.loads(perdure_cli("show", roles / "production", "--json").out)
    assert [entry["env_steps"] for entry in document["role"]["history"]] == [10, 20]
    assert "intact: a policy" in perdure_cli("verify", roles / "production").out
