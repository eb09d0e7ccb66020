"""Replay buffers of 10^6 frames: what checkpoints write and take, beside Stable-Baselines3's own way."""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.common.machine import OtherWork, describe_machine, describe_versions
from benchmarks.common.report import Part, Target, number, render, table
from benchmarks.common.scratch import PROJECT, scratch
from benchmarks.common.timing import note

RESULTS = Path(__file__).parent / "results" / "replay.md"
PIECES = ("save_ring", "restore_ring", "save_sb3", "restore_sb3", "pickle_sb3", "unpickle_sb3")
GONE_AFTER = {"restore_ring": "ring", "restore_sb3": "sb3", "unpickle_sb3": "buffer.pkl"}
"""What a piece leaves that no later one needs: 7 GB each."""
MOST_EXTRA = 256 << 20

TEXT = """\
A buffer of 10^6 transitions with one frame of 84 × 84 bytes each, 7.1 GB; frames are generated. A checkpoint every
50,000 transitions, each durable before the loop goes on: `perdure.Ring` until it is full and five times more,
Stable-Baselines3's own `ReplayBuffer` (`optimize_memory_usage`) five times while it overwrites. *Written* counts every
byte of every file that a checkpoint does not share, manifests too. *Blocked* is how long the loop waits. A restore
happens in a new process, is verified, and fills the buffer in place. `save_replay_buffer` is made durable as ours are,
once; `load_replay_buffer` verifies nothing. *Extra memory* is how far resident memory rises beyond the buffer itself.
Every piece is a process of its own, and files are read as the page cache of the machine has them."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and writes the results; needs 16 GB of disk and 9 GB of memory."""
    argparse.ArgumentParser(prog="./dev bench replay", description=__doc__).parse_args(argv)
    others, found = OtherWork(), {}
    with scratch() as directory:
        for piece in PIECES:
            note(piece)
            command = [sys.executable, "-m", "benchmarks.parts.atari_replay", piece, str(directory)]
            found[piece] = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=PROJECT).stdout)
            subprocess.run(["rm", "-rf", str(directory / GONE_AFTER.get(piece, "nothing"))], check=True)
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": describe_versions(),
        "machine": describe_machine(PROJECT),
        "other work": others.describe(),
    }
    text = render("Replay buffers", facts, [report(found)])
    print(text)
    RESULTS.write_text(text, encoding="utf-8")


def report(found: Mapping[str, Mapping[str, Any]]) -> Part:
    """Tables and targets of what the pieces found."""
    saves = [
        _saves("perdure.Ring, filling", found["save_ring"], slice(0, -5)),
        _saves("perdure.Ring, overwriting", found["save_ring"], slice(-5, None)),
        _saves("ReplayBuffer in perdure.Run, overwriting", found["save_sb3"], slice(None)),
        _saves("save_replay_buffer", found["pickle_sb3"], slice(None)),
    ]
    restores = [
        _restore("perdure.Ring", found["restore_ring"]),
        _restore("ReplayBuffer in perdure.Run", found["restore_sb3"]),
        _restore("load_replay_buffer", found["unpickle_sb3"]),
    ]
    head = ("save", "new, MB", "written, MB: median", "most", "blocked, s: median", "most", "extra memory, MiB")
    tables = [table(head, saves), table(("restore", "seconds", "extra memory, MiB"), restores)]
    return Part("10^6 frames", TEXT, tables, [*_written(found), _blocked(found), *_memory(found)])


def _saves(name: str, piece: Mapping[str, Any], part: slice) -> tuple[str, ...]:
    written = [each / 1e6 for each in piece["written_bytes"][part]]
    blocked, new = piece["blocked_s"][part], piece.get("new_bytes", 0) / 1e6
    figures = (statistics.median(written), max(written), statistics.median(blocked), max(blocked))
    return name, number(new) if new else "–", *map(number, figures), _mib(piece["extra_bytes"][part])


def _restore(name: str, piece: Mapping[str, Any]) -> tuple[str, ...]:
    return name, number(piece["restore_s"]), _mib(piece["extra_bytes"])


def _mib(extra: Sequence[int]) -> str:
    return number(max(0, *extra, 0) / 2**20)


def _written(found: Mapping[str, Mapping[str, Any]]) -> list[Target]:
    names = {"save_ring": "perdure.Ring", "save_sb3": "Stable-Baselines3's ReplayBuffer"}
    targets = []
    for piece, name in names.items():
        most = max(found[piece]["written_bytes"]) / found[piece]["new_bytes"]
        limit = "rows whose block is partly new are written again."
        work = f"{name}, the largest of {len(found[piece]['written_bytes'])} checkpoints"
        targets.append(Target(work, "written ≤ 1.05 × new", f"{most:.3f} ×", is_met=most <= 1.05, limit=limit))
    return targets


def _blocked(found: Mapping[str, Mapping[str, Any]]) -> Target:
    ours = statistics.median(found["save_sb3"]["blocked_s"])
    theirs = statistics.median(found["pickle_sb3"]["blocked_s"])
    text = f"{theirs / ours:.1f} × quicker"
    work = "the same buffer, loop blocked, beside save_replay_buffer"
    return Target(work, "quicker", text, is_met=ours < theirs, limit="all that is retained is hashed.")


def _memory(found: Mapping[str, Mapping[str, Any]]) -> list[Target]:
    targets = []
    for piece in ("save_ring", "restore_ring", "save_sb3", "restore_sb3"):
        most, limit = max(0, *found[piece]["extra_bytes"], 0), "memory beside the buffer's own."
        text = f"{most / 2**20:.0f} MiB"
        work = piece.replace("_", " ") + ", peak extra memory"
        targets.append(Target(work, "≤ 256 MiB", text, is_met=most <= MOST_EXTRA, limit=limit))
    return targets


if __name__ == "__main__":
    main()
