"""The tool called in this process, and small NumPy runs for it to look at."""

import importlib.util
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
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
def amended_path(toy: ModuleType, run_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same run, gone on to 40 of 60 steps with another learning rate, which was accepted."""
    with monkeypatch.context() as environment:
        environment.setenv("PERDURE_ACCEPT", '["algorithm.learning_rate=0.1:0.2"]')
        toy.train(run_path, learning_rate=0.2, stop_after=4)
    return run_path


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


PPO_OPTIONS = {
    "--env": "CartPole-v1",
    "--total-steps": 96,
    "--seed": 3,
    "--n-envs": 4,
    "--rollout-length": 4,
    "--n-minibatches": 2,
    "--networks.actor-hidden-sizes": 4,
    "--networks.critic-hidden-sizes": 4,
    "--eval.every-steps": 48,
    "--eval.n-envs": 2,
    "--eval.max-episode-length": 8,
    "--checkpoint-every-steps": 16,
    "--keep-last": 0,
}


def ppo_words(**changed: object) -> list[str]:
    """The words after `perdure train ppo --run RUN`: a PPO as small as they come."""
    replaced = {f"--{name.replace('_', '-').replace('.-', '.')}": value for name, value in changed.items()}
    return [str(word) for pair in (PPO_OPTIONS | replaced).items() for word in pair]


@pytest.fixture(scope="session")
def options() -> Callable[..., list[str]]:
    """`options(learning_rate=3e-4)`: the tiny PPO's options with some changed."""
    return ppo_words


@contextmanager
def kept_generators() -> Iterator[None]:
    """`train` seeds the generators of this process; they come back."""
    before = random.getstate(), np.random.get_state()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])


@pytest.fixture
def process_generators() -> Iterator[None]:
    """For tests that train in this process."""
    with kept_generators():
        yield


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the tiny PPO; tests work on copies of it."""
    run = tmp_path_factory.mktemp("ppo") / "run"
    with kept_generators():
        assert main(["train", "ppo", "--run", str(run), *ppo_words()]) == 0
    return run


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    """A finished run, with checkpoints at 0, 16, … and 96 steps."""
    return Path(shutil.copytree(trained_once, tmp_path / "run"))


@pytest.fixture
def stopped(trained: Path) -> Path:
    """The same as if it had been killed after 64 of 96 steps."""
    for name in ("step_0000000080", "step_0000000096"):
        (trained / "checkpoints" / name).rename(trained.parent / name)
    return trained


def contents(path: Path) -> dict[Path, bytes]:
    """Every file but the lock, which whoever looks may take."""
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != ".writer.lock"}


@pytest.fixture(scope="session")
def state_of() -> Callable[[Path], dict[Path, bytes]]:
    """The contents of every file of a directory."""
    return contents
