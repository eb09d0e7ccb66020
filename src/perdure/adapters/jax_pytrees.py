"""Classes registered as JAX pytrees: stored by key path; type and static data come from the target."""

from collections import Counter
from typing import Any

import jax

from perdure.adapters.containers import Children, Container
from perdure.adapters.walk import Walk
from perdure.contract.facts import facts_in
from perdure.contract.naming import name_of
from perdure.errors import Finding
from perdure.tree.leaves import PLAIN_TYPES, Tree
from perdure.tree.paths import Step


class Pytree(Container):
    """Any registered pytree that is neither a built-in container nor a dataclass."""

    id = "jax-pytree"

    def capture(self, obj: Any, walk: Walk) -> Tree:
        """A dict of the children's trees; class and static data are a fact."""
        static = _static_data(obj)
        walk.fact(f"{name_of(type(obj))} {_plain_text(static)}".rstrip())
        for below, text in facts_in(static):
            walk.fact(text, "static data", *below)
        return {step: walk.capture(child, step) for step, child in _children_of(obj).items()}

    def check(self, obj: Any, tree: Tree, walk: Walk) -> list[Finding]:
        """The children must be the same."""
        return self.check_children(_children_of(obj), tree, walk)

    def restore(self, obj: Any, tree: Tree, walk: Walk) -> Any:
        """A new object with the restored children; the same one if each was restored in place."""
        children = _children_of(obj)
        restored = self.restore_children(children, tree, walk)
        if all(restored[step] is children[step] for step in children):
            return obj
        _, definition = jax.tree_util.tree_flatten(obj, is_leaf=lambda node: node is not obj)
        return definition.unflatten([restored[step] for step in children])


def _children_of(obj: Any) -> Children:
    with_paths, _ = jax.tree_util.tree_flatten_with_path(obj, is_leaf=lambda node: node is not obj)
    steps = [step_of(path[0]) for path, _ in with_paths]
    if max(Counter(steps).values(), default=1) > 1:
        steps = list(range(len(steps)))
    return dict(zip(steps, (child for _, child in with_paths), strict=True))


def _static_data(obj: Any) -> Any:
    """What the class keeps beside its children, which a resume must find unchanged."""
    flat = jax.tree_util.default_registry.flatten_one_level(obj)
    return flat[1] if flat is not None else None


def _plain_text(data: Any) -> str:
    if isinstance(data, list | tuple):
        return f"({', '.join(filter(None, map(_plain_text, data)))})"
    if isinstance(data, dict):
        return f"({', '.join(f'{key}: {_plain_text(value)}' for key, value in data.items())})"
    return repr(data) if type(data) in PLAIN_TYPES and data is not None else ""


def step_of(key: Any) -> Step:
    """The step that a key of JAX's key paths stands for."""
    for name in ("name", "key", "idx"):
        step = getattr(key, name, None)
        if isinstance(step, str | int):
            return step
    return str(key)
