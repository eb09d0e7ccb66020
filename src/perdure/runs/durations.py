"""Spans of time as people write them, and how long this process has been running."""

import os
import re
import time
from pathlib import Path

from perdure.errors import UsageError

_UNITS_S = (86400.0, 3600.0, 60.0, 1.0)
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def seconds(name: str, value: str | float) -> float:
    """A span in seconds: `3h55m`, `90s`, `1d2h30m`, or a number of seconds.

    Raises:
        UsageError: it is none, or not positive.
    """
    span = _parsed(value)
    if span is None or not 0 < span < float("inf"):
        raise UsageError(f"{name}={value!r}: a span of time such as '3h55m', '90s' or '1d2h', or a number of seconds.")
    return span


def _parsed(value: str | float) -> float | None:
    if isinstance(value, str):
        match = _SPAN.fullmatch(value.strip())
        if match and any(match.groups()):
            return sum(int(number or 0) * unit_s for number, unit_s in zip(match.groups(), _UNITS_S, strict=True))
        try:
            return float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


_STARTED = time.monotonic()


def process_age_s() -> float:
    """Seconds since this process was started; since perdure was imported where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
        return max(uptime_s - int(fields[19]) / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _STARTED
