"""The demo: trains, kills, resumes and finds no difference, end to end."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

DEMO = Path(__file__).parent.parent / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """`examples/demo.py`, importable."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("perdure_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.full
@pytest.mark.jax
def test_the_demo_end_to_end(tmp_path: Path):
    command = [sys.executable, str(DEMO), str(tmp_path / "demo")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("  kill -9 at ") >= 3  # more if it was once too late and began again
    assert result.stdout.count("$ perdure resume killed") >= 3
    assert "state    bit-identical: " in result.stdout
    assert "metrics  identical: 150 rows" in result.stdout
    assert "Not one bit differs." in result.stdout
    assert "\x1b" not in result.stdout + result.stderr


def test_a_directory_of_an_earlier_demo_is_refused(demo: ModuleType, tmp_path: Path, capsys):
    (tmp_path / "killed").mkdir()

    with pytest.raises(SystemExit) as exit_info:
        demo.main([str(tmp_path)])
    assert exit_info.value.code == 2
    assert "holds runs of an earlier demo" in capsys.readouterr().err


def test_a_run_that_finished_before_its_kill_is_noticed(demo: ModuleType, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(demo.Tool, "start", lambda *_: subprocess.Popen([sys.executable, "-c", ""], env=os.environ))

    with pytest.raises(demo.TooLateError):
        demo.Tool(tmp_path).run_and_kill(tmp_path / "run", demo.Kill(10, 0.0), "train")


def test_the_plot_shows_where_curves_part_and_kills_fall(demo: ModuleType):
    total = demo.TOTAL_STEPS
    picture = demo.plot({0: 500.0, total // 2: 250.0}, {0: 500.0, total // 2: 0.0}, [total // 4]).splitlines()

    assert picture[0] == "  500 |*"
    assert picture[5] == f"  250 |{' ' * 30}s"
    assert picture[10] == f"    0 |{' ' * 30}k"
    assert picture[11] == f"      +{'-' * 15}X{'-' * 44}"


def test_a_long_command_is_wrapped_where_it_can_be_typed(demo: ModuleType):
    text = demo.wrap(["perdure", *[word for n in range(12) for word in (f"--option-{n}", "va lue")]])

    assert all(len(line) <= 100 for line in text.splitlines())
    assert text.replace(" \\\n    ", " ").count("--option") == 12
    assert "'va lue'" in text
