"""Flax NNX: modules, optimizers, variables and states, restored in place."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax
from flax import nnx

from perdure.adapters.adapter import Kind
from perdure.adapters.containers import Children, Container
from perdure.adapters.walk import Walk
from perdure.contract.facts import facts_in
from perdure.contract.naming import name_of
from perdure.errors import Finding
from perdure.tree.leaves import PLAIN_TYPES, Tree
from perdure.tree.paths import Step

_BOOKKEEPING = frozenset({"_pytree__state", "_pytree__nodes"})


class Variable(Container):
    """`nnx.Variable` and its subclasses: live, so that whoever holds the variable sees the restored value."""

    id = "nnx-variable"
    kind: Kind = "live"
    has_identity = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The value's tree; the class is a fact, for it decides what is trained, and so is metadata of the user's."""
        walk.fact(name_of(type(obj)))
        metadata = obj.get_metadata()
        for name, value in metadata.items():
            for below, text in facts_in(value) if name not in _metadata_of_flax() else ():
                walk.fact(text, name, *below)
        return walk.capture_inner(_value_of(obj, metadata))

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The value's findings."""
        return walk.check_inner(obj.get_value(), tree)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Sets the value."""
        obj.set_value(walk.restore_inner(obj.get_value(), tree))
        return obj


def _value_of(variable: Any, metadata: Mapping[str, Any]) -> Any:
    """What `get_value` gives.

    An array that the variable simply holds is taken as it is: Flax needs longer to hand it out than everything takes
    that is done with it afterwards, and there are a hundred at each boundary.
    """
    raw = variable.get_raw_value()
    is_simply_held = type(raw).__name__ == "ArrayImpl" and type(variable).get_value is nnx.Variable.get_value
    return raw if is_simply_held and "on_get_value" not in metadata else variable.get_value()


@lru_cache(maxsize=1)
def _metadata_of_flax() -> frozenset[str]:
    """What Flax keeps with every variable, by its version; how arrays are laid out over devices is no part of a run."""
    return frozenset(nnx.Variable(0).get_metadata()) | {"tag", "sharding", "sharding_names", "out_sharding", "mesh"}


class Node(Container):
    """`nnx.Module`, `nnx.Optimizer`, `nnx.Rngs`, `nnx.List` and every other `nnx.Pytree`.

    All attributes count. Flax's own state of a module leaves out plain attributes (`self.scale = 0.5`); here
    numbers, strings and arrays among them are leaves, and functions, classes and dtypes are facts.
    """

    id = "nnx-node"
    kind: Kind = "live"
    has_identity = True
    holds_settings = True

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the attributes' trees; the class and its plain attributes are facts, those of `obj` settings."""
        walk.fact(name_of(type(obj)))
        own = vars(obj)
        for name in _plain_names(type(obj)):
            if name not in own:
                walk.fact(repr(getattr(obj, name)), name)
        return {name: walk.capture(child, name) for name, child in _attributes(obj).items()}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The attributes must be the same."""
        return self.check_children(_attributes(obj), tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """Restores variables and nodes in place and sets the attributes that are values."""
        attributes = _attributes(obj)
        for step, value in self.restore_children(attributes, tree, walk).items():
            if value is not attributes[step]:
                # Not setattr: the attribute's kind (data or static) has been decided and stays.
                object.__setattr__(obj, str(step), value)
        return obj


@lru_cache(maxsize=1024)
def _plain_names(kind: type) -> tuple[str, ...]:
    """Plain values that a class of the user's has for all its modules: `class Net(nnx.Module): scale = 0.1`."""
    found: dict[str, Any] = {}
    for cls in reversed(kind.__mro__):  # a class may put a property in the place of another's value
        found |= vars(cls) if cls.__module__.partition(".")[0] not in ("flax", "builtins") else {}
    return tuple(sorted(name for name, value in found.items() if type(value) in PLAIN_TYPES and name[0] != "_"))


def _attributes(obj: Any) -> Children:
    own = {name: value for name, value in vars(obj).items() if name not in _BOOKKEEPING}
    if isinstance(obj, nnx.Optimizer) and own.get("graph", "unset") is None:
        # An option that Flax 0.12.8 has and 0.12.6 has not, at the value that does what earlier versions did: a
        # checkpoint of one of them does not have it, and must go on loading.
        del own["graph"]
    return {_step(name): value for name, value in own.items()}


def _step(name: str) -> Step:
    """`nnx.List` names its items "0", "1", …: positions, as in Flax's own paths."""
    return int(name) if name.isdecimal() and str(int(name)) == name else name


class State(Container):
    """`nnx.State`: in place inside a live object (an optimizer's), else a value like any pytree."""

    id = "nnx-state"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the entries' trees."""
        return {name: walk.capture(child, name) for name, child in _entries(obj, walk).items()}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The entries must be the same."""
        return self.check_children(_entries(obj, walk), tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """The same state if it is part of a live object, else a new one with variables of its own."""
        restored = self.restore_children(_entries(obj, walk), tree, walk)
        if walk.inside_live:
            return obj
        definition = jax.tree_util.tree_structure(obj)
        order = [_joined(path) for path, _ in jax.tree_util.tree_flatten_with_path(obj)[0]]
        return definition.unflatten([restored[name] for name in order])


def _entries(obj: Any, walk: Walk) -> Children:
    if walk.inside_live:
        return dict(obj.raw_mapping)
    return {_joined(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(obj)[0]}


def _joined(path: tuple[Any, ...]) -> str:
    return ".".join(str(getattr(key, "key", getattr(key, "name", key))) for key in path)
