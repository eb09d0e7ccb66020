"""When files are synced, for tests on a simulated disk."""

import pytest
from tests.crash.simulated_store import MODES, Syncs


@pytest.fixture(params=MODES)
def syncs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both extremes of when files are synced."""
    kind = type("SyncsNow", (Syncs,), {"late": request.param == MODES[0]})
    monkeypatch.setattr("perdure.store.local.ThreadPoolExecutor", kind)
    return request.param
