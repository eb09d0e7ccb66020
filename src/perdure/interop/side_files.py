"""A JSON file that stands beside a file of weights, as many trainers write one."""

import json
from pathlib import Path
from typing import Any

MAX_BYTES = 1 << 24
"""Larger ones are not read."""

KEY = "side_file"
"""Under which its content stands in the metadata."""


def side_file(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What stands in `NAME.json` or `NAME.EXT.json` beside `NAME.EXT`.

    Returns:
        Metadata to add, and notes of what was found.
    """
    for candidate in (path.with_name(f"{path.name}.json"), path.with_suffix(".json")):
        if candidate != path and candidate.is_file():
            return _content(candidate)
    return {}, []


def _content(file: Path) -> tuple[dict[str, Any], list[str]]:
    if file.stat().st_size > MAX_BYTES:
        return {}, [f"{file.name}, which stands beside it, has more than {MAX_BYTES:,} bytes and is not read."]
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return {}, [f"{file.name}, which stands beside it, is not JSON and is not read."]
    return {KEY: content}, [f"{file.name}, which stands beside it, is in the metadata under {KEY}."]
