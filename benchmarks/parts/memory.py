"""A process of its own that saves 512 MiB synchronously and says how far its resident memory rose (Linux)."""

import re
import sys
from pathlib import Path

import perdure
from benchmarks.peers.states import as_jax, as_numpy, large_state, made


def main(kind: str, directory: str) -> None:
    """Prints `extra_bytes=…`; the kernel's counters are off by some 0.3 MiB, so little may come out as less than 0."""
    perdure.save(f"{directory}_small", state=large_state(1))  # loads everything that is imported late
    state = made(large_state(512), {"numpy": as_numpy, "jax": as_jax}[kind])
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    before = _status("VmHWM")
    perdure.save(directory, exist_ok=False, **state)
    print(f"extra_bytes={_status('VmHWM') - before}")


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if not found:
        raise OSError(f"this system does not tell {field}")
    return int(found[1]) * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
