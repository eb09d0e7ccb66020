"""`perdure show` of a policy."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import age, count, duration, print_json, print_table, size, value
from perdure.cli.targets import POLICY_CLASS, PolicyTarget
from perdure.format.inventory import inventory
from perdure.runs.roles import is_role, read_role


def run(policy: PolicyTarget, arguments: argparse.Namespace) -> int:
    """Prints what is there.

    Raises:
        DamagedError: its manifest, or the role's file, is not what was written.
    """
    document = policy_document(policy, leaves=arguments.leaves)
    place = Path(arguments.target).expanduser().resolve()
    if is_role(place):
        history = [vars(promotion) for promotion in read_role(place)]
        document["role"] = {"name": place.name, "path": place, "history": history}
    if arguments.json:
        print_json(document)
    else:
        _print(document)
    return ExitCode.DONE


def policy_document(policy: PolicyTarget, *, leaves: bool) -> dict[str, Any]:
    """All that is said of a policy; `leaves` lists every leaf too."""
    manifest = policy.manifest()
    components = {}
    for name, entry in manifest.components.items():
        entries = inventory(name, entry)
        sizes = sum(leaf.size_bytes for leaf in entries)
        components[name] = {"adapter": entry.adapter, "leaf_count": len(entries), "size_bytes": sizes}
        if leaves:
            components[name]["leaves"] = [asdict(leaf) for leaf in entries]
    told = {name: part for name, part in vars(manifest).items() if name not in ("components", "files", "contract")}
    return {
        **told,
        "kind": "policy",
        "path": policy.path,
        "size_bytes": manifest.size_bytes,
        "components": components,
        "files": {name: vars(entry) for name, entry in manifest.files.items()},
        "contract": {section: dict(keys) for section, keys in manifest.contract.items()},
    }


def _print(document: Mapping[str, Any]) -> None:
    missing = ", ".join(f"{name} ({adapter})" for name, adapter in sorted(document["left_out"].items()))
    facts = [
        ("policy", str(document["path"])),
        ("class", POLICY_CLASS),
        ("run", document["run_id"] or "none: its checkpoint stood alone"),
        ("checkpoint", document["checkpoint"] or "none holds the same"),
        ("created", f"{document['created']} ({duration(age(document['created']))} ago)"),
        ("counters", f"env_steps {document['env_steps']:,}, updates {document['updates']:,}"),
        ("arrays", f"{size(document['size_bytes'])} in {count(len(document['files']), 'file')}"),
        ("left out", missing or "nothing"),
    ]
    print_table([*facts, *(("amended", text) for text in document["amended"])])
    if "role" in document:
        _print_role(document["role"])
    components = document["components"]
    print(f"\n{count(len(components), 'component')}")
    rows = [
        (name, part["adapter"], f"{part['leaf_count']:,}", size(part["size_bytes"]))
        for name, part in components.items()
    ]
    print_table([("NAME", "ADAPTER", "LEAVES", "ARRAYS"), *rows], right=(2, 3), indent="  ")
    if document["environment"]:
        print("\ntrained in")
        told = [(name, value(text)) for name, text in document["environment"].items()]
        print_table([*told, *(("wrapper", wrapper) for wrapper in document["wrappers"])], indent="  ")
    lines = [(leaf["path"], leaf["what"]) for part in components.values() for leaf in part.get("leaves", [])]
    if lines:
        print(f"\n{count(len(lines), 'leaf')}")
        print_table(lines, indent="  ")


def _print_role(role: Mapping[str, Any]) -> None:
    print(f"\nrole {role['name']}: {count(len(role['history']), 'promotion')}, the newest first")
    rows = [
        (
            promotion["policy"],
            "–" if promotion["score"] is None else "{metric} {value:.6g}".format(**promotion["score"]),
            promotion["run"] or "–",
            duration(age(promotion["at"])),
            promotion["note"] or "",
        )
        for promotion in reversed(role["history"])
    ]
    print_table([("POLICY", "SCORE", "RUN", "AGE", "NOTE"), *rows], right=(3,), indent="  ")
