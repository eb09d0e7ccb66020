"""`perdure prove` in all its ways on an exact script, and what it says where there is nothing to prove."""

import sys
from pathlib import Path

import pytest

from perdure.cli.main import main

pytestmark = pytest.mark.full

SOUND = "cached_rate"
"""Exact with --mended; see faults/."""

HEAD = "import sys, time, numpy as np, perdure\n"
LOOP = """
def train(name, horizon=100, pause=0.0):
    with perdure.Run(name, horizon=horizon) as run:
        weights = run.restore(weights=np.ones(3)).weights
        while not run.is_finished:
            time.sleep(pause)
            weights = weights * 1.1
            run.boundary(env_steps=run.env_steps + 1, weights=weights, metrics={"first": float(weights[0])})
        run.finish()
"""


@pytest.fixture
def prove_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Proves a script that is given as text."""

    def call(text: str, *options: object) -> tuple[int, str, str]:
        (tmp_path / "script.py").write_text(HEAD + LOOP + text)
        capsys.readouterr()
        words = ["--keep", str(tmp_path / "kept"), *map(str, options)]
        code = main(["prove", *words, "--", sys.executable, str(tmp_path / "script.py")])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_every_boundary(prove):
    code, document = prove("--every", "--until", 4, script=SOUND, mended=True)

    assert (code, document["interrupted_after"], document["processes"]) == (0, [1, 2, 3], 6)


def test_random_boundaries_by_their_seed(prove):
    code, document = prove("--random", 2, "--seed", 3, "--until", 6, script=SOUND, mended=True)

    assert (code, document["interrupted_after"], document["killed"]) == (0, [2, 5], False)


def test_killed_processes(prove, tmp_path: Path):
    code, document = prove("--random", 2, "--kill", "--until", 30, script=SOUND, mended=True)

    assert (code, document["exact"], document["killed"]) == (0, True, True)
    [run] = (tmp_path / "kept" / "interrupted").iterdir()
    assert b'"event":"resumed"' in (run / "lineage.jsonl").read_bytes()


def test_a_fault_of_killed_processes_is_named(prove):
    code, document = prove("--at", 4, "--kill", "--until", 30, script=SOUND)

    assert (code, document["exact"], document["difference"]["chain"]["components"]) == (1, False, ["weights"])
    assert document["leaves"][0]["path"] == "weights"


def test_mutations_show_each_component(prove):
    code, document = prove("--mutate", "--until", 6, script=SOUND, mended=True)

    assert code == 0
    seen = {mutation["component"]: mutation["seen_at"] for mutation in document["mutations"]}
    assert seen == {"rate": 4, "rng": 4, "weights": 4}
    felt = {mutation["component"]: mutation["felt_at"] for mutation in document["mutations"]}
    assert felt == {"rate": 4, "rng": 4, "weights": None}


def test_a_script_that_ends_before_is_compared_to_its_end(prove_text):
    code, out, _ = prove_text("train('x', horizon=4)")

    assert code == 0
    assert "exact: stopped after boundary 2, and compared up to boundary 4, where the script ends\n" in out
    assert "equal        5 boundaries, 2 leaves of the last checkpoint, 4 rows of metrics\n" in out
    assert "left out     process_rng/numpy, process_rng/python: not seeded, and never drawn from\n" in out


def test_all_runs_of_a_script_are_compared(prove_text):
    code, out, _ = prove_text("train('x', horizon=4)\ntrain('other/x', horizon=6)", "--every")

    assert code == 0
    assert "equal        12 boundaries, 4 leaves of the last checkpoint, 10 rows of metrics\n" in out


def test_a_metric_that_is_no_state(prove_text):
    body = LOOP.replace("weights = weights * 1.1", "seen += 1").replace("float(weights[0])", "seen")
    code, out, _ = prove_text(
        "seen = 0\n"
        + body.replace("def train", "def other").replace("    with", "    global seen\n    with")
        + "other('x')"
    )

    assert code == 1
    assert "parts        first differs at boundary 5: the metric rows; 3 boundaries after it differ, too\n" in out
    assert "The state is equal and a metric is not" in out


def test_a_resume_that_fails(prove_text):
    text = (
        "import os\nif any(p.is_dir() for p in __import__('pathlib').Path(os.environ['PERDURE_SCRATCH']).iterdir()):\n"
    )
    code, out, _ = prove_text(text + "    raise RuntimeError('no second start')\ntrain('x')")

    assert code == 1
    assert "not exact: stopped after boundary 4, the script failed when it was resumed\n" in out
    assert "  | RuntimeError: no second start\n" in out
    assert "kept in " in out


@pytest.mark.parametrize(
    ("text", "options", "code", "message"),
    [
        ("raise RuntimeError('by itself')", (), 70, "the script failed by itself, with code 1:\n  | Traceback"),
        ("pass", (), 4, "opened no perdure.Run, so there is nothing to prove"),
        ("train('x', horizon=1)", (), 2, "the script ends at boundary 1: there is nothing to interrupt before it."),
        ("train('x', horizon=3)", ("--at", 5), 2, "--at 5: the script ends at boundary 3 by itself"),
        ("train('x', pause=9.0)", ("--timeout", "2"), 70, "took longer than 2 s and came to no boundary. Give it more"),
        ("time.sleep(9)", ("--timeout", "2"), 70, "took longer than 2 s and came to no perdure.Run."),
    ],
)
def test_what_cannot_be_proven(prove_text, text: str, options, code: int, message: str):
    ended, out, err = prove_text(text, *options)

    assert (ended, out) == (code, "")
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "prove: no command; write it after `--`"),
        (["--"], "prove: no command; write it after `--`"),
        (["--", "no-such-program"], "no-such-program: cannot be executed (No such file or directory). Write"),
        (["--at", "2", "--every", "--", "x"], "--at, --every and --random say different things; give one of them."),
        (["--at", "8", "--", "x"], "--at 8: from 1 to 7, before the last boundary (--until)."),
        (["--until", "1", "--", "x"], "--until 1: from 2"),
        (["--random", "0", "--", "x"], "--random 0: from 1."),
    ],
)
def test_what_is_no_command(capsys: pytest.CaptureFixture[str], words: list[str], message: str):
    assert main(["prove", *words]) == 2
    assert message in capsys.readouterr().err


def test_what_is_there_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").touch()

    assert main(["prove", "--keep", str(tmp_path), "--", "x"]) == 2
    assert "something is there; give a new folder." in capsys.readouterr().err
