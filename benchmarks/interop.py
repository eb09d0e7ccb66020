"""What reading files of other libraries costs."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.common.machine import OtherWork, describe_machine, describe_versions
from benchmarks.common.report import render
from benchmarks.common.scratch import PROJECT, scratch
from benchmarks.parts import interop_read

RESULTS = Path(__file__).parent / "results" / "interop.md"


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(prog="./dev bench interop", description=__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="turns of each")
    options = parser.parse_args(argv)
    others = OtherWork()
    with scratch() as directory:
        parts = [interop_read.measure(directory / "storage_ckpt", options.repeats)]
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": describe_versions(),
        "machine": describe_machine(PROJECT),
        "other work": others.describe(),
        "turns": str(options.repeats),
    }
    text = render("Files of other libraries", facts, parts)
    print(text)
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
