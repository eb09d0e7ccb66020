"""Rules rename leaves by regular expressions: what they leave out stays out, and what is wrong in one is said."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perdure
from perdure.errors import UsageError
from perdure.interop import convert
from perdure.interop.losses import Losses
from perdure.interop.names import Rule, note_nesting, renamed


def by(*rules: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The old name of each new one, and the losses, of three leaves."""
    losses = Losses()
    _, origins = renamed({"a.w": 1, "a.b": 2, "note": 3}, [Rule.of(text) for text in rules], losses)
    return origins, losses.lines()


def test_a_leaf_that_is_left_out_gets_no_name_from_a_later_rule():
    origins, losses = by("note=", "^=actor.")

    assert origins == {"actor.a.w": "a.w", "actor.a.b": "a.b"}
    assert losses == ("note: left out, as --map says.",)


def test_a_rule_that_fits_only_what_was_left_out_is_refused():
    with pytest.raises(UsageError, match="fits none of the 2 names"):
        by("note=", "^$=x")


@pytest.mark.parametrize(
    ("rule", "new"),
    [
        ("(?i)A\\.=x.", {"x.w", "x.b", "note"}),
        (r"a\.(.)=\1.a", {"w.a", "b.a", "note"}),
        (r"a(?\=\.)=c", {"c.w", "c.b", "note"}),
    ],
)
def test_patterns_are_those_of_python(rule: str, new: set[str]):
    assert by(rule)[0].keys() == new


def test_two_leaves_of_one_name_are_refused():
    with pytest.raises(UsageError, match=r"--map: a.b and a.w would both be called a.w2\."):
        by("w$|b$=w2")


@pytest.mark.parametrize(("rule", "torn"), [("^a=", ".w"), ("w=", "a."), ("note=x..y", "x..y")])
def test_a_rule_that_leaves_an_empty_step_is_refused_with_what_was_meant(rule: str, torn: str):
    with pytest.raises(UsageError) as caught:
        by(rule)

    assert f" would be called {torn}. A rule replaces what its pattern fits and nothing else: " in str(caught.value)
    assert by("^a.*=")[0].keys() == {"note"}
    assert by(r"^a\.=")[0].keys() == {"w", "b", "note"}
    assert by("^a=", r"^\.=")[0].keys() == {"w", "b", "note"}


def test_a_name_that_has_empty_steps_may_keep_them():
    _, origins = renamed({"..training": 1}, [Rule.of("^=net.")], Losses())

    assert origins == {"net...training": "..training"}


@pytest.mark.parametrize("rule", ["a", "=x", "(=x", r"a=\2", r"a=\g<x>", "a=\\"])
def test_what_is_no_rule_is_refused_before_anything_is_read(rule: str):
    with pytest.raises(UsageError) as caught:
        Rule.of(rule)
    assert str(caught.value).startswith(f"--map {rule}: ")


@pytest.mark.parametrize(
    ("tree", "is_said"),
    [({"a.b": 1}, False), ({"a": {}}, False), ({}, False), ({"a": {"b": 1}}, True), ({"a": [1]}, True), ({0: 1}, True)],
)
def test_that_nested_names_became_flat_is_said(tree: dict[str | int, Any], is_said: bool):
    losses = Losses()
    note_nesting(tree, losses)

    assert bool(losses.lines()) == is_said
    assert "".join(losses.lines()) in ("", "names: the steps that lead to a leaf became one text, joined by dots.")


@pytest.fixture
def twins(tmp_path: Path) -> Path:
    """A checkpoint of which two leaves have the same steps, one of them with a dot in a step."""
    perdure.save(tmp_path / "saved", net={"a": {"b": np.zeros(1)}, "a.b": np.ones(1)})
    return tmp_path / "saved"


def test_leaves_that_share_a_dotted_name_are_told_by_their_paths(twins: Path, tmp_path: Path):
    done = convert(twins, tmp_path / "new")

    assert [leaf.name for leaf in done.leaves] == ["net/a/b", "net/a.b"]
    assert perdure.read(tmp_path / "new")["net"]["a"]["b"].tolist() == [0.0]


def test_a_file_of_flat_names_refuses_them_until_one_is_renamed(twins: Path, tmp_path: Path):
    with pytest.raises(UsageError, match=r"net/a\.b and net/a/b would both be called net\.a\.b; rename one"):
        convert(twins, tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()

    done = convert(twins, tmp_path / "x.safetensors", names=["^net/a/b$=net.inner"])
    assert [leaf.name for leaf in done.leaves] == ["net.inner", "net/a.b"]
