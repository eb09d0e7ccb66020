"""Twins of a resume that forgets: each resets one part of a restored training of `numpy_loop.py`."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

Reset = Callable[[Any, Any], Any]
"""Given a restored training and a fresh one; spoils the first."""


def _forget_spawns(t: Any, fresh: Any) -> None:
    bits = t.generator.bit_generator
    bits.__setstate__((bits.state, fresh.generator.bit_generator.seed_seq))


def _empty_buffer(t: Any, fresh: Any) -> None:
    bits = t.generator.bit_generator
    bits.state = {**bits.state, "has_uint32": 0, "uinteger": 0}


def _empty_legacy_buffer(t: Any, fresh: Any) -> None:
    t.legacy.set_state({**t.legacy.get_state(legacy=False), "has_gauss": 0, "gauss": 0.0})


def _empty_python_buffer(t: Any, fresh: Any) -> None:
    random.setstate((*random.getstate()[:2], None))


def _reset_state(name: str) -> Reset:
    """Resets a live component by its own methods."""

    def reset(t: Any, fresh: Any) -> None:
        if hasattr(fresh.components()[name], "state_dict"):
            t.components()[name].load_state_dict(fresh.components()[name].state_dict())
        else:
            t.components()[name].set_state(fresh.components()[name].get_state())

    return reset


def _reset_value(*path: str) -> Reset:
    """Resets an attribute, or an item of one, to its first value."""

    def reset(t: Any, fresh: Any) -> None:
        owner, source = t, fresh
        for step in path[:-1]:
            owner, source = _part(owner, step), _part(source, step)
        value = _part(source, path[-1])
        if isinstance(owner, dict):
            owner[path[-1]] = value
        else:
            setattr(owner, path[-1], value)

    return reset


def _part(owner: Any, step: str) -> Any:
    return owner[step] if isinstance(owner, dict) else getattr(owner, step)


def _reset_bits(*path: str) -> Reset:
    """Resets a NumPy generator in place; the spawn count of its seed sequence stays."""

    def reset(t: Any, fresh: Any) -> None:
        owner, source = t, fresh
        for step in path:
            owner, source = _part(owner, step), _part(source, step)
        owner.bit_generator.state = source.bit_generator.state

    return reset


def _reset_observation(t: Any, fresh: Any) -> None:
    t.observation[...] = fresh.observation


def _separate_observation(t: Any, fresh: Any) -> None:
    t.memory["latest"] = t.observation.copy()


RESETS: dict[str, Reset] = {
    "weights": _reset_value("weights"),
    "critic": _reset_state("critic"),
    "momentum": _reset_value("optimizer", "momentum"),
    "optimizer-updates": _reset_value("optimizer", "updates"),
    "normalizer": _reset_state("normalizer"),
    "normalizer-count": _reset_value("normalizer", "count"),
    "environment": _reset_state("environment"),
    "environment-elapsed": _reset_value("environment", "elapsed"),
    "environment-history": _reset_value("environment", "history"),
    "environment-recent": _reset_value("environment", "recent_lengths"),
    "environment-generator": _reset_bits("environment", "generator"),
    "carry": _reset_value("carry"),
    "observation": _reset_observation,
    "observation-sharing": _separate_observation,
    "memory-trace": _reset_value("memory", "trace"),
    "exploration": _reset_value("exploration"),
    "learning_rate": _reset_value("learning_rate"),
    "counters": _reset_value("counters"),
    "generator": _reset_bits("generator"),
    "generator-spawns": _forget_spawns,
    "generator-buffer": _empty_buffer,
    "legacy": lambda t, fresh: t.legacy.set_state(fresh.legacy.get_state()),
    "legacy-buffer": _empty_legacy_buffer,
    "python-random": lambda t, fresh: random.seed(20),
    "python-random-buffer": _empty_python_buffer,
    "numpy-random": lambda t, fresh: np.random.seed(20),
}
"""Twins: what goes wrong after the restore, by name."""
