"""What the numbers' last bits depend on: versions, machine, devices, switches; and the switches that decide more."""

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

LIBRARIES = ("numpy", "jax", "jaxlib", "flax", "optax", "torch")

VARIABLES = (
    "XLA_FLAGS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
)
"""Environment variables that choose kernels, or how many threads share a sum."""

JAX_SWITCHES = MappingProxyType(
    {
        "jax_enable_x64": "whether arrays are 64 bits wide",
        "jax_threefry_partitionable": "which numbers a key stands for",
        "jax_default_prng_impl": "which generator a new key belongs to",
        "jax_numpy_dtype_promotion": "which dtype a mixed expression has",
    }
)
"""Switches that decide what is computed, not how it is rounded -> what they decide."""

_INSTRUCTION_SETS = frozenset({"sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve"})


def arithmetic() -> dict[str, str]:
    """Facts about this process; a library counts once it is loaded, a device once it is in use."""
    facts = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor()["name"],
        "instruction set": _processor()["instructions"],
        "threads": str(_usable_cores()),
        "system": platform.system(),
        **{name: os.environ.get(name, "") for name in VARIABLES},
    }
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            facts[name] = str(version)
    return {**facts, **dict(_jax_facts()), **dict(_torch_facts())}


def switches() -> dict[str, str | bool | None]:
    """The switches of the frameworks in use that decide which numbers there are: section `numerics` of a contract."""
    jax = sys.modules.get("jax")
    return {} if jax is None else {name: _jax_option(jax, name) for name in JAX_SWITCHES}


def _jax_option(jax: ModuleType, name: str) -> str | bool | None:
    value = getattr(jax.config, name, None)
    return value if value is None or isinstance(value, bool) else str(value)


def _jax_facts() -> Iterator[tuple[str, str]]:
    jax = sys.modules.get("jax")
    if jax is None:
        return
    yield "jax_default_matmul_precision", str(getattr(jax.config, "jax_default_matmul_precision", None))
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    in_use = getattr(bridge, "backends_are_initialized", None)
    if in_use is not None and in_use():  # asking for devices would choose a backend, which is the script's to do
        yield "jax device", ", ".join(sorted({device.device_kind for device in jax.local_devices()}))


def _torch_facts() -> Iterator[tuple[str, str]]:
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):  # being imported right now
        return
    yield "torch threads", str(torch.get_num_threads())
    yield "torch instruction set", torch.backends.cpu.get_cpu_capability()
    yield "torch default dtype", str(torch.get_default_dtype()).removeprefix("torch.")
    yield "torch device", _torch_device(torch)
    yield "torch deterministic algorithms", str(torch.are_deterministic_algorithms_enabled())
    yield "torch float32 matmul precision", torch.get_float32_matmul_precision()
    yield (
        "torch cudnn",
        f"deterministic {torch.backends.cudnn.deterministic}, benchmark {torch.backends.cudnn.benchmark}",
    )
    yield "torch TF32", f"matmul {torch.backends.cuda.matmul.allow_tf32}, cudnn {torch.backends.cudnn.allow_tf32}"


def _torch_device(torch: ModuleType) -> str:
    """The CUDA devices once they are in use; asking for them before would start CUDA."""
    if not torch.cuda.is_initialized():
        return "cpu"
    return ", ".join(sorted({torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())}))


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _processor() -> Mapping[str, str]:
    """The processor's model and the instruction sets that kernels are chosen by."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {"name": platform.processor(), "instructions": ""}
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    name = " ".join(fields.get(name, "") for name in ("model name", "cpu family", "model")).strip()
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return {"name": name, "instructions": " ".join(sorted(flags & _INSTRUCTION_SETS))}


def changes(saved: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """What is not the same any more: name -> (then, now). What only one of the two had loaded computed nothing yet."""
    return {
        name: (saved[name] or "not set", now[name] or "not set")
        for name in sorted(saved.keys() & now.keys())
        if saved[name] != now[name]
    }


def strict_section(facts: Mapping[str, str]) -> dict[str, str]:
    """All facts as keys of section `numerics`, for a run that insists on the same arithmetic."""
    return {name.replace(" ", "_"): text for name, text in facts.items()}


def told(changed: Mapping[str, tuple[str, str]]) -> list[str]:
    """Changes in words."""
    return [
        f"arithmetic changed: {name}: {then} then, {now} now. The last bits of results may differ from here on."
        for name, (then, now) in changed.items()
    ]
