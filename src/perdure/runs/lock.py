"""The writer lock: one process trains a run.

A POSIX record lock, because child processes do not inherit it: workers that outlive a killed run cannot keep it
locked (`flock` would). Such a lock is lost when the process closes *any* descriptor of the file, so the file is
opened once and never again by the holder; a table of this process's own locks guards that, and finds a run that is
opened twice in one process, which record locks alone would allow.
"""

import fcntl
import json
import os
import socket
import struct
import sys
from pathlib import Path

from perdure.errors import LockedError

_held_here: dict[str, int] = {}
"""Real path of each lock file held -> pid. The only process-wide state: record locks are process-wide too."""


class WriterLock:
    """An acquired lock."""

    def __init__(self, descriptor: int, key: str) -> None:
        self._descriptor: int | None = descriptor
        self._key = key

    def reassert(self) -> None:
        """Takes the lock again if it was lost: any other open and close of the file in this process frees it.

        A copy of the run directory made from this process does that.

        Raises:
            LockedError: another process has taken it meanwhile, or could have: its file is not there any more.
        """
        if self._descriptor is None:
            return
        if not self._stands():
            gone = "the lock's file was removed, moved or replaced, perhaps with the whole run"
            raise LockedError(f"{self._key}: {gone}. Another process could train this run now; this one must stop.")
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = f"{self._key}: the lock was lost, and another process trains this run now. This one must stop."
            raise LockedError(message) from error

    def _stands(self) -> bool:
        """Whether the file that is locked is still the one at its path; a lock on another one keeps nobody out."""
        assert self._descriptor is not None  # noqa: S101 - of a lock that is held
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._key))  # noqa: PTH116 - a key is no Path
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Releases the lock; a second call does nothing."""
        if self._descriptor is not None and _held_here.get(self._key) == os.getpid():
            del _held_here[self._key]
            os.close(self._descriptor)
        self._descriptor = None


def acquire(path: Path) -> WriterLock:
    """Takes the lock or refuses at once.

    Raises:
        LockedError: another process, or this one, holds it; the message names the holder.
    """
    key = os.path.realpath(path)
    if _held_here.get(key) == os.getpid():
        message = f"{path.parent}: this process has the run open already. Call finish() or close() on that Run first."
        raise LockedError(message)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 4096, 0).decode("utf-8", "replace").strip()
        os.close(descriptor)
        message = f"{path.parent}: another process is training this run: {_in_words(holder)}. Stop it, or wait for it."
        raise LockedError(message) from error
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _holder().encode(), 0)
    except OSError:  # a full disk: nobody holds the lock
        os.close(descriptor)
        raise
    _held_here[key] = os.getpid()
    return WriterLock(descriptor, key)


_QUERY = ("hhqqi8x", 0) if sys.platform.startswith("linux") else ("qqihh8x", 3)
"""How the system lays out `struct flock`, and where the lock's type stands in it."""


def is_held(path: Path) -> bool:
    """Whether a process holds the lock. Nothing is taken meanwhile, so that no writer is turned away.

    Raises:
        PermissionError: the file may not be read.
    """
    if _held_here.get(os.path.realpath(path)) == os.getpid():
        return True  # and must not be opened: closing it would free the lock
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    layout, at = _QUERY
    fields = [0] * 5
    fields[at] = fcntl.F_WRLCK
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, *fields))
    finally:
        os.close(descriptor)
    return struct.unpack(layout, answer)[at] != fcntl.F_UNLCK


def _holder() -> str:
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    boot = boot_id.read_text().strip() if boot_id.exists() else None
    return json.dumps({"host": socket.gethostname(), "boot_id": boot, "pid": os.getpid()}) + "\n"


def _in_words(holder: str) -> str:
    try:
        fields = json.loads(holder)
        return f"pid {fields['pid']} on {fields['host']}"
    except (ValueError, KeyError, TypeError):
        return "its entry in the lock file cannot be read"
