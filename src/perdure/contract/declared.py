"""Declared parts of a contract: files count by their content, environment variables by their value."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.errors import UsageError
from perdure.format.digests import Digest

_PIECE_BYTES = 1 << 20
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY", re.IGNORECASE)


@dataclass(frozen=True)
class File:
    """A file or a folder that shapes the training: a level pool, a jar, reward code.

    It counts by what is in it: moving or touching it changes nothing, one other byte does. A folder counts by the
    relative paths and contents of all files in it.

    ```python
    run = perdure.Run("runs/x", config=args, contract={"env": {"levels": perdure.File("levels/")}})
    ```
    """

    path: str | os.PathLike[str]
    """Where it is now; no part of the contract."""

    def fact(self) -> str:
        """What is compared: `xxh3_128:…, 1234 bytes`.

        Raises:
            UsageError: there is nothing at the path, or it cannot be read.
        """
        _check_path(self.path)
        try:
            path = Path(self.path).expanduser()
            if path.is_dir():
                return _of_folder(path)
            digest = _digest_of(path)
        except OSError as error:
            raise UsageError(
                f"File({str(self.path)!r}): {error.strerror}. Give the path of a file or folder."
            ) from error
        except (RuntimeError, ValueError) as error:  # a user's folder that is not known; a zero byte
            problem = str(error).rstrip(".")
            raise UsageError(f"File({self.path!r}): {problem}. Give the path of a file or folder.") from error
        return f"{digest.text()},{digest.length}bytes"


def _check_path(path: Any) -> None:
    if not isinstance(path, str | os.PathLike) or path == "":
        raise UsageError(f"File({path!r}): no path. Give the path of a file or folder, as a text or a pathlib.Path.")


def _of_folder(folder: Path) -> str:
    whole, count = Digest(), 0
    for path in _files_below(folder):
        name = path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
        whole.update(b"%d %b %b\n" % (len(name), name, _digest_of(path).text().encode()))
        count += 1
    return f"{whole.text()},{count}files"


def _files_below(folder: Path) -> list[Path]:
    """Every file, links to folders followed, in the order of their paths.

    Raises:
        UsageError: a folder contains itself by a link, or there is something that is no file (a pipe).
    """
    found: list[Path] = []
    for place, folders, files in os.walk(folder, followlinks=True, onerror=_raise):
        for name in folders:
            if Path(place).resolve().is_relative_to((Path(place) / name).resolve()):
                raise UsageError(f"File({str(folder)!r}): {Path(place) / name} leads back to a folder around it.")
        found += [Path(place) / name for name in files]
    for path in found:
        if path.exists() and not path.is_file():
            raise UsageError(f"File({str(folder)!r}): {path} is neither a file nor a folder.")
    return sorted(found, key=lambda path: path.parts)


def _raise(error: OSError) -> None:
    raise error


def _digest_of(path: Path) -> Digest:
    digest = Digest()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest


@dataclass(frozen=True)
class EnvironmentVariable:
    """An environment variable that shapes the training. Its value becomes part of the run's files.

    ```python
    contract={"env": {"java_options": perdure.EnvironmentVariable("JAVA_OPTS")}}
    ```
    """

    name: str
    """Its name."""

    def fact(self) -> str | None:
        """Its value; None if it is not set.

        Raises:
            UsageError: its name says that it holds a secret, which must not be copied into a run.
        """
        if not isinstance(self.name, str) or not self.name or set(self.name) & {"=", "\0"}:
            problem = "no name of a variable. Give one as a text, such as EnvironmentVariable('JAVA_OPTS')."
            raise UsageError(f"EnvironmentVariable({self.name!r}): {problem}")
        if _SECRET.search(self.name):
            message = (
                f"EnvironmentVariable({self.name!r}): the name speaks of a secret, and values are written to disk."
            )
            raise UsageError(f"{message} Declare another variable.")
        return os.environ.get(self.name)
