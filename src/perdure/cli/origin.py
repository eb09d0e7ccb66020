"""Where a run comes from, in words: its launch and its code."""

import shlex
from collections.abc import Mapping
from typing import Any


def launch_text(launch: Mapping[str, Any]) -> str:
    """How a run was launched; a command without its secrets."""
    match launch:
        case {"kind": "trainer", "name": str(name)}:
            return f"perdure train {name}"
        case {"kind": "script", "withheld": str(text), "cwd": str(cwd)}:
            return f"{text} (in {cwd})"
        case {"kind": "script", "argv": list(argv), "cwd": str(cwd)}:
            return f"{shlex.join(argv)} (in {cwd})"
    return "in an unknown way"


def code_text(code: Mapping[str, Any] | None) -> str:
    """The commit, and whether something was not committed."""
    if code is None:
        return "not known"
    branch = f" on {code['branch']}" if code["branch"] else ""
    where = "code.patch" if code["patch_digest"] else "too much for code.patch" if code["patch_bytes"] else "left out"
    return f"commit {code['commit'][:12]}{branch}" + (f", with changes ({where})" if code["dirty"] else "")
