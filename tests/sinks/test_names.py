"""Every name that the command line takes is a sink."""

from typing import Any, get_args

import pytest

from perdure.runs.sinks import check_sink
from perdure.sinks.names import Name, sink_named


@pytest.mark.parametrize("name", get_args(Name))
def test_every_name_is_a_sink(name: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("perdure.sinks.wandb.find_spec", lambda name: True)
    monkeypatch.setattr("perdure.sinks.tensorboard.find_spec", lambda name: True)

    sink = sink_named(name)

    check_sink(sink)
    assert type(sink).__name__.lower() == name
