"""What a policy was trained to see and do, read from the facts of a run's environments."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from perdure.tree.leaves import Tree
from perdure.tree.paths import format_path
from perdure.tree.snapshot import Component

ADAPTERS = frozenset(
    {"gymnasium-env", "mujoco-env", "gymnasium-recorded", "gymnasium-resettable"}
    | {"perdure-gym-vector", "sb3-vec-env", "sb3-subproc-vec-env", "sb3-monitor"}
)
"""Adapters of environments, single ones and vectors."""

POOL = "perdure-level-pool"

VERSION = "gymnasium"
"""The library's version: told, and no part of the comparison."""

_ONE_OF_SEVERAL = re.compile(r"(?:env/|venv/)*envs/0/")


def environment_of(component: Component) -> dict[str, str]:
    """What matters of an environment, or of the first of several, by key.

    `observation_space` and `action_space` are those of one environment, behind all wrappers; `id` and `arguments/…`
    what `gymnasium.make` was told; `levels/…` the contents of its pools of levels.
    """
    facts, first = component.facts, _first(component.facts)
    own = {key.removeprefix(first): text for key, text in facts.items() if key.startswith(first)}
    found = {
        "observation_space": _space("observation_space", component, own, first),
        "action_space": _space("action_space", component, own, first),
        VERSION: facts.get(VERSION),
    }
    specs = [key for key in own if key == "spec" or key.endswith("/spec")]
    for spec in specs[:1]:
        found["id"] = own[spec]
        below = f"{spec}/arguments"
        found |= {f"arguments{key.removeprefix(below)}": text for key, text in own.items() if key.startswith(below)}
    found |= dict(_levels(component, own, first))
    return {key: text for key, text in sorted(found.items()) if text is not None}


def _first(facts: Mapping[str, str]) -> str:
    """The path of the first environment of a vector; empty for a single one."""
    matches = filter(None, map(_ONE_OF_SEVERAL.match, facts))
    return next((match[0] for match in matches), "")


def _space(name: str, component: Component, own: Mapping[str, str], first: str) -> str | None:
    """The space that a policy meets: of the vector's outermost wrapper that has one, else of the environment's."""
    facts = component.facts
    if first:
        # A vector of Stable-Baselines3 has the spaces of one environment, under the name that others give their own.
        single = "" if component.adapter.startswith("sb3-") else "_?single_"
        ending = re.compile(rf"(?:env/|venv/)*{single}{name}")
        of_vector = sorted((key for key in facts if ending.fullmatch(key)), key=len)
        if of_vector:
            return facts[of_vector[0]]
    ending = re.compile(rf"(?:env/)*_?{name}")
    outermost = sorted((key for key in own if ending.fullmatch(key)), key=lambda key: key.count("/"))
    return own[outermost[0]] if outermost else None


def _levels(component: Component, own: Mapping[str, str], first: str) -> Iterator[tuple[str, str]]:
    """The contents of pools, in the order of their places; the place itself depends on wrappers and does not count."""
    pools = [format_path(path[1:]) for path, adapter in component.made.items() if adapter == POOL]
    for number, pool in enumerate(sorted(pool for pool in pools if pool.startswith(first))):
        below = f"{pool.removeprefix(first)}/levels"
        name = f"levels {number}" if number else "levels"
        yield from ((f"{name}{key.removeprefix(below)}", text) for key, text in own.items() if key.startswith(below))


def wrappers_of(component: Component) -> tuple[str, ...]:
    """The classes around one environment, the outermost first, vectors' wrappers included."""
    return tuple(_wrappers(component.tree))


def _wrappers(tree: Tree) -> Iterator[str]:
    while isinstance(tree, dict):
        if isinstance(tree.get("layers"), list):  # a recording knows its layers by name alone
            yield from map(str, tree["layers"][:-1])
            return
        inner: Any = tree.get("env", tree.get("venv"))
        if isinstance(tree.get("envs"), list) and tree["envs"]:
            inner = tree["envs"][0]
        elif inner is not None and isinstance(tree.get("class"), str):
            yield tree["class"]
        tree = inner


def main_environment(components: Mapping[str, Component]) -> Component | None:
    """The environment that a run trains in: `env` or `envs` if there are several, else the first by name."""
    name = main_environment_name(components)
    return None if name is None else components[name]


def main_environment_name(components: Mapping[str, Component]) -> str | None:
    """Its name."""
    found = sorted(name for name, part in components.items() if part.adapter in ADAPTERS)
    return next((name for name in ("envs", "env", *found) if name in found), None)
