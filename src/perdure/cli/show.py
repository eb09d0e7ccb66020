"""`perdure show PATH`: what is in a run, a checkpoint or a policy, from its record and manifests alone."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perdure.cli import show_foreign, show_policy
from perdure.cli.curve import curve_of
from perdure.cli.exit_codes import ExitCode
from perdure.cli.metric_streams import count_rows
from perdure.cli.origin import code_text, launch_text
from perdure.cli.output import age, count, duration, print_json, print_table, size, value
from perdure.cli.targets import (
    POLICY_CLASS,
    CheckpointTarget,
    RunTarget,
    class_of,
    environment_of,
    find_policy,
    find_target,
    horizon_of,
    size_of,
)
from perdure.contract.sections import START
from perdure.errors import DamagedError, UsageError
from perdure.format.inventory import inventory
from perdure.format.manifest import Manifest
from perdure.interop.carried import ForeignKind
from perdure.interop.recognition import kind_of, known_kind
from perdure.runs.directory import RunDirectory
from perdure.runs.record import read_record
from perdure.runs.resumption import latest_launch, read_history
from perdure.runs.story import hours

NOTE = "Manifests are proven by their digests; tensor files are not read (`perdure verify` reads every byte)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    parser.epilog = NOTE
    parser.add_argument(
        "target",
        metavar="PATH",
        help="a run, a checkpoint, a policy, a role, RUN@STEP, or a file or directory of another library",
    )
    parser.add_argument(
        "--metric", metavar="NAME", help="of a run: what is drawn (default: the return, as in perdure ls)"
    )
    parser.add_argument("--leaves", action="store_true", help="of a checkpoint: every leaf")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Prints what is there.

    Raises:
        NoRunError: nothing is there.
        DamagedError: the record, or the manifest of a named checkpoint, is not what was written.
    """
    policy = find_policy(arguments.target)
    if policy is not None:
        return show_policy.run(policy, arguments)
    path = Path(arguments.target).expanduser()
    foreign = _foreign_kind(path)
    if foreign is not None:
        return show_foreign.run(path, foreign, arguments)
    target = find_target(arguments.target)
    if isinstance(target, CheckpointTarget):
        document, print_text = checkpoint_document(target, leaves=arguments.leaves), _print_checkpoint
    elif arguments.leaves:
        raise UsageError("show --leaves: give a checkpoint, for instance the newest in the run's checkpoints/.")
    else:
        document, print_text = run_document(target), _print_run
    if arguments.json:
        print_json(document)
        return ExitCode.DONE
    lines = curve_of(target.directory, arguments.metric) if isinstance(target, RunTarget) else []
    print_text(document)
    if lines:
        print("", *lines, sep="\n")
    return ExitCode.DONE


def _foreign_kind(path: Path) -> ForeignKind | None:
    """The kind of a file or directory of another library; None of what is perdure's, or nothing.

    Raises:
        NoCheckpointError: a file of no kind that is known.
    """
    is_run = RunDirectory(path).record.exists()
    kind = kind_of(path) if path.is_file() else None if is_run else known_kind(path)
    return kind if isinstance(kind, ForeignKind) else None


def run_document(target: RunTarget) -> dict[str, Any]:
    """All that is said of a run."""
    directory = target.directory
    record = read_record(directory.record)
    checkpoints = [_checkpoint_line(checkpoint) for checkpoint in target.checkpoints()]
    sound = [line for line in checkpoints if line["problem"] is None]
    newest = _newest_manifest(target)
    contract = newest.contract if newest else record.contract
    rows, last_row = count_rows(directory)
    return {
        "run": directory.path,
        "run_id": record.run_id,
        "created": record.created,
        "parent": record.parent,
        "launch": dict(latest_launch(record, read_history(directory)[0])),
        "env": environment_of(contract),
        "env_steps": sound[0]["env_steps"] if sound else None,
        "total_steps": horizon_of(contract),
        "continuation_class": sound[0]["continuation_class"] if sound else None,
        "size_bytes": size_of(directory.path),
        "checkpoints": checkpoints,
        "set_aside": sorted(path.name for path in directory.damaged.iterdir()) if directory.damaged.is_dir() else [],
        "policies": [policy.name for policy in target.policies()],
        "metrics_rows": rows,
        "last_metrics": last_row,
        "contract": {section: dict(keys) for section, keys in contract.items()},
        "amended": list(newest.amended) if newest else [],
        "trained_s": newest.trained_s if newest else None,
        "versions": dict(record.versions),
        "code": record.code,
        "variables": record.variables,
    }


def _newest_manifest(target: RunTarget) -> Manifest | None:
    for checkpoint in target.checkpoints():
        try:
            return checkpoint.manifest()
        except DamagedError:
            continue
    return None


def _checkpoint_line(checkpoint: CheckpointTarget) -> dict[str, Any]:
    try:
        manifest, problem = checkpoint.manifest(), None
    except DamagedError as error:
        manifest, problem = None, str(error)
    return {
        "name": checkpoint.name,
        "env_steps": manifest and manifest.env_steps,
        "updates": manifest and manifest.updates,
        "boundary": manifest and manifest.boundary,
        "continuation_class": manifest and manifest.fidelity,
        "size_bytes": manifest and manifest.size_bytes,
        "created": manifest and manifest.created,
        "state_digest": manifest and manifest.state_digest,
        "problem": problem,
    }


def _print_run(document: Mapping[str, Any]) -> None:
    steps, total = document["env_steps"], document["total_steps"]
    facts = [
        ("run", str(document["run"])),
        ("id", document["run_id"]),
        ("created", f"{document['created']} ({duration(age(document['created']))} ago)"),
        ("launched", launch_text(document["launch"])),
        ("code", code_text(document["code"])),
        ("environment", document["env"] or "not stated"),
        ("steps", _progress(steps, total)),
        ("trained", "–" if document["trained_s"] is None else hours(document["trained_s"])),
        ("class", class_of(document["continuation_class"]) if document["continuation_class"] else "–"),
        ("size", size(document["size_bytes"])),
        ("metrics", count(document["metrics_rows"], "row")),
    ]
    if document["policies"]:
        facts.append(("policies", f"{', '.join(document['policies'])}: {POLICY_CLASS}"))
    if document["set_aside"]:
        facts.append(("damaged", f"{len(document['set_aside'])} set aside: {', '.join(document['set_aside'])}"))
    if document["parent"]:
        facts.insert(2, ("forked from", f"{document['parent']['checkpoint']} of run {document['parent']['run_id']}"))
    facts += [("amended", text) for text in document["amended"]]
    print_table(facts)
    _print_checkpoints(document["checkpoints"])
    _print_mapping("last metrics", document["last_metrics"] or {})
    for section, keys in document["contract"].items():
        if section == START:
            continue
        _print_mapping(f"contract, {section}", keys)


def _progress(steps: int | None, total: int | None) -> str:
    if steps is None:
        return "no sound checkpoint"
    finished = " (finished)" if total is not None and steps >= total else ""
    return f"{steps:,}" + (f" of {total:,}{finished}" if total is not None else "")


def _print_checkpoints(checkpoints: list[dict[str, Any]]) -> None:
    print(f"\n{count(len(checkpoints), 'checkpoint')}, the newest first")
    head = ("NAME", "UPDATES", "CLASS", "SIZE", "AGE")
    sound = [line for line in checkpoints if line["problem"] is None]
    rows = [
        (
            line["name"],
            f"{line['updates']:,}",
            line["continuation_class"],
            size(line["size_bytes"]),
            duration(age(line["created"])),
        )
        for line in sound
    ]
    if rows:
        print_table([head, *rows], right=(1, 3, 4), indent="  ")
    for line in checkpoints:
        if line["problem"] is not None:
            print(f"  damaged: {line['problem']}")


def _print_mapping(title: str, mapping: Mapping[str, Any]) -> None:
    if mapping:
        print(f"\n{title}")
        print_table([(name, value(part)) for name, part in mapping.items()], indent="  ")


def checkpoint_document(target: CheckpointTarget, *, leaves: bool) -> dict[str, Any]:
    """All that is said of a checkpoint; `leaves` lists every leaf too."""
    manifest = target.manifest()
    document = {name: part for name, part in vars(manifest).items() if name not in ("components", "files", "contract")}
    document |= {
        "path": target.path,
        "continuation_class": manifest.fidelity,
        "size_bytes": manifest.size_bytes,
        "components": _components(manifest, leaves=leaves),
        "files": {name: vars(entry) for name, entry in manifest.files.items()},
        "contract": {section: dict(keys) for section, keys in manifest.contract.items()},
    }
    return document


def _components(manifest: Manifest, *, leaves: bool) -> dict[str, dict[str, Any]]:
    components = {}
    for name, entry in manifest.components.items():
        entries = inventory(name, entry)
        components[name] = {
            "adapter": entry.adapter,
            "continuation_class": entry.fidelity,
            "reason": entry.reason,
            "digest": entry.digest,
            "leaf_count": len(entries),
            "size_bytes": sum(leaf.size_bytes for leaf in entries),
        }
        if leaves:
            components[name]["leaves"] = [asdict(leaf) for leaf in entries]
    return components


def _print_checkpoint(document: Mapping[str, Any]) -> None:
    print_table(
        [
            ("checkpoint", str(document["path"])),
            ("run", document["run_id"] or "none: made by perdure.save or a conversion"),
            ("created", f"{document['created']} ({duration(age(document['created']))} ago)"),
            ("counters", f"env_steps {document['env_steps']:,}, updates {document['updates']:,}"),
            ("class", class_of(document["continuation_class"])),
            ("state", document["state_digest"]),
            ("arrays", f"{size(document['size_bytes'])} in {count(len(document['files']), 'file')}"),
            ("computed by", ", ".join(f"{name} {what}" for name, what in document["arithmetic"].items() if what)),
        ]
    )
    components = document["components"]
    print(f"\n{count(len(components), 'component')}")
    rows = [
        (name, part["adapter"], f"{part['leaf_count']:,}", size(part["size_bytes"]), part["continuation_class"])
        for name, part in components.items()
    ]
    print_table([("NAME", "ADAPTER", "LEAVES", "ARRAYS", "CLASS"), *rows], right=(2, 3), indent="  ")
    for name, part in components.items():
        if part["continuation_class"] != "exact-snapshot":
            print(f"  {name}: {part['reason']}")
    lines = [(leaf["path"], leaf["what"]) for part in components.values() for leaf in part.get("leaves", [])]
    if lines:
        print(f"\n{count(len(lines), 'leaf')}")
        print_table(lines, indent="  ")
