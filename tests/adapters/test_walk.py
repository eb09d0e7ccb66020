"""The walk: paths, identity, and rebuilding plain values."""

import numpy as np
import pytest

from perdure.adapters.resolve import Resolver
from perdure.adapters.walk import Walk
from perdure.tree.leaves import Alias, Array


def walk() -> Walk:
    return Walk(Resolver())


def test_a_walk_stands_at_the_root_again_after_an_error():
    here = walk()

    with pytest.raises(TypeError):
        here.capture({"a": [object()]}, "c")
    assert here.path == ()


def test_identity_is_kept_over_all_components_of_one_walk():
    here, shared = walk(), [1]

    assert (here.capture([shared], "a"), here.capture({"x": shared}, "b")) == ([[1]], {"x": Alias(("a", 0))})


def test_temporary_objects_are_never_taken_for_each_other():
    """An object that dies can leave its id to the next one; the walk keeps what it has seen alive."""

    class Fresh:
        def state_dict(self) -> dict[str, list[int]]:
            return {"x": [1]}

        def load_state_dict(self, state: dict[str, list[int]]) -> None:
            pass

    tree = walk().capture([Fresh() for _ in range(50)], "c")

    assert tree == [{"state": {"x": [1]}}] * 50


def test_equal_small_values_are_no_shared_objects():
    tree = walk().capture([(), (), "a", "a", 1, 1, None, np.float32(1)], "c")

    assert not any(isinstance(node, Alias) for node in tree)


def test_plain_values_are_rebuilt_and_adopt_the_arrays():
    array, scalar = np.arange(3), Array(np.asarray(np.float32(1)), scalar=True)
    tree = {"a": [Array(array)], "b": (1, None), "s": scalar, "again": Alias(("c", "a"))}

    value = walk().rebuild_at(tree, "c")

    assert value["a"][0].tolist() == [0, 1, 2]
    assert value["a"][0] is array
    assert value["b"] == (1, None)
    assert type(value["s"]) is np.float32
    assert value["again"] is value["a"]
