"""An acceptance changes what it names and nothing else: a key with a slash is no path, a part that is gone no value."""

from pathlib import Path
from typing import Any

import pytest
from flax import nnx

import perdure

pytestmark = pytest.mark.jax

EVERY = perdure.Every(updates=1)
ADVICE = "Build it with the same parts as the run did."


class Net(nnx.Module):
    def __init__(self, attribute: Any) -> None:
        self.layer = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
        self.attribute = attribute


def refusal(path: Path, components: dict[str, Any], **options: Any) -> perdure.ContractError:
    with pytest.raises(perdure.ContractError) as caught:
        perdure.Run(path, **options).restore(**components)
    return caught.value


def test_a_key_with_a_slash_is_no_path_of_a_leaf(tmp_path: Path):
    with perdure.Run(tmp_path, config={"w/a": 1.0}, every=EVERY) as run:
        run.restore(w={"a": 0.5})
        run.boundary(env_steps=10, w={"a": 7.0})

    said = refusal(tmp_path, {"w": {"a": 0.5}}, config={"w/a": 2.0})
    with perdure.Run(tmp_path, config={"w/a": 2.0}, accept=["algorithm.w/a=1.0:2.0"]) as run:
        restored = run.restore(w={"a": 0.5})

    assert "--accept algorithm.w/a=1.0:2.0" in str(said)
    assert restored.w == {"a": 7.0}


@pytest.mark.parametrize(
    ("first", "second", "accept", "left"),
    [
        (
            {"config": {"lr": 3e-4, "critic/lr": 3e-4}},
            {"config": {"lr": 1e-4, "critic/lr": 1e-4}},
            "algorithm.lr=3e-4:1e-4",
            "algorithm.critic/lr",
        ),
        (
            {"config": {"lr": 0.5}, "contract": {"reward": {"w/a": 0.5}}},
            {"config": {"lr": 0.25}, "contract": {"reward": {"w/a": 0.25}}},
            "algorithm.lr=0.5:0.25",
            "reward.w/a",
        ),
        (
            {"config": {"w/a": 0.5}, "contract": {"reward": {"w/a": 0.5}}},
            {"config": {"w/a": 0.25}, "contract": {"reward": {"w/a": 0.25}}},
            "reward.w/a=0.5:0.25",
            "algorithm.w/a",
        ),
    ],
)
def test_an_acceptance_does_not_go_over_to_another_key(
    first: dict[str, Any], second: dict[str, Any], accept: str, left: str, tmp_path: Path
):
    with perdure.Run(tmp_path, **first) as run:
        run.restore(x=0)

    said = refusal(tmp_path, {"x": 0}, **second, accept=[accept])

    assert [finding.key for finding in said.findings] == [left]


def test_a_key_of_the_configuration_and_an_attribute_of_one_name_are_two_things(tmp_path: Path):
    with perdure.Run(tmp_path, config={"net/attribute": 1}) as run:
        run.restore(net=Net(1))

    key = refusal(tmp_path, {"net": Net(1)}, config={"net/attribute": 2})
    attribute = refusal(tmp_path, {"net": Net(2)}, config={"net/attribute": 1})

    assert [finding.acceptance for finding in key.findings] == ["algorithm.net/attribute=1:2"]
    assert [finding.acceptance for finding in attribute.findings] == ["net/attribute=1:2"]


@pytest.mark.parametrize(
    ("old", "new", "key", "difference"),
    [
        ([1.0, 0.5], [1.0, 0.5, 0.25], "net/attribute/2", "nothing:0.25"),
        ([1.0, 0.5, 0.25], [1.0, 0.5], "net/attribute/2", "0.25:nothing"),
        ({"x": 1}, {"x": 1, "y": 2}, "net/attribute/y", "nothing:2"),
        ({"x": 1, "y": 2}, {"x": 1}, "net/attribute/y", "2:nothing"),
        ([], None, "net/attribute", "nothing:None"),
    ],
)
def test_parts_that_one_side_lacks_are_not_offered_for_acceptance(
    old: Any, new: Any, key: str, difference: str, tmp_path: Path
):
    with perdure.Run(tmp_path) as run:
        run.restore(net=Net(old))

    said = refusal(tmp_path, {"net": Net(new)}, accept=[f"{key}={difference}"])

    assert [(finding.key, finding.acceptance) for finding in said.findings] == [
        (key, None),
        (f"--accept {key}={difference}", None),
    ]
    assert [finding.advice for finding in said.findings] == [
        ADVICE,
        f"A part that one side lacks takes no acceptance. {ADVICE}",
    ]


def test_an_accepted_value_that_has_no_place_in_the_checkpoint_is_refused(tmp_path: Path):
    with perdure.Run(tmp_path, every=EVERY) as run:
        net = run.restore(net=Net(None)).net
        net.attribute = [1, 2]
        run.boundary(env_steps=10)

    said = refusal(tmp_path, {"net": Net("a")}, accept={"net/attribute": (None, "a")})

    assert "net/attribute" in [finding.key for finding in said.findings]


def test_an_accepted_value_whose_place_the_training_took_away_is_refused(tmp_path: Path):
    with perdure.Run(tmp_path, every=EVERY) as run:
        net = run.restore(net=Net([1, 2])).net
        net.attribute = [1]
        run.boundary(env_steps=10)

    said = refusal(tmp_path, {"net": Net([1, 3])}, accept={"net/attribute/1": (2, 3)})

    assert str(said).splitlines()[1:] == [
        "  net/attribute/1: nothing there in the run, an accepted value here. It has no place in the checkpoint: "
        "leave this acceptance out and build the part as the run did."
    ]
