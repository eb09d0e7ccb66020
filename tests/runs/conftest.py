"""The run that others are compared with."""

from pathlib import Path

import pytest
from tests.runs.toy_training import Training


@pytest.fixture
def straight(global_generators: None, tmp_path: Path) -> Path:
    """A run of eight updates that was never stopped."""
    Training(tmp_path / "straight").restore().go(8).run.finish()
    return tmp_path / "straight"
