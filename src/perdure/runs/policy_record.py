"""What a policy's manifest says of its run; and policies made of checkpoints."""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.checkpoint.opening import open_checkpoint, read_manifest
from perdure.checkpoint.policy import PolicyAbout, save_policy
from perdure.contract.sections import SETTINGS, START
from perdure.errors import UsageError
from perdure.format.manifest import ComponentEntry
from perdure.format.nodes import decode_made
from perdure.runs.environments import (
    ADAPTERS,
    environment_of,
    main_environment,
    main_environment_name,
    wrappers_of,
)
from perdure.runs.normaliser import GYMNASIUM, SB3, with_normaliser
from perdure.store.local import LocalStore
from perdure.tree.snapshot import Component, Snapshot


def export_checkpoint(
    store: LocalStore,
    name: str,
    components: Sequence[str],
    to: tuple[LocalStore, str],
    *,
    launch: Mapping[str, Any] | None,
) -> tuple[list[str], str | None]:
    """Makes a policy of components of a checkpoint; returns what is in it, and what to tell of what is not.

    Args:
        store: where the checkpoint stands.
        name: its name.
        components: which of its components.
        to: where the policy is to stand, and its name.
        launch: how the run was launched.

    Raises:
        UsageError: there are no such components, or one shares objects with a component that is left out.
        DamagedError: the checkpoint is damaged.
        CommitError: the policy could not be written, or something stands there.
    """
    manifest, digest = read_manifest(store, name)
    unknown = sorted(set(components) - manifest.components.keys())
    if unknown or not components:
        listed = ", ".join(f"{part} ({entry.adapter})" for part, entry in sorted(manifest.components.items()))
        problem = f"{unknown} are no components" if unknown else "say which components are the policy"
        raise UsageError(f"{name}: {problem}; the checkpoint has {listed}.")
    environments = [part for part, entry in manifest.components.items() if entry.adapter in ADAPTERS]
    others = {part: _component(part, manifest.components[part]) for part in environments}
    state = _chosen(store, name, components)
    about = about_of(
        state,
        others,
        {part: entry.adapter for part, entry in manifest.components.items()},
        run_id=manifest.run_id,
        checkpoint=(name, digest),
        contract=manifest.contract,
        launch=launch,
        amended=manifest.amended,
        versions=manifest.arithmetic,
    )
    state, problem = _normalised(store, name, state, about.wrappers, main_environment_name(others))
    save_policy(*to, state, about)
    return sorted(state.components), None if problem is None else not_exported(problem)


def _chosen(store: LocalStore, name: str, components: Sequence[str]) -> Snapshot:
    """The components alone; what they share with others may stand in these."""
    try:
        return open_checkpoint(store, name, only=sorted(set(components))).snapshot
    except UsageError as error:
        raise UsageError(
            f"{name}: {error} A policy that stands alone is made in the script, which has the objects: "
            f"run.export_policy(components={sorted(set(components))})."
        ) from error


def not_exported(problem: str) -> str:
    """What to tell where observations are normalised by what a policy cannot hold."""
    return (
        f"the statistics that observations are normalised by are not in the policy: {problem}. It acts wrongly without "
        "them. Normalise the vector as a whole, or keep a normaliser as a component (docs/policies.md)."
    )


def _normalised(
    store: LocalStore, name: str, state: Snapshot, wrappers: Sequence[str], env: str | None
) -> tuple[Snapshot, str | None]:
    """The state with the normaliser of the environments, which are read only if they have one."""
    if env is None or not {GYMNASIUM, SB3} & set(wrappers):
        return state, None
    try:
        environments = open_checkpoint(store, name, only=sorted({env, *state.components})).snapshot  # they share spaces
    except UsageError as error:
        return state, f"the environments share objects with other components ({error})"
    return with_normaliser(state, environments)


def _component(name: str, entry: ComponentEntry) -> Component:
    """An environment as its manifest describes it; of its state, only the classes are looked at."""
    made = decode_made(entry.made, (name,))
    return Component(entry.adapter, _classes(entry.tree), entry.facts, entry.fidelity, entry.reason, made)


def _classes(node: Any) -> Any:
    """The dicts, lists and texts of an encoded node; arrays are not read."""
    if isinstance(node, dict) and "dict" in node:
        return {key: _classes(child) for key, child in node["dict"] if isinstance(key, str)}
    if isinstance(node, dict) and "list" in node:
        return [_classes(child) for child in node["list"]]
    return node if isinstance(node, str) else None


def about_of(
    snapshot: Snapshot,
    others: Mapping[str, Component],
    adapters: Mapping[str, str],
    *,
    run_id: str | None,
    checkpoint: tuple[str, str] | None,
    contract: Mapping[str, Mapping[str, Any]],
    launch: Mapping[str, Any] | None,
    amended: Sequence[str],
    versions: Mapping[str, str],
) -> PolicyAbout:
    """What a policy's manifest says, from the run or checkpoint that it comes from.

    Args:
        snapshot: the policy's components.
        others: the run's components, environments at least, whose facts tell what the policy sees.
        adapters: those of all components of the run.
        run_id: the run; None: the checkpoint stands alone.
        checkpoint: name and digest of the checkpoint that holds the same components.
        contract: the run's.
        launch: how the run was launched.
        amended: what was accepted.
        versions: what computed it.
    """
    environment = main_environment(others)
    return PolicyAbout(
        run_id=run_id,
        checkpoint=checkpoint[0] if checkpoint else None,
        checkpoint_digest=checkpoint[1] if checkpoint else None,
        environment=environment_of(environment) if environment else {},
        wrappers=wrappers_of(environment) if environment else (),
        contract=_of_components(contract, snapshot.components),
        left_out={name: adapter for name, adapter in adapters.items() if name not in snapshot.components},
        launch=dict(launch) if launch and launch.get("kind") == "trainer" else None,
        arithmetic=dict(versions),
        amended=tuple(amended),
    )


def _of_components(contract: Mapping[str, Mapping[str, Any]], names: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The contract without the start's numbers, and without settings of other components."""
    kept = {section: dict(keys) for section, keys in contract.items() if section != START}
    settings = kept.pop(SETTINGS, {})
    own = {path: value for path, value in settings.items() if path.partition("/")[0] in names}
    return {**kept, SETTINGS: own} if own else kept
