"""Loading policies: into modules that the caller built, compared with what the policy was trained for."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure.adapters.adapter import Adapter
from perdure.adapters.resolve import Resolver
from perdure.checkpoint.capture import Captured, Counters, capture
from perdure.checkpoint.policy import is_policy, open_policy
from perdure.checkpoint.restore import Conditions, restore
from perdure.contract.config import contract_of
from perdure.contract.facts import formatted
from perdure.contract.sections import SETTINGS
from perdure.contract.text import same
from perdure.errors import ContractError, Finding, NoCheckpointError, PolicyMismatchError, UsageError
from perdure.format.manifest import FILE_NAME as CHECKPOINT_FILE
from perdure.runs.environments import VERSION, environment_of
from perdure.runs.normaliser import NAME as NORMALISER
from perdure.runs.normaliser import Normaliser, normaliser_of
from perdure.runs.policies import store_of
from perdure.tree.diff import summary
from perdure.tree.leaves import owned

TRAINING_ONLY = frozenset({"training", ".frozen", "deterministic", "use_running_average"})
"""Settings of modules that say whether they are being trained: free in whoever only looks."""

ABSENT = "nothing"


class Policy:
    """A policy that was read and verified: weights for inference, and what they were trained for."""

    def __init__(self, path: str | os.PathLike[str], *, adapters: Sequence[tuple[type, Adapter]] = ()) -> None:
        """Reads it, every byte.

        Args:
            path: its directory.
            adapters: the user's own, as for `perdure.Run`.

        Raises:
            NoCheckpointError: there is no directory at `path`, or no policy in it.
            UsageError: a run or a checkpoint stands there.
            DamagedError: a file is not what was written.
        """
        self.path = Path(path)
        _check_place(path)
        self._opened, self._resolver = open_policy(*store_of(path)), Resolver(adapters)

    def __repr__(self) -> str:
        """Where it is, what is in it, and from which step."""
        return f"Policy({str(self.path)!r}: {', '.join(self.components)}, step {self.env_steps})"

    @property
    def components(self) -> tuple[str, ...]:
        """The names of its components, sorted."""
        return tuple(self._opened.snapshot.components)

    @property
    def normaliser(self) -> Normaliser | None:
        """What the run's environments normalised observations by, if they did and it is one for all of them."""
        return normaliser_of(self._opened.snapshot)

    @property
    def env_steps(self) -> int:
        """Environment steps at the boundary that it comes from."""
        return self._opened.manifest.env_steps

    @property
    def digest(self) -> str:
        """The digest that names the whole policy."""
        return self._opened.digest

    @property
    def environment(self) -> dict[str, str]:
        """What it was trained to see and do: spaces, id and arguments of the environment, levels by content."""
        return dict(self._opened.manifest.environment)

    @property
    def wrappers(self) -> tuple[str, ...]:
        """The classes around one environment, the outermost first."""
        return tuple(self._opened.manifest.wrappers)

    @property
    def contract(self) -> dict[str, dict[str, Any]]:
        """The run's contract: section -> key -> plain value."""
        return {section: dict(keys) for section, keys in self._opened.manifest.contract.items()}

    @property
    def launch(self) -> dict[str, Any] | None:
        """The record of the trainer that trained it; None: a script of somebody's own."""
        launch = self._opened.manifest.launch
        return None if launch is None else dict(launch)

    @property
    def facts(self) -> dict[str, dict[str, str]]:
        """By component: classes and functions in it, by path."""
        return {name: dict(part.facts) for name, part in self._opened.snapshot.components.items()}

    @property
    def left_out(self) -> dict[str, str]:
        """The run's other components -> what captured them: what a resume would need."""
        return dict(self._opened.manifest.left_out)

    def load(self, *, env: Any = None, **targets: Any) -> dict[str, Any]:
        """Restores its components, all or none. See `perdure.load_policy`."""
        self._check_names(targets)
        fresh = capture(targets, self._resolver, Counters())
        findings = [*self._settings(fresh), *self._of_environment(env)]
        snapshot = self._opened.snapshot
        # Values adopt what they are given, and this policy may be asked again.
        parts = {
            name: replace(snapshot.components[name], tree=owned(snapshot.components[name].tree)) for name in targets
        }
        conditions = Conditions(findings, fresh=fresh)
        try:
            wanted = replace(snapshot, components=parts)
            objects = restore(wanted, targets, self._resolver, str(self.path), conditions=conditions).objects
        except ContractError as error:
            raise PolicyMismatchError(str(self.path), list(map(_without_acceptance, error.findings))) from error
        return objects if self.normaliser is None else {**objects, NORMALISER: self.normaliser}

    def check(self, *, env: Any = None, contract: Mapping[str, Any] | None = None) -> None:
        """Compares an environment with the one that the policy was trained in; a missing key is a difference.

        Args:
            env: one of Gymnasium's, with the wrappers that the run had; or a vector of such. It is not stepped.
            contract: what the run declared in the sections `interface` and `env`, as `Run(contract=…)` took it.

        Raises:
            PolicyMismatchError: they differ; all differences at once.
        """
        findings = self._of_environment(env)
        declared = contract_of(None, own=contract or {})
        for section in ("interface", "env"):
            findings += _compared(section, self.contract.get(section, {}), declared.get(section, {}))
        if findings:
            raise PolicyMismatchError(str(self.path), findings)

    def _of_environment(self, env: Any) -> list[Finding]:
        if env is None:
            return []
        captured = capture({"env": env}, self._resolver, Counters())
        return _compared("environment", self.environment, environment_of(captured.snapshot.components["env"]))

    def _check_names(self, targets: Mapping[str, Any]) -> None:
        names = set(self.components) - ({NORMALISER} if self.normaliser is not None else set())
        unknown, missing = sorted(targets.keys() - names), sorted(names - targets.keys())
        if unknown == [NORMALISER] and self.normaliser is not None:
            raise UsageError(f"{self.path}: {NORMALISER} needs no target: it is handed back.")
        if unknown:
            raise UsageError(f"{self.path}: {unknown} are no components; the policy has {list(self.components)}.")
        if missing:
            more = ", ".join(f"{name}=…" for name in missing)
            raise UsageError(f"{self.path}: {missing} were not handed in; a policy is loaded whole ({more}).")

    def _settings(self, fresh: Captured) -> Iterator[Finding]:
        """Plain values that were chosen when the run built its modules and were chosen otherwise here."""
        saved, found = self.contract.get(SETTINGS, {}), formatted(fresh.settings)
        for path in sorted(saved.keys() & found.keys()):
            if path.rpartition("/")[2] not in TRAINING_ONLY and not same(saved[path], found[path]):
                yield Finding(path, summary(saved[path]), summary(found[path]), _ADVICE["module"], "interface")


def load_policy(
    path: str | os.PathLike[str],
    *,
    env: Any = None,
    adapters: Sequence[tuple[type, Adapter]] = (),
    **targets: Any,
) -> dict[str, Any]:
    """Loads a policy into modules that the caller built, on whatever device they are: all of them, or none.

    Neither the trainer nor the environment's package is needed, only the modules' own framework.

    Args:
        path: the policy's directory.
        env: an environment that the policy is to act in; it is compared with the one that the policy was trained in.
        adapters: the user's own, as for `perdure.Run`.
        **targets: one for every component of the policy but the normaliser. Modules are filled in place and are then
            in the mode that the run had them in: call `eval()`.

    Returns:
        By component name: the module itself, or the new value; and the `Normaliser` that the policy holds, if it does,
        as `observation_normaliser`, for which no target is handed in.

    Raises:
        NoCheckpointError: there is no policy at `path`.
        UsageError: a run or a checkpoint stands there, or the components have other names.
        DamagedError: a file is not what was written.
        PolicyMismatchError: a module or the environment differs from the run's; nothing was changed.
    """
    return Policy(path, adapters=adapters).load(env=env, **targets)


def _compared(section: str, saved: Mapping[str, Any], found: Mapping[str, Any]) -> list[Finding]:
    """Every difference; a key that one side lacks is one."""
    return [
        Finding(
            f"{section}.{key}",
            summary(saved[key]) if key in saved else ABSENT,
            summary(found[key]) if key in found else ABSENT,
            _ADVICE["levels" if key.startswith("levels") else "else"],
            "interface",
            "The policy would see, or do, something else.",
        )
        for key in sorted((saved.keys() | found.keys()) - {VERSION})
        if not (key in saved and key in found and same(saved[key], found[key]))
    ]


def _without_acceptance(finding: Finding) -> Finding:
    """A difference that a resume could accept, as it is told of a policy: there nothing can be accepted."""
    return finding if finding.change is None else replace(finding, change=None, meaning="", advice=_ADVICE["module"])


_ADVICE = {
    "module": "Build the module as the run did.",
    "levels": "Play the levels that it was trained on, byte for byte.",
    "else": "Build the environment as the run did.",
}


def _check_place(path: str | os.PathLike[str]) -> None:
    directory = Path(path).expanduser()
    if not directory.is_dir():
        raise NoCheckpointError(f"{path}: no such directory.")
    if is_policy(directory):
        return
    for file, what in (("run.json", "a run"), (CHECKPOINT_FILE, "a checkpoint")):
        if (directory / file).exists():
            way_out = f"Make a policy of it: perdure export {path} --to PATH."
            raise UsageError(f"{path}: {what}, not a policy. {way_out}")
    raise NoCheckpointError(f"{path}: not a policy (no POLICY.json in it).")
