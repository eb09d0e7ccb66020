"""Snapshots: what stands at a path, through aliases."""

import pytest

from perdure.tree.leaves import Alias
from perdure.tree.snapshot import Component, Snapshot


def snapshot_of(**trees: object) -> Snapshot:
    return Snapshot({name: Component("test", tree) for name, tree in trees.items()}, 0, 0, 0)


SNAPSHOT = snapshot_of(
    a={"shared": {"x": [10, 20]}, 3: "three"},
    b=[Alias(("a", "shared")), Alias(("b", 0))],
    c=Alias(("a", "shared", "x")),
)


@pytest.mark.parametrize(
    ("path", "node"),
    [
        (("a", 3), "three"),
        (("a", "shared", "x", 1), 20),
        (("b", 0), {"x": [10, 20]}),
        (("b", 0, "x", 0), 10),
        (("b", 1, "x", 0), 10),
        (("c",), [10, 20]),
        (("c", 1), 20),
    ],
)
def test_at_follows_aliases_on_the_way_and_at_the_end(path: tuple[str | int, ...], node: object):
    assert SNAPSHOT.at(path) == node


def test_resolve_leaves_what_is_no_alias_alone():
    node = {"x": 1}

    assert SNAPSHOT.resolve(node) is node


@pytest.mark.parametrize("path", [("d",), ("a", "3"), ("b", 2), ("a", "shared", "y")])
def test_a_place_that_does_not_exist_is_a_lookup_error(path: tuple[str | int, ...]):
    with pytest.raises(LookupError):
        SNAPSHOT.at(path)
