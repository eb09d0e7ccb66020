"""What all tests share: modules beside them that are no tests, loaded by path, and the process's generators."""

import importlib.util
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent


def pytest_configure() -> None:
    """Hears Ctrl-C, which shells tell their background jobs to ignore: tests are about what it does."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def load_beside(name: str) -> ModuleType:
    """The module `tests/<name>.py`, loaded once."""
    full_name = "perdure_tests_" + name.replace("/", "_")
    if full_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(full_name, HERE / f"{name}.py")
        assert spec is not None, name
        assert spec.loader is not None, name
        sys.modules[full_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full_name])
    return sys.modules[full_name]


@pytest.fixture(scope="session")
def numpy_loop() -> ModuleType:
    """The toy training loop, importable: `tests/resume/numpy_loop.py`."""
    return load_beside("resume/numpy_loop")


@pytest.fixture(scope="session")
def forgetting() -> ModuleType:
    """What resumes of that loop forget on purpose: `tests/resume/forgetting.py`."""
    return load_beside("resume/forgetting")


@pytest.fixture(scope="session")
def comparing() -> ModuleType:
    """The comparison of two runs: `tests/resume/comparing.py`."""
    return load_beside("resume/comparing")


@pytest.fixture(scope="session")
def nnx_ppo() -> ModuleType:
    """The tiny PPO training, importable: `tests/resume/nnx_ppo.py`. Needs JAX and gymnax."""
    return load_beside("resume/nnx_ppo")


@pytest.fixture(scope="session")
def nnx_gymnasium() -> ModuleType:
    """The same on Gymnasium's vector environments: `tests/resume/nnx_gymnasium.py`. Needs JAX and Gymnasium."""
    return load_beside("resume/nnx_gymnasium")


@pytest.fixture(scope="session")
def nnx_mujoco() -> ModuleType:
    """The same on brax and MuJoCo Playground: `tests/resume/nnx_mujoco.py`. Needs JAX, brax and Playground."""
    return load_beside("resume/nnx_mujoco")


@pytest.fixture(scope="session")
def torch_ppo() -> ModuleType:
    """Tiny PPO trainings with PyTorch, importable: `tests/resume/torch_ppo.py`. Needs PyTorch and Gymnasium."""
    return load_beside("resume/torch_ppo")


@pytest.fixture(scope="session")
def nnx_golden() -> ModuleType:
    """The training whose checkpoints are golden, importable: `tests/golden/nnx_golden.py`. Needs JAX."""
    return load_beside("golden/nnx_golden")


@pytest.fixture(autouse=True)
def unheard_signals() -> Iterator[None]:
    """A run that a test leaves open hears no signal of the tests after it."""
    yield
    signals: Any = sys.modules.get("perdure.runs.signals")
    if signals is not None and signals._watch is not None:
        signals._watch.listeners.clear()
        signals._watch.close()
        signals._watch = None


@pytest.fixture(autouse=True)
def untouched_torch() -> Iterator[None]:
    """Leaves PyTorch's global generator as an import makes it, for runs are compared with those of other processes."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_rng_state"):
        torch.set_rng_state(torch.Generator().get_state())


@pytest.fixture(autouse=True)
def unknown_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this process know no commit: what they write must not depend on what is committed here just now."""
    for module in ("opening", "surroundings"):
        monkeypatch.setattr(f"perdure.runs.{module}.code_at_launch", lambda _: None)


@pytest.fixture
def global_generators() -> Iterator[None]:
    """Leaves the process's generators, Python's and NumPy's, as they were."""
    before = random.getstate(), np.random.get_state()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])
