"""The block of docs/environments.md runs, and its probe finds what the document shows."""

import pytest
from tests.docs.blocks import execute

pytest.importorskip("gymnasium")
pytest.importorskip("Box2D")

pytestmark = pytest.mark.full


def test_the_document_s_code_runs():
    executed = execute("docs/environments.md", str)

    assert executed.shown == executed.real
