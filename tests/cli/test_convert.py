"""`perdure convert` says what it carried and what it lost, and ends with the right code where it cannot."""

import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.jax

SOURCE = Path(__file__).parent.parent / "data" / "nnx_ppo" / "mlp" / "step_0000000480"


def test_a_checkpoint_is_converted_and_shown(perdure_cli, tmp_path: Path):
    result = perdure_cli("convert", SOURCE, tmp_path / "new")
    lines = result.out.splitlines()

    assert (result.code, result.err) == (0, "")
    assert (
        lines[0]
        == f"converted {SOURCE} (a checkpoint of nnx-ppo) to {tmp_path}/new (a checkpoint of perdure): 93 leaves"
    )
    assert lines[1] == "carried in another form, or not at all:"
    assert "  env_states: mujoco_playground._src.mjx_env.State became a mapping of its fields." in lines
    assert len(lines) == 13
    shown = perdure_cli("show", tmp_path / "new", "--leaves")
    assert (shown.code, shown.err) == (0, "")
    assert "  networks        dict         17   9.7 KiB  exact-snapshot" in shown.out
    assert (
        "  networks/layers/1/action/layers/3/rng/default/key                  threefry2x32 key, uint32 2" in shown.out
    )
    assert perdure_cli("verify", tmp_path / "new").code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["src"], 2, "the following arguments are required: DST"),
        (
            ["src", "there"],
            2,
            "there: there is something already; name a place where nothing stands.",
        ),
        (["nowhere", "new"], 4, "nowhere: there is nothing. Check the spelling."),
        (["there", "new"], 4, "there: of no kind that is known here: a checkpoint of perdure, "),
        (["cut", "new"], 4, "cut/metadata.pkl: byte "),
    ],
)
def test_what_cannot_be_converted(
    perdure_cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SOURCE, "src")
    shutil.copytree(SOURCE, "cut")
    Path("there").mkdir()
    Path("cut", "metadata.pkl").write_bytes((SOURCE / "metadata.pkl").read_bytes()[:1000])
    result = perdure_cli("convert", *words)

    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert "Traceback" not in result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "src", "there"]


@pytest.mark.parametrize("name", ["loop", "x" * 300])
def test_a_path_that_cannot_be_is_a_mistake_in_the_command(perdure_cli, tmp_path: Path, name: str):
    (tmp_path / "loop").symlink_to("loop")
    for words in (["show", tmp_path / name], ["convert", tmp_path / name, tmp_path / "new"]):
        result = perdure_cli(*words)

        assert (result.code, result.out) == (2, "")
        assert name in result.err
        assert "Traceback" not in result.err
