"""`perdure show` of what is not perdure's own: what a file of another library says of itself."""

import argparse
from dataclasses import asdict
from pathlib import Path

from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import count, print_json, print_table, printable, size, value
from perdure.interop.carried import Contents, ForeignKind

SHOWN = 40
"""Leaves that are listed without `--leaves`."""


def run(path: Path, kind: ForeignKind, arguments: argparse.Namespace) -> int:
    """Prints what a file or directory of any known kind says of itself.

    Raises:
        DamagedError: it contradicts itself, is cut, or claims what cannot be.
    """
    contents = kind.contents(path)
    if arguments.json:
        leaves = [asdict(leaf) for leaf in contents.leaves]
        told = {"metadata": dict(contents.metadata), "notes": list(contents.notes)}
        print_json({"path": path, "kind": contents.kind, "leaves": leaves, **told})
        return ExitCode.DONE
    _print(path, contents, None if arguments.leaves else SHOWN)
    return ExitCode.DONE


def _print(path: Path, contents: Contents, shown: int | None) -> None:
    total = sum(leaf.size_bytes for leaf in contents.leaves)
    rows = [("file" if path.is_file() else "directory", str(path)), ("kind", contents.kind)]
    rows += [("arrays", f"{size(total)} in {count(len(contents.leaves), 'leaf')}")]
    told = [(str(key), value(part)) for key, part in contents.metadata.items()]
    print_table([(printable(key), printable(text)) for key, text in [*rows, *told]])
    for note in contents.notes:
        print(f"  {printable(note)}")
    lines = [(leaf.name, leaf.what) for leaf in contents.leaves][:shown]
    if lines:
        print()
        print_table([(printable(name), printable(what)) for name, what in lines], indent="  ")
    if len(lines) < len(contents.leaves):
        print(f"  … and {len(contents.leaves) - len(lines):,} more: --leaves lists all")
