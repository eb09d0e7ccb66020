"""Which code a run was launched with: the commit, the branch, and what was not committed, without its secrets."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from perdure.contract.redaction import redacted
from perdure.format.digests import digest_of

LIMIT_S = 5.0
"""For all questions to git together."""
MOST_BYTES = 1 << 20
"""Of a patch; a longer one is not kept, for a part of it would apply to nothing."""
MOST_NAMES = 200
"""Of files that git does not track."""

SECRET_FILES = (".env*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_ed25519*", ".netrc", ".pypirc")
SECRET_FILES += (".npmrc", ".git-credentials", "*credential*", "*secret*", "*password*", "*token*.txt", "*.kdbx")
"""Names of files whose changes are not kept, whatever they are."""

_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
_PLAIN = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=true", "-c", "color.ui=false")


@dataclass(frozen=True)
class Code:
    """What git says."""

    commit: str
    """The commit's id."""
    branch: str | None
    """None: no branch was checked out."""
    remote: str | None
    """The URL of `origin`, without credentials."""
    dirty: bool
    """Whether tracked files differ from the commit."""
    untracked: tuple[str, ...]
    """Names of files that git does not track (and does not ignore), at most `MOST_NAMES`; they are not copied."""
    left_out: tuple[str, ...]
    """Names of changed files that may hold secrets: their changes are not in the patch."""
    patch: str | None
    """What differs from the commit, redacted; None: nothing, or too much."""
    patch_bytes: int
    """How long the patch was before it was redacted, kept or not."""

    def facts(self) -> dict[str, Any]:
        """What the run's record keeps."""
        facts = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        del facts["patch"]
        return {**facts, "patch_digest": self.patch and digest_of(self.patch.encode())}


@lru_cache(maxsize=4)
def code_at_launch(folder: str) -> Code | None:
    """The code that a process was launched in `folder` with; asked once, for what is loaded stays what it is.

    Where the folder belongs to no repository, the one that holds the script counts.
    """
    found = code_in(Path(folder))
    script = Path(folder) / sys.argv[0] if sys.argv[:1] not in ([], [""], ["-c"], ["-"]) else None
    return code_in(script.parent) if found is None and script is not None and script.suffix == ".py" else found


def code_in(folder: Path) -> Code | None:
    """The state of the repository that a folder is in; None: there is none, no commit, no git, or it takes long."""
    ask = _Git(folder, time.monotonic() + LIMIT_S)
    try:
        return _asked(ask)
    except (OSError, subprocess.SubprocessError):
        return None


def _asked(ask: "_Git") -> Code:
    commit = ask("rev-parse", "--verify", "HEAD").strip()
    top = ask("rev-parse", "--show-toplevel").rstrip("\n")
    status = [entry for entry in ask("status", "--porcelain=v1", "-z", "--no-renames").split("\0") if entry]
    changed = [entry[3:] for entry in status if not entry.startswith("??")]
    untracked = [redacted(entry[3:]) for entry in status if entry.startswith("??")]
    left_out = tuple(redacted(name) for name in changed if may_hold_secrets(name))
    kept = [name for name in changed if not may_hold_secrets(name)]
    patch = _diff(ask, top, kept) if kept else ""
    size = len(patch.encode())
    return Code(
        commit=commit,
        branch=ask.maybe("symbolic-ref", "--short", "-q", "HEAD"),
        remote=_redacted_or_none(ask.maybe("config", "--get", "remote.origin.url")),
        dirty=bool(changed),
        untracked=tuple(untracked[:MOST_NAMES]),
        left_out=left_out,
        patch=redacted(patch) if 0 < size <= MOST_BYTES else None,
        patch_bytes=size,
    )


def _diff(ask: "_Git", top: str, names: list[str]) -> str:
    """The differences of these files; all but the secret ones, where they are too many for a command line."""
    plain = ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color")
    if sum(map(len, names)) < 50_000:
        return ask("-C", top, *plain, "--", *(f":(top,literal){name}" for name in names))
    excluded = (f":(top,exclude,icase,glob)**/{pattern}" for pattern in SECRET_FILES)
    return ask("-C", top, *plain, "--", ":(top)", *excluded)


def may_hold_secrets(name: str) -> bool:
    """Whether a file's name, or that of a folder above it, says that it may hold secrets."""
    return any(fnmatchcase(part.lower(), pattern) for part in name.split("/") for pattern in SECRET_FILES)


def _redacted_or_none(text: str | None) -> str | None:
    return None if text is None else redacted(text)


class _Git:
    """Asks git in child processes, all of them together within a deadline."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self._folder = folder
        self._deadline = deadline

    def __call__(self, *words: str) -> str:
        """What git answers.

        Raises:
            OSError: there is no git, or no such folder.
            subprocess.SubprocessError: git refuses, or it takes too long.
        """
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise subprocess.TimeoutExpired("git", LIMIT_S)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        answer = subprocess.run(
            ["git", *_PLAIN, *words],
            cwd=self._folder,
            env={**environment, **_QUIET},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=left_s,
            check=True,
        )
        return answer.stdout.decode("utf-8", "replace")

    def maybe(self, *words: str) -> str | None:
        """The same for a question that may have no answer."""
        try:
            return self(*words).strip() or None
        except subprocess.CalledProcessError:
            return None


def code_before(recorded: Mapping[str, Any] | None, history: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """What was told of the code last; None: it is not known."""
    told = [event["code"] for event in history if event["event"] == "resumed" and event.get("code")]
    return told[-1] if told else recorded


def told_changes(before: Mapping[str, Any] | None, now: Code | None) -> list[str]:
    """What changed in the code since it was last told, in words; nothing where one of the two is not known."""
    if before is None or now is None:
        return []
    then = now.facts()
    if before["commit"] != now.commit:
        named = f" (branch {before['branch']} then, {now.branch} now)" if before["branch"] != now.branch else ""
        return [f"the code changed: commit {before['commit'][:12]} then, {now.commit[:12]} now{named}."]
    if (before["patch_digest"], before["patch_bytes"]) != (then["patch_digest"], then["patch_bytes"]):
        return [f"the code changed: what is not committed is not the same as before, on commit {now.commit[:12]}."]
    return []
