"""What the last bits of the numbers depend on: versions, machine, devices."""

import os
import platform
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

LIBRARIES = ("numpy", "jax", "jaxlib", "flax", "optax", "torch")


def arithmetic() -> dict[str, str]:
    """Facts about this process; a library counts once it is loaded."""
    facts = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "system": platform.system(),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            facts[name] = str(version)
    return facts


@lru_cache(maxsize=1)
def _processor() -> str:
    """The processor's model: its instruction set decides which kernels run."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return " ".join(fields.get(name, "") for name in ("model name", "cpu family", "model")).strip()


def changes(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is not the same any more, in words. A library that only one of the two had loaded computed nothing yet."""
    return [
        f"{name}: {saved[name] or 'not set'} then, {now[name] or 'not set'} now"
        for name in sorted(saved.keys() & now.keys())
        if saved[name] != now[name]
    ]
