"""Environment variables that a run's record keeps, and what became of them at a resume."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.contract.arithmetic import VARIABLES
from perdure.contract.redaction import names_a_secret, redacted
from perdure.errors import UsageError

KNOWN = (
    *VARIABLES,
    "ATEN_CPU_CAPABILITY",
    "CUDA_VISIBLE_DEVICES",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DISABLE_JIT",
    "JAX_ENABLE_X64",
    "JAX_PLATFORMS",
    "MKL_CBWR",
    "NPY_DISABLE_CPU_FEATURES",
    "OPENBLAS_CORETYPE",
    "PYTHONHASHSEED",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Always kept: they choose devices and kernels, or the order of sets."""

_TOLD_ELSEWHERE = frozenset(VARIABLES)
"""Their changes are told as changes of the arithmetic."""


def checked_names(names: Any) -> tuple[str, ...]:
    """The names of variables that a script declares.

    Raises:
        UsageError: no list of names, or one that says that it holds a secret.
    """
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"variables={names!r}: a list of names, such as variables=['CUDA_VISIBLE_DEVICES'].")
    for name in names:
        if not name or set(name) & {"=", "\0"}:
            raise UsageError(f"variables: {name!r} is no name of an environment variable.")
        if names_a_secret(name):
            problem = "the name speaks of a secret, and values are written to disk"
            raise UsageError(f"variables: {name!r}: {problem}. Declare another variable.")
    return tuple(names)


def variables_now(names: Iterable[str] = ()) -> Mapping[str, str | None]:
    """Name -> value, without secrets, of the known variables and of the declared ones; None: not set."""
    values = {name: os.environ.get(name) for name in (*KNOWN, *names)}
    return {name: None if value is None else redacted(value) for name, value in sorted(values.items())}


def variables_before(
    recorded: Mapping[str, str | None] | None, history: Iterable[Mapping[str, Any]]
) -> dict[str, str | None] | None:
    """What they were when the run was opened last; None: a run from before they were kept."""
    if recorded is None:
        return None
    values = dict(recorded)
    for event in history:
        values |= event.get("variables", {}) if event["event"] == "resumed" else {}
    return values


def changes(before: Mapping[str, str | None] | None, now: Mapping[str, str | None]) -> dict[str, str | None]:
    """What the lineage keeps of a resume: the variables that have another value, by the new one."""
    if before is None:
        return {}
    return {name: value for name, value in now.items() if name not in before or before[name] != value}


def told_changes(before: Mapping[str, str | None] | None, changed: Mapping[str, str | None]) -> list[str]:
    """Changes in words; what was not looked at before, and what is told elsewhere, is none."""
    before = before or {}
    looked_at = (name for name in changed if name in before and name not in _TOLD_ELSEWHERE)
    return [
        f"environment variable changed: {name}: {_word(before.get(name))} then, {_word(changed[name])} now."
        for name in looked_at
    ]


def _word(value: str | None) -> str:
    return "not set" if value is None else repr(value)
