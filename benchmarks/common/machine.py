"""The machine and its software in words: enough to judge figures by, and nothing that says whose machine it is."""

import os
import platform
import re
import time
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "perdure",
    "numpy",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "gymnax",
    "xxhash",
    "orbax-checkpoint",
    "tensorstore",
    "torch",
    "gymnasium",
    "stable-baselines3",
    "safetensors",
)


def describe_machine(directory: Path) -> str:
    """Cores, processor, memory and the kind of disk below `directory`."""
    memory_kib = int(_first(r"MemTotal:\s+(\d+)", "/proc/meminfo") or 0)
    processor = _first(r"model name\s*:\s*(.+)", "/proc/cpuinfo") or platform.machine()
    family = _first(r"cpu family\s*:\s*(\d+)", "/proc/cpuinfo")
    model = _first(r"model\s*:\s*(\d+)", "/proc/cpuinfo")
    numbers = f" (family {family}, model {model})" if family and model else ""
    memory = f"{memory_kib / 2**20:.0f} GiB of memory"
    return f"{os.cpu_count()} cores of an {processor}{numbers}, {memory}, {_disk(directory)}, {platform.system()}"


class OtherWork:
    """How busy others kept the processors since this was made (Linux)."""

    def __init__(self) -> None:
        self._started, self._before = time.monotonic(), _others_s()

    def describe(self) -> str:
        """In cores, on average; what this process and its children did is not counted."""
        cores = max(0.0, _others_s() - self._before) / (time.monotonic() - self._started)
        return f"other processes kept {cores:.1f} of {os.cpu_count()} cores busy on average while this was measured"


def _others_s() -> float:
    """Processor seconds that everything but this process and its finished children has used since the start."""
    line = _first(r"cpu +(.+)", "/proc/stat") or "0"
    user, nice, system, _idle, _wait, *rest = [*map(int, line.split()), *[0] * 7][:7]
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def describe_versions() -> str:
    """Python and every package that takes part."""
    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _first(pattern: str, file: str) -> str | None:
    try:
        match = re.search(pattern, Path(file).read_text())
    except OSError:
        return None
    return match[1].strip() if match else None


def _disk(directory: Path) -> str:
    device = directory.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    kind = _first(rf"\s{number}\s.* - (\S+) ", "/proc/self/mountinfo") or "an unknown file system"
    block = Path("/sys/dev/block", number).resolve()
    if block.name.startswith(("vd", "xvd")):
        return f"{kind} on a virtual disk"
    rotational = _first(r"(\d)", str(block / "queue" / "rotational"))
    return f"{kind} on {'a solid-state disk' if rotational == '0' else 'a disk'}"
