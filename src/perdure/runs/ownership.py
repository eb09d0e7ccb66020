"""Who can have written a run's files: a recorded command is trusted only if this user alone can have written it."""

import os
from pathlib import Path

from perdure.runs.directory import RunDirectory


def foreign_hand(directory: RunDirectory) -> str | None:
    """Which file of those that hold commands somebody else may have written, and why; None: none of them."""
    for path in filter(Path.exists, (directory.path, directory.record, directory.lineage)):
        status = path.stat()
        if status.st_uid != os.geteuid():
            return f"{path}: belongs to another user, who could have written any command into it"
        if status.st_mode & 0o002:
            return f"{path}: can be written by every user"
    return None
