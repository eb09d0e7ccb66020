"""PyTorch's distributions, and the transforms inside: tensors among their attributes.

Those of PyTorch's own classes can be made without a target, for a policy often keeps one that a fresh start does not
have yet (`self.distribution = None`). Their tree names the class, and what they hold is put back attribute by
attribute: no constructor runs, which might compute one of them anew with other last bits.
"""

from functools import lru_cache
from types import MappingProxyType
from typing import Any

from torch import distributions
from torch.distributions import transforms

from perdure.adapters.adapter import Adapter
from perdure.adapters.containers import Children
from perdure.adapters.torch_attributes import ByAttributes
from perdure.adapters.walk import Walk
from perdure.errors import Finding
from perdure.tree.diff import summary
from perdure.tree.leaves import Tree

CLASS = "class"
"""Beside the attributes; a keyword, which no attribute is called."""

INVERSE = "_inv"
"""Where an inverse keeps the transform that it is made of, and a transform remembers the inverse made of it."""


class Distribution(ByAttributes):
    """A distribution or a transform: of a user's class, which is a fact and must be there."""

    id = "torch-distribution"

    def variant(self, obj: Any) -> Adapter:
        """The adapter for this very class."""
        return _OWN if _own_classes().get(type(obj).__name__) is type(obj) else self

    def attributes(self, obj: Any) -> Children:
        """All but the inverse that a transform remembers: it makes another one when it is asked."""
        found = super().attributes(obj)
        if isinstance(obj, transforms.Transform) and not isinstance(obj, transforms._InverseTransform):
            found.pop(INVERSE, None)
        return found


class OwnDistribution(Distribution):
    """One of a class of PyTorch's own."""

    id = "torch-own-distribution"

    def variant(self, obj: Any) -> Adapter:
        """This one."""
        return self

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """The class's name, and the attributes' trees."""
        return {CLASS: type(obj).__name__, **self.attribute_trees(obj, walk)}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The class must be the same, and attributes must fit."""
        saved = tree.get(CLASS) if isinstance(tree, dict) else None
        if saved != type(obj).__name__:
            return [walk.finding(str(saved or summary(tree)), type(obj).__name__, "Build it as the run did.")]
        return super().check(obj, _without_class(tree), walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """In place."""
        return super().restore(obj, _without_class(tree), walk)


_OWN = OwnDistribution()


def rebuild(tree: Tree, walk: Walk) -> Any:
    """A distribution or transform without a target.

    Raises:
        LookupError: this PyTorch has no such class.
    """
    kind = _own_classes().get(tree[CLASS])
    if kind is None:
        raise LookupError(f"torch.distributions has no {tree[CLASS]}; use the PyTorch that the run used")
    made = object.__new__(kind)
    if issubclass(kind, transforms.Transform):
        vars(made)[INVERSE] = None
    vars(made).update({name: walk.rebuild_at(part, name) for name, part in _without_class(tree).items()})
    if isinstance(made, transforms._InverseTransform):
        vars(vars(made)[INVERSE])[INVERSE] = made
    return made


@lru_cache(maxsize=1)
def _own_classes() -> MappingProxyType[str, type]:
    """Every class of distributions and transforms of PyTorch itself, by name. A file may name no other."""
    kinds = (distributions.Distribution, transforms.Transform)
    found = (value for module in (distributions, transforms) for value in vars(module).values())
    return MappingProxyType(
        {kind.__name__: kind for kind in found if isinstance(kind, type) and issubclass(kind, kinds)}
    )


def _without_class(tree: dict[str, Tree]) -> dict[str, Tree]:
    return {name: part for name, part in tree.items() if name != CLASS}
