"""Which Python a command runs under: outside of an activated environment, `python` is another than perdure's."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perdure.errors import UsageError
from perdure.proof.processes import ScriptError

_MISSING = "No module named"


@contextmanager
def naming_interpreter(command: Sequence[str]) -> Iterator[None]:
    """Where a script's error is a missing module, adds that it ran under another Python than this one.

    Raises:
        ScriptError: as raised within.
        UsageError: as raised within.
    """
    try:
        yield
    except (ScriptError, UsageError) as error:
        other = other_interpreter(command)
        if other is None or _MISSING not in str(error):
            raise
        raise type(error)(
            f"{error}\n{command[0]} is {other}, and perdure runs under {sys.executable}: activate its environment, or "
            "name that Python in the command."
        ) from error


def other_interpreter(command: Sequence[str]) -> Path | None:
    """The Python that the command's first word starts, if it is another than this one."""
    found = shutil.which(command[0])
    if found is None or not Path(found).name.startswith("python"):
        return None
    path = Path(found).absolute()
    return None if path.parent.samefile(Path(sys.executable).parent) else path
