"""What the last bits of the numbers depend on: versions, machine, devices."""

import platform
import sys
from collections.abc import Mapping

LIBRARIES = ("numpy", "jax", "jaxlib", "flax", "optax", "torch")


def arithmetic() -> dict[str, str]:
    """Facts about this process; a library counts once it is loaded."""
    facts = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            facts[name] = str(version)
    return facts


def changes(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is not the same any more, in words."""
    return [
        f"{name}: {saved.get(name, 'not loaded')} then, {now.get(name, 'not loaded')} now"
        for name in sorted(saved.keys() | now.keys())
        if saved.get(name) != now.get(name)
    ]
