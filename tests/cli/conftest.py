"""The tool called in this process, and small NumPy runs for it to look at."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from perdure.cli.main import main

SCRIPT = Path(__file__).with_name("toy_script.py")


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


Call = Callable[..., Result]


@pytest.fixture
def perdure_cli(capsys: pytest.CaptureFixture[str]) -> Call:
    """`perdure …` in this process."""

    def call(*words: object) -> Result:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def toy() -> ModuleType:
    """`toy_script.py`, importable."""
    spec = importlib.util.spec_from_file_location("perdure_cli_toy_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_path(toy: ModuleType, tmp_path: Path) -> Path:
    """A run that was stopped after 3 of 6 updates; checkpoints at 0, 10, 20 and 30 steps."""
    toy.train(tmp_path / "run", stop_after=3)
    return tmp_path / "run"


@pytest.fixture
def step(run_path: Path) -> Callable[[int], Path]:
    """A checkpoint of `run_path` by its steps."""
    return lambda env_steps: run_path / "checkpoints" / f"step_{env_steps:010d}"


@pytest.fixture
def flip() -> Callable[[Path], None]:
    """Changes one bit in the middle of a file."""

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    return change


@pytest.fixture
def locked(run_path: Path) -> Iterator[int]:
    """Another process holds the writer lock of `run_path`; its pid."""
    program = (
        "import sys; from pathlib import Path; from perdure.runs.lock import acquire\n"
        "lock = acquire(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(run_path / ".writer.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
        holder.communicate()
