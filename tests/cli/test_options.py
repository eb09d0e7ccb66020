"""Accepted differences and another total change a trainer's options, and nothing else."""

import copy
from typing import Any

import pytest

from perdure.cli.options import changed_options
from perdure.errors import UsageError

OPTIONS: dict[str, Any] = {
    "env_id": "CartPole-v1",
    "seed": 3,
    "networks": {"activation": "relu", "actor_hidden_sizes": [64, 32]},
    "ppo": {"total_steps": 96, "learning_rate": 1e-4, "gradient_clipping": None, "normalize_advantages": True},
}


def test_the_options_themselves_are_not_changed():
    before = copy.deepcopy(OPTIONS)
    changed = changed_options(OPTIONS, ["algorithm.ppo.learning_rate=0.0001:0.5"], 128)

    assert changed["ppo"] == {**OPTIONS["ppo"], "learning_rate": 0.5, "total_steps": 128}
    assert before == OPTIONS


@pytest.mark.parametrize(
    ("accept", "place", "value"),
    [
        ("algorithm.ppo.learning_rate=0.0001:0.0003", ("ppo", "learning_rate"), 3e-4),
        ("algorithm.ppo.learning_rate=1e-4:3e-4", ("ppo", "learning_rate"), 3e-4),
        ("algorithm.ppo.learning_rate=0.0001:1", ("ppo", "learning_rate"), 1),
        ("algorithm.ppo.gradient_clipping=None:0.5", ("ppo", "gradient_clipping"), 0.5),
        ("algorithm.ppo.learning_rate=0.0001:None", ("ppo", "learning_rate"), None),
        ("algorithm.ppo.normalize_advantages=True:False", ("ppo", "normalize_advantages"), False),
        ("algorithm.networks.activation=relu:tanh", ("networks", "activation"), "tanh"),
        ("algorithm.networks.actor_hidden_sizes.1=32:16", ("networks", "actor_hidden_sizes"), [64, 16]),
        ("env.env_id=CartPole-v1:Acrobot-v1", ("env_id",), "Acrobot-v1"),
        ("seed.seed=3:4", ("seed",), 4),
        ("ppo.learning_rate=0.0001:0.0003", ("ppo", "learning_rate"), 3e-4),
    ],
)
def test_a_new_value_goes_where_the_key_says(accept: str, place: tuple[str, ...], value: object):
    found: Any = changed_options(OPTIONS, [accept], None)
    for step in place:
        found = found[step]

    assert (found, type(found)) == (value, type(value))


def test_the_new_value_is_taken_also_where_another_stands_so_that_the_refusal_can_say_which():
    changed = changed_options(OPTIONS, ["algorithm.ppo.learning_rate=0.7:0.0003"], None)

    assert changed["ppo"]["learning_rate"] == 3e-4


def test_an_old_value_that_holds_a_colon_is_split_where_it_ends():
    assert changed_options({"name": "a:b"}, ["algorithm.name=a:b:c:d"], None) == {"name": "c:d"}


def test_several_acceptances_in_a_row():
    accept = ["algorithm.ppo.learning_rate=0.0001:0.0003", "algorithm.ppo.learning_rate=0.0003:0.0005"]

    assert changed_options(OPTIONS, accept, None)["ppo"]["learning_rate"] == 5e-4


@pytest.mark.parametrize(
    "accept",
    [
        "env.gymnax=1.0.1:1.0.2",
        "optimizer/tx/update/step_size=-0.0001:-0.0003",
        "algorithm.ppo=1:2",
        "algorithm.networks.actor_hidden_sizes=1:2",
        "algorithm.networks.actor_hidden_sizes.2=1:2",
        "algorithm.networks.actor_hidden_sizes.x=1:2",
        "algorithm.ppo.learning_rate.deeper=1:2",
        "algorithm.=1:2",
    ],
)
def test_what_is_no_option_changes_none(accept: str):
    assert changed_options(OPTIONS, [accept], None) == OPTIONS


@pytest.mark.parametrize(
    ("accept", "message"),
    [
        (
            "algorithm.ppo.learning_rate=0.0001:fast",
            "--accept algorithm.ppo.learning_rate=0.0001:fast: 'fast' cannot take the place of 0.0001.",
        ),
        (
            "algorithm.ppo.normalize_advantages=True:1",
            "--accept algorithm.ppo.normalize_advantages=True:1: 1 cannot take the place of True.",
        ),
        (
            "algorithm.networks.activation=relu:7",
            "--accept algorithm.networks.activation=relu:7: 7 cannot take the place of 'relu'.",
        ),
        (
            "horizon.ppo.total_steps=96:128",
            "--accept horizon.ppo.total_steps=96:128: another total needs no acceptance; write --total-steps 128.",
        ),
    ],
)
def test_impossible_values_are_refused(accept: str, message: str):
    with pytest.raises(UsageError) as caught:
        changed_options(OPTIONS, [accept], None)

    assert str(caught.value) == message
