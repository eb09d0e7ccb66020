"""The run's record, `run.json`: who it is, how it was launched, what it must stay the same in."""

import secrets
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any

from perdure.contract.redaction import redacted_words
from perdure.errors import DamagedError, NoRunError, UnsupportedVersionError
from perdure.format import canonical
from perdure.format.digests import digest_of
from perdure.format.manifest import decode_contract, encode_contract
from perdure.store.small_files import replace_durably

VERSION = 0

START_DIRECTORY = str(Path.cwd())
"""Where the process stood when perdure was imported: scripts may change their directory before they open a run."""


@dataclass(frozen=True)
class RunRecord:
    """What `run.json` holds. Written once, when the run begins."""

    run_id: str
    """Random, 32 hex digits."""
    created: str
    """Wall-clock time, ISO 8601 in UTC."""
    launch: Mapping[str, Any]
    """`{kind: trainer, name, config}` or `{kind: script, argv, cwd}`; of a command with secrets `withheld`, no argv."""
    contract: Mapping[str, Mapping[str, Any]]
    """What a resume is compared with."""
    versions: Mapping[str, str]
    """Of Python and of the libraries that were loaded."""
    parent: Mapping[str, Any] | None = None
    """The checkpoint that this run was forked from: `{run_id, checkpoint, digest}`; None: it began by itself."""
    code: Mapping[str, Any] | None = None
    """The commit and what was not committed (`runs/code.py`); None: nobody can tell."""
    variables: Mapping[str, str | None] | None = None
    """Environment variables (`runs/variables.py`); None: a fork, or a run from before they were kept."""


def new_record(
    launch: Mapping[str, Any] | None,
    contract: Mapping[str, Mapping[str, Any]],
    versions: Mapping[str, str],
    code: Mapping[str, Any] | None = None,
    variables: Mapping[str, str | None] | None = None,
) -> RunRecord:
    """The record of a run that begins now; its id is drawn from the operating system."""
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    return RunRecord(new_run_id(), created, launch_of(launch), contract, versions, None, code, variables)


def new_run_id() -> str:
    """32 random hex digits, drawn from the operating system: no generator of the training is touched."""
    return secrets.token_hex(16)


def launch_of(launch: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """How this process was launched: as a trainer says, else by its command line.

    A command line that holds a secret is not kept: `perdure resume` executes what is kept, so a part of it would start
    something else. It asks for the command then, and shows it without the secret.
    """
    launch = launch or _this_script()
    argv = launch.get("argv") if launch.get("kind") == "script" else None
    shown = redacted_words(argv) if argv else argv
    return launch if shown == argv else {**launch, "argv": [], "withheld": shlex.join(shown or [])}


def _this_script() -> dict[str, Any]:
    # `python - < script`: nothing that could be started again; `perdure resume` asks for the command.
    argv = [] if sys.argv[:1] in ([], [""], ["-"]) else [sys.executable, *sys.orig_argv[1:]]
    return {"kind": "script", "argv": argv, "cwd": START_DIRECTORY}


def write_record(path: Path, record: RunRecord) -> None:
    """Writes the record durably, with its own digest."""
    document = {**vars(record), "contract": encode_contract(record.contract), "version": VERSION}
    replace_durably(path, canonical.encode({**document, "digest": digest_of(canonical.encode(document))}))


def read_record(path: Path) -> RunRecord:
    """The record at `path`.

    Raises:
        NoRunError: there is none: the directory is missing, or is no run.
        DamagedError: it is not what was written.
    """
    if not path.parent.is_dir():
        raise NoRunError(f"{path.parent}: no such directory. Check the spelling; `perdure ls` lists runs.")
    if not path.exists():
        raise NoRunError(f"{path.parent}: not a run (no {path.name} in it). Check the spelling.")
    document = canonical.decode(path.read_bytes(), str(path))
    digest = document.pop("digest", None) if isinstance(document, dict) else None
    if digest is None or digest != digest_of(canonical.encode(document)):
        message = f"{path}: its digest does not match its text. The checkpoints can still be read with perdure.read."
        raise DamagedError(message)
    _check(document, path)
    del document["version"]
    return RunRecord(**{**document, "contract": decode_contract(document["contract"], str(path))})


_TYPES = {
    "run_id": (str,),
    "created": (str,),
    "launch": (dict,),
    "contract": (dict,),
    "versions": (dict,),
    "parent": (dict, NoneType),
    "code": (dict, NoneType),
    "variables": (dict, NoneType),
    "version": (int,),
}
_NEWER = frozenset({"code", "variables"})
"""Fields that records from before lack."""


def _check(document: dict[str, Any], path: Path) -> None:
    version = document.get("version")
    if type(version) is int and version > VERSION:
        raise UnsupportedVersionError(f"{path}: version {version}; this perdure reads {VERSION}.")
    for name in sorted((document.keys() ^ _TYPES.keys()) - (_NEWER - document.keys())):
        raise DamagedError(f"{path}: {'a field is missing' if name in _TYPES else 'unknown field'}: {name[:80]}")
    for name, kind in _TYPES.items():
        if name in document and type(document[name]) not in kind:
            raise DamagedError(f"{path}: field {name} is a {type(document[name]).__name__}")
    if version != VERSION:
        raise DamagedError(f"{path}: version {version}; this perdure reads {VERSION}.")
