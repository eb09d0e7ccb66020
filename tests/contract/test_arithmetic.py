"""What the numbers' last bits depend on: facts of this process, and what changed."""

import sys
from types import SimpleNamespace

import numpy as np

from perdure.contract.arithmetic import arithmetic, changes, told


def test_versions_and_machine_are_noted():
    facts = arithmetic()

    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["numpy"] == np.__version__
    assert {"machine", "system"} <= facts.keys()


def test_a_library_counts_once_it_is_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert "torch" not in arithmetic()

    fake = SimpleNamespace(__version__="9.9")
    monkeypatch.setitem(sys.modules, "torch", fake)
    assert arithmetic()["torch"] == "9.9"


def test_changes_are_told_in_words():
    saved = {"numpy": "1", "jax": "2", "same": "x", "XLA_FLAGS": "--a"}
    now = {"numpy": "2", "torch": "3", "same": "x", "XLA_FLAGS": ""}
    changed = changes(saved, now)
    assert changed == {"XLA_FLAGS": ("--a", "not set"), "numpy": ("1", "2")}
    assert told(changed) == [
        "arithmetic changed: XLA_FLAGS: --a then, not set now. The last bits of results may differ from here on.",
        "arithmetic changed: numpy: 1 then, 2 now. The last bits of results may differ from here on.",
    ]
    assert changes({"a": "1"}, {"a": "1"}) == {}
