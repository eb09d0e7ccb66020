"""Attributes of an OrderedDict are not lost in silence: versions of modules are the target's, others are refused."""

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from perdure.errors import CaptureError


def with_attributes(items: dict[str, Any], **attributes: Any) -> OrderedDict[str, Any]:
    made = OrderedDict(items)
    vars(made).update(attributes)
    return made


@pytest.mark.parametrize(
    "attributes",
    [
        {"note": 1},
        {"_metadata": {"": {"version": 1, "batch_size": [3]}}},
        {"_metadata": {"": [1]}},
        {"_metadata": "1"},
        {"note": 1, "_metadata": {"": {"version": 1}}},
    ],
    ids=["own", "more than versions", "another form", "text", "own beside versions"],
)
def test_attributes_that_are_not_known_are_refused(trip, attributes: dict[str, Any]):
    saved = with_attributes({"a": np.ones(2)}, **attributes)
    named = "note" if "note" in attributes else "_metadata"

    with pytest.raises(
        CaptureError, match=rf"an OrderedDict with attributes of its own \({named}\), which would be lost\. Keep them"
    ):
        trip.restored(saved, OrderedDict(a=np.zeros(2)))


def test_versions_of_modules_are_those_of_the_target(trip):
    saved = with_attributes({"a": np.ones(2)}, _metadata={"": {"version": 1}, "norm": {"version": None}})
    target = with_attributes({"a": np.zeros(2)}, _metadata={"": {"version": 2}})
    back = trip.restored(saved, target)

    assert back["a"].tolist() == [1, 1]
    assert vars(back) == {"_metadata": {"": {"version": 2}}}
    assert vars(target) == vars(back)


def test_without_a_target_there_are_none(trip):
    back = trip.restored([with_attributes({"a": 1}, _metadata={"": {"version": 1}})], [])

    assert back == [OrderedDict(a=1)]
    assert vars(back[0]) == {}


def test_a_state_dict_of_pytorch_comes_back_with_its_versions(trip):
    """Without them, `load_state_dict` takes a module for one of an old version."""
    torch = pytest.importorskip("torch")
    before, after = (torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)) for _ in range(2))
    back = trip.restored(before.state_dict(), after.state_dict())

    assert back._metadata == before.state_dict()._metadata
    assert back._metadata["1"] == {"version": 2}
    after.load_state_dict(back)
    assert torch.equal(before[0].weight, after[0].weight)
