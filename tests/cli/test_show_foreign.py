"""`perdure show` names what other libraries' files hold, whatever they are called; `convert` says what it would do."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import perdure


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A safetensors file under a misleading name."""
    arrays = {f"layer.{number}.weight": np.zeros((2, number + 1), np.float16) for number in range(45)}
    safetensors.numpy.save_file(arrays, tmp_path / "weights.pt", {"trained": "by\u202e hand"})
    return tmp_path / "weights.pt"


def test_a_file_is_told_by_its_content(perdure_cli, weights: Path):
    result = perdure_cli("show", weights)
    lines = result.out.splitlines()

    assert (result.code, result.err) == (0, "")
    assert lines[:4] == [
        f"file     {weights}",
        "kind     safetensors",
        "arrays   4.0 KiB in 45 leaves",
        "trained  'by\\u202e hand'",
    ]
    assert lines[5] == "  layer.0.weight   float16 2×1"
    assert lines[-1] == "  … and 5 more: --leaves lists all"
    assert len(perdure_cli("show", weights, "--leaves").out.splitlines()) == 5 + 45


def test_all_of_it_as_json(perdure_cli, weights: Path):
    document = json.loads(perdure_cli("show", weights, "--json").out)

    assert (document["kind"], len(document["leaves"]), document["notes"]) == ("safetensors", 45, [])
    assert document["leaves"][1] == {"name": "layer.1.weight", "what": "float16 2×2", "size_bytes": 8}


def test_a_damaged_file_is_no_empty_one(perdure_cli, weights: Path):
    weights.write_bytes(weights.read_bytes()[:-1])
    result = perdure_cli("show", weights)

    assert (result.code, result.out) == (4, "")
    assert f"{weights}: its tensors end at byte 4,140 of the data, the file at byte 4,139." in result.err


def test_what_is_of_no_kind_is_told(perdure_cli, tmp_path: Path):
    (tmp_path / "x").write_bytes(b"hello")
    result = perdure_cli("show", tmp_path / "x")

    assert (result.code, result.out) == (4, "")
    assert f"{tmp_path}/x: of no kind that is known here: a checkpoint of perdure, " in result.err


def test_a_dry_run_shows_old_and_new_names(perdure_cli, tmp_path: Path):
    perdure.save(tmp_path / "saved", actor={"w": np.zeros(3, np.float32), "b": np.zeros(1, np.float32)})
    words = ["convert", tmp_path / "saved", tmp_path / "out.safetensors", "--map", r"^actor\.w$=actor.weight"]
    result = perdure_cli(*words, "--dry-run")

    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[:3] == [
        f"would convert {tmp_path}/saved (a checkpoint of perdure) to {tmp_path}/out.safetensors (a safetensors file): "
        "2 leaves",
        "  actor.w  ->  actor.weight  float32 3",
        "  actor.b  =   actor.b       float32 1",
    ]
    assert not (tmp_path / "out.safetensors").exists()
    document = json.loads(perdure_cli(*words, "--json").out)
    assert (document["written"], document["origins"]) == (True, ["actor.w", "actor.b"])
    assert (tmp_path / "out.safetensors").exists()


def test_a_name_that_promises_another_kind(perdure_cli, tmp_path: Path):
    perdure.save(tmp_path / "saved", actor={"w": np.zeros(3, np.float32)})
    for end in (".zip", ".npz", ".cleanrl_model"):
        refused = perdure_cli("convert", tmp_path / "saved", tmp_path / f"new{end}")
        assert (refused.code, refused.out) == (2, "")
        assert f"new{end}: {end} is no kind that is written. Say which is meant with --to: perdure, " in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    assert perdure_cli("convert", tmp_path / "saved", tmp_path / "new.zip", "--to", "perdure").code == 0
    assert perdure_cli("convert", tmp_path / "saved", tmp_path / "new-0.5").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "npz"], "--to npz: is no kind; choose from perdure, "),
        (["--to", "nnx-ppo"], "--to nnx-ppo: is read, but not written; choose from perdure, "),
        (["--map", "actor"], "--map actor: write PATTERN=REPLACEMENT, for instance"),
        (["--map", "(=x"], "--map (=x: missing ), unterminated subpattern"),
        (["--map", r"a=\7"], r"--map a=\7: invalid group reference 7"),
        (["--map", "critic=x"], "--map: critic fits none of the 2 names: actor.w, actor.b"),
        (["--map", "^actor="], "--map: actor.w would be called .w. A rule replaces what its pattern fits"),
        (["--map", r"actor\.[wb]=one"], "--map: actor.b and actor.w would both be called one."),
        (["--component", "critic"], "--component critic: there is none; there are actor."),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_written(perdure_cli, tmp_path: Path, words: list[str], message: str):
    perdure.save(tmp_path / "saved", actor={"w": np.zeros(3, np.float32), "b": np.zeros(1, np.float32)})
    result = perdure_cli("convert", tmp_path / "saved", tmp_path / "new", *words)

    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_run_stands_for_its_newest_checkpoint(perdure_cli, tmp_path: Path):
    run = perdure.Run(tmp_path / "run", every=perdure.Every(updates=1), policy=["net"])
    state = {"w": np.zeros(2, np.float32)}
    run.restore(net=state)
    for step in (1, 2):
        state["w"] = np.full(2, step, np.float32)
        run.boundary(env_steps=step, net=state)
    run.export_policy(tmp_path / "policy", net=state)
    run.finish()
    wanted = {"run": 2, "run@1": 1, "policy": 2}
    for number, (name, step) in enumerate(wanted.items()):
        target = tmp_path / f"{number}.safetensors"
        result = perdure_cli("convert", tmp_path / name, target, "--component", "net")

        assert (result.code, result.err) == (0, "")
        assert safetensors.numpy.load_file(target)["w"].tolist() == [step, step]
        assert "net: captured by" not in result.out  # a dict comes back as the dict that it was
    missing = perdure_cli("convert", tmp_path / "run@7", tmp_path / "x.safetensors")
    assert (missing.code, missing.out) == (4, "")


def test_an_agent_s_file_is_named(perdure_cli):
    result = perdure_cli("show", Path(__file__).parent.parent / "data/storage_ckpt/v3_multi_unprefixed_sac.ckpt")

    assert (result.code, result.err) == (0, "")
    assert "storage-ckpt v3\n" in result.out
    assert "  looks like SAC: actor, critic, critic\n" in result.out


def test_nothing_in_a_file_is_an_order_to_the_terminal(perdure_cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    array = {"w\x1b[31m\nred": np.zeros(1, np.float32)}
    safetensors.numpy.save_file(array, "a\x1b[1m.st", {"k\x1b[31m\nkey": "v\x1b]0;title\x07"})
    Path("none\x1b[1m.st").write_bytes(b"nothing")
    spoken = [
        perdure_cli("show", "a\x1b[1m.st"),
        perdure_cli("convert", "a\x1b[1m.st", "a.pt", "--dry-run"),
        perdure_cli("convert", "a\x1b[1m.st", "a.ckpt"),
        perdure_cli("show", "none\x1b[1m.st"),
    ]

    assert [result.code for result in spoken] == [0, 0, 2, 4]
    assert "k?[31m?key  'v\\x1b]0;title\\x07'" in spoken[0].out
    assert "w?[31m?red" in spoken[0].out
    assert "metadata: k?[31m?key: not kept" in spoken[1].out
    assert not any(letter in result.out + result.err for result in spoken for letter in "\x1b\x07")


def test_what_is_no_directory_is_not_called_missing(perdure_cli, weights: Path):
    result = perdure_cli("verify", weights)

    assert (result.code, result.out) == (4, "")
    assert "a file, and neither a run nor a checkpoint of perdure; `perdure show` says what it is." in result.err
