"""Rules from symptoms to causes: each speaks where its symptom is seen, and is silent elsewhere."""

from typing import Any

import pytest

from perdure.proof.causes import RESUME_RULES, SCRIPT_RULES, Symptoms, likely_causes


def symptoms(**facts: Any) -> Symptoms:
    return Symptoms(**{"is_resume": True, "boundary": 5, **facts})


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "metrics": ({"metrics": True}, "The state is equal and a metric is not"),
    "restarted": ({"components": ("env",), "resembles": {"env": 1}}, "env is what the straight run had at boundary 1"),
    "rate": ({"components": ("opt",), "leaves": ("opt/param_groups/0/lr",)}, "A learning rate differs (opt/param_gr"),
    "process": ({"components": ("process_rng",)}, "A process-wide generator"),
    "generator": ({"components": ("rng",), "leaves": ("rng/state/state",)}, "A generator differs (rng/state/state)"),
    "replay": ({"components": ("walker",), "fidelity": {"walker": "exact-replay"}}, "walker: an environment that is"),
    "state_dict": ({"components": ("norm",), "adapters": {"norm": "state-dict"}}, "norm: what its own state_dict"),
    "environment": ({"components": ("envs",)}, "envs: an episode was reset after `restore`"),
    "outside": ({"components": ("net",), "leaves": ("net/kernel",)}, "All generators are equal, and net is not"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_resume(name: str):
    facts, beginning = CASES[name]
    said = likely_causes(symptoms(**facts))

    assert any(cause.startswith(beginning) for cause in said), said
    assert said[-1].startswith("Less often: another number of threads")
    assert (
        not any(cause.startswith(beginning) for cause in likely_causes(symptoms(components=("x",), counters=True)))
        or name == "outside"
    )


def test_a_generator_that_differs_is_no_missing_component():
    said = likely_causes(symptoms(components=("rng", "net"), leaves=("net/kernel", "rng/state")))

    assert not any("a component is missing" in cause for cause in said)
    assert "(an exploration rate, a count, a network that chooses actions): `perdure audit` looks for it." in said[0]


def test_a_script():
    assert likely_causes(symptoms(is_resume=False, hash_seed_helps=True))[0].startswith("The order of a set")
    assert likely_causes(symptoms(is_resume=False, boundary=0, components=("net",)))[0].startswith(
        "Already the initial"
    )
    env = likely_causes(symptoms(is_resume=False, components=("env", "net")))
    assert env[0].startswith("env: an environment without a seed")
    assert env[-1].endswith("with PYTHONHASHSEED=0 they differ, too.")


def test_spaces_that_nobody_seeds():
    of_spaces = "envs/action_space/_np_random/bit_generator/state", "envs/envs/0/action_space/spaces/0/_np_random/x"
    said = likely_causes(symptoms(is_resume=False, boundary=0, components=("envs",), leaves=of_spaces))
    more = likely_causes(symptoms(is_resume=False, boundary=0, components=("envs",), leaves=(*of_spaces, "envs/state")))

    assert said[0].startswith("Only generators of spaces differ")
    assert not any(cause.startswith("Only generators of spaces") for cause in more)


def test_an_end_and_a_run_that_are_others():
    assert likely_causes(symptoms(is_other_end=True))[0].startswith("What ends the loop is no state")
    assert likely_causes(symptoms(is_other_run=True))[0].startswith("The run's directory has another name")


def test_there_is_always_something_to_say():
    assert likely_causes(symptoms()) == [RESUME_RULES[-1](symptoms())]
    assert likely_causes(symptoms(is_resume=False)) == [SCRIPT_RULES[-1](symptoms())]
