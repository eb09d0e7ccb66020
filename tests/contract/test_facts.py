"""What closures bind, value by value; long things by digest; which differences are told."""

from typing import Any

from perdure.contract.facts import LONGEST_TEXT, MOST_PARTS, compare_facts, facts_of, formatted


def binding(value: Any) -> Any:
    return lambda: value


def facts(value: Any) -> dict[str, str]:
    found = formatted(dict(facts_of(binding(value))))
    return {path: text for path, text in found.items() if path}


def test_values_are_told_one_by_one():
    assert facts({"lr": 0.1, "betas": (0.9, 0.99), "name": "adam", 3: None}) == {
        "value/lr": "0.1",
        "value/betas/0": "0.9",
        "value/betas/1": "0.99",
        "value/name": "'adam'",
    }


def test_functions_in_closures_are_told_with_theirs():
    found = facts(binding(2))

    assert found["value"].endswith(":binding.<locals>.<lambda>")
    assert found["value/value"] == "2"


def test_what_is_long_is_told_by_a_digest_that_sees_every_part():
    long = list(range(MOST_PARTS + 1))
    texts = {
        facts(value)["value"] for value in (long, [*long[:-1], -1], "x" * (LONGEST_TEXT + 1), "y" * (LONGEST_TEXT + 1))
    }

    assert len(texts) == 4
    assert all(len(text) < 100 for text in texts)
    assert facts(long) == facts(list(long))


def test_a_container_that_holds_itself_ends():
    value: list[Any] = [1]
    value.append(value)

    assert facts(value) == {"value/0": "1"}


def test_below_a_difference_nothing_more_is_told():
    saved, found = {"a": "function x:f", "a/lr": "1", "b": "1"}, {"a": "function x:g", "a/rate": "2", "b": "2"}

    assert [finding.key for finding in compare_facts("c", saved, found)] == ["c/a", "c/b"]


def test_a_trace_decides_alone_and_under_one_version_only():
    def keys(saved: dict[str, str], found: dict[str, str]) -> list[str]:
        return [finding.key for finding in compare_facts("c", saved, found)]

    assert keys({"tx/traced": "d1 under jax 1"}, {"tx/traced": "d2 under jax 1"}) == ["c/tx/traced"]
    assert keys({"tx/traced": "d1 under jax 1"}, {"tx/traced": "d2 under jax 2"}) == []
    assert keys({"tx/traced": "d1 under jax 1", "tx/lr": "1"}, {"tx/traced": "d2 under jax 1", "tx/lr": "2"}) == [
        "c/tx/lr"
    ]
    assert keys({"tx/traced": "d1 under jax 1", "a": "1"}, {"tx/traced": "d2 under jax 1", "a": "2"}) == [
        "c/a",
        "c/tx/traced",
    ]
    assert keys({"traced": "d1 under jax 1"}, {}) == []
