"""What checkpoints cost, side by side with their peers: DESIGN.md section 8 in figures."""

import argparse
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.common.machine import OtherWork, describe_machine, describe_versions
from benchmarks.common.report import Part, render
from benchmarks.common.scratch import scratch
from benchmarks.parts import chain, large, not_due, ppo_sized, replay, slow_down, start_up

PARTS: dict[str, Callable[[Path, int], Part]] = {
    "ppo": ppo_sized.measure,
    "large": large.measure,
    "replay": replay.measure,
    "not-due": not_due.measure,
    "slow-down": slow_down.measure,
    "chain": chain.measure,
    "start-up": start_up.measure,
}
RESULTS = Path(__file__).parent / "results" / "checkpointing.md"


def main(argv: Sequence[str] | None = None) -> None:
    """Measures all parts and writes the results; some parts alone are only printed."""
    parser = argparse.ArgumentParser(prog="./dev bench checkpointing", description=__doc__)
    parser.add_argument(
        "--repeats", type=int, default=20, help="turns of each peer; large states and trainings take fewer"
    )
    parser.add_argument("--part", choices=list(PARTS), action="append", help="only this part; print, write nothing")
    options = parser.parse_args(argv)
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": describe_versions(),
    }
    parts, others = [], OtherWork()
    for name in options.part or PARTS:
        with scratch() as directory:
            facts["machine"] = describe_machine(directory)
            parts.append(PARTS[name](directory, options.repeats))
    facts["other work"] = others.describe()
    facts["turns"] = f"{options.repeats}; a third of that for 512 MiB, a quarter for trainings"
    text = render("Checkpointing", facts, parts)
    print(text)
    if not options.part:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
