"""Roles: names such as `production`, each of which stands for one policy at a time."""

import os
from pathlib import Path

from perdure.checkpoint.policy import read_policy_manifest
from perdure.errors import DamagedError, NoCheckpointError, UsageError
from perdure.format.role import FILE_NAME, Promotion, decode_role, is_role_name
from perdure.runs.directory import steps_of
from perdure.store.local import LocalStore

DAMAGED = "damaged"


def policy_path(folder: str | os.PathLike[str], role: str) -> Path:
    """The directory of the policy that has a role now: what a deployment loads.

    ```python
    perdure.load_policy(perdure.policy_path("runs/policies", "production"), agent=agent)
    ```

    A promotion that happens meanwhile does not harm: the policy of before stays where it is.

    Args:
        folder: where roles stand: `--to` of `perdure promote`, or `policies` beside the runs.
        role: the role's name.

    Raises:
        UsageError: no role can have this name.
        NoCheckpointError: there is no such role, or its policy is gone.
        DamagedError: the role's file is damaged, or another policy stands in the place of the promoted one.
    """
    check_role_name(role)
    place = Path(folder).expanduser()
    if not is_role(place / role):
        roles = ", ".join(roles_in(place)) or "none"
        raise NoCheckpointError(f"{place / role}: no such role; there are: {roles}.")
    return current_policy(place / role)


def roles_in(folder: Path) -> list[str]:
    """The names of the roles in a folder, sorted; none if there is no folder."""
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE_NAME}"))


def is_role(path: Path) -> bool:
    """Whether a role stands at `path`, intact or not."""
    return (path / FILE_NAME).is_file()


def read_role(path: Path) -> tuple[Promotion, ...]:
    """Every promotion to the role at `path`, the oldest first; none if nothing was promoted yet.

    Raises:
        DamagedError: its file is not what was written, or was moved here from another role.
    """
    file = path / FILE_NAME
    if not file.exists():
        return ()
    try:
        name, history = decode_role(file.read_bytes())
    except DamagedError as error:
        raise type(error)(f"{path}: {error}. {_UNTOUCHED}") from error
    if name != path.name:
        raise DamagedError(f"{path}: {FILE_NAME}: written for the role {name!r}. {_UNTOUCHED}")
    return history


_UNTOUCHED = (
    "The policies beside it do not depend on it: load one by its own path. To promote again, move the file away first; "
    "a new history begins."
)


def current_policy(path: Path) -> Path:
    """The policy that the role at `path` names.

    Raises:
        NoCheckpointError: it is gone.
        DamagedError: the role's file is damaged, or another policy stands in its place.
    """
    now = read_role(path)[-1]
    place = path / now.policy
    if not place.is_dir():
        way_out = "Put it back, or promote another one."
        raise NoCheckpointError(f"{path}: names the policy {now.policy}, which is gone. {way_out}")
    if read_policy_manifest(LocalStore(path, path / DAMAGED), now.policy)[1] != now.digest:
        raise DamagedError(f"{place}: another policy than the one that was promoted ({FILE_NAME} has its digest)")
    return place


def resolved(path: Path) -> Path:
    """The policy's own path where `path` is a role's; else the path as it is.

    Raises:
        NoCheckpointError: see `current_policy`.
        DamagedError: see there.
    """
    return current_policy(path) if is_role(path) else path


def check_role_name(role: str) -> None:
    """Refuses what cannot be a folder of its own beside checkpoints and policies.

    Raises:
        UsageError: it cannot.
    """
    if not isinstance(role, str) or not is_role_name(role) or role == DAMAGED or steps_of(role) is not None:
        problem = "letters, digits, `.`, `_` and `-`, the first a letter or digit, and no name of a checkpoint"
        raise UsageError(f"role {role!r}: a role's name is {problem}; such as production.")
