"""The trainings of these tests, with one thread."""

from collections.abc import Iterator
from types import ModuleType

import pytest
from tests.conftest import load_beside


@pytest.fixture(scope="module")
def trainings() -> Iterator[ModuleType]:
    """`tests/sb3/trainings.py`."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_beside("sb3/trainings")
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def crossing(trainings: ModuleType) -> ModuleType:
    """`tests/sb3/crossing.py`."""
    return load_beside("sb3/crossing")
