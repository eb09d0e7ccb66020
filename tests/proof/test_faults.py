"""Each planted fault is called not exact, with its component, its leaf and its cause; its twin without it is exact."""

import pytest

pytestmark = pytest.mark.full

FAULTS = {
    "action_space": (["env", "weights"], "env/state/position", "an action space"),
    "async_side_file": (["weights"], "weights", "a file of the script's own"),
    "cached_rate": (["weights"], "weights", "a learning rate or coefficient in a variable"),
    "deque_coefficient": (["weights"], "weights", "a deque of returns"),
    "episode_stream": (["env_level", "weights"], "env_level", "a stream of levels or episodes begins anew"),
    "evaluation_rng": (["rng", "weights"], "rng/", "evaluation"),
    "forgotten_scheduler": (["optimizer"], "optimizer/groups/0/lr", "its scheduler is not handed to `restore`"),
    "normaliser_count": (["normaliser", "weights"], "normaliser/state/mean", "what its own state_dict"),
    "reseeded_random": (["process_rng", "weights"], "process_rng/python/", "seeded anew"),
    "target_network": (["network"], "network", "a target network"),
}
"""Script -> the components that differ first, the first leaf, and a cause."""

OWN_NOISE = {
    "set_order": "The order of a set",
    "threads": "threads or a device that sum in another order",
    "unseeded_env": "an environment without a seed",
    "wall_time": "The time",
}
"""Scripts that are not deterministic themselves -> a cause."""


@pytest.mark.parametrize("script", FAULTS)
def test_a_fault_is_named(prove, script: str):
    components, leaf, cause = FAULTS[script]
    code, document = prove("--until", 6, script=script)

    assert (code, document["exact"], document["deterministic"]) == (1, False, True)
    chain = document["difference"]["chain"]
    assert (chain["components"], chain["boundary"], chain["later"]) == (components, 4, 2)
    assert document["leaves"][0]["path"].startswith(leaf)
    assert document["leaves"][0]["first"] != document["leaves"][0]["second"]
    assert any(cause in said for said in document["likely_causes"]), document["likely_causes"]


@pytest.mark.parametrize("script", [*FAULTS, *OWN_NOISE])
def test_without_it_the_script_is_exact(prove, script: str):
    code, document = prove("--until", 6, script=script, mended=True)

    assert (code, document["exact"], document["interrupted_after"]) == (0, True, [3]), document
    assert (document["compared"]["boundaries"], document["processes"]) == (7, 4)


@pytest.mark.parametrize("script", OWN_NOISE)
def test_a_script_that_is_not_deterministic_is_told_so(prove, script: str):
    code, document = prove("--until", 3, script=script)

    assert (code, document["exact"], document["deterministic"], document["interrupted_after"]) == (1, False, False, [])
    assert document["difference"]["chain"]["components"]
    assert document["leaves"]
    assert any(said.startswith(OWN_NOISE[script]) or OWN_NOISE[script] in said for said in document["likely_causes"])
    assert ("The order of a set" in document["likely_causes"][0]) is (script == "set_order")
