"""The order that the operating system sees: a real commit under strace, as an oracle apart from our own port."""

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAM = """
import sys
import numpy as np
import perdure
run = perdure.Run(sys.argv[1], every=perdure.Every(updates=1), background=sys.argv[2] == "background")
run.restore(fixed=np.arange(100.0), moving=np.zeros(100))
for number in (1, 2, 3):
    run.boundary(env_steps=number, fixed=np.arange(100.0), moving=np.full(100, number), metrics={"x": number})
run.finish(fixed=np.arange(100.0), moving=np.full(100, 3))
"""
TRACED = "openat,open,close,fsync,fdatasync,rename,renameat,renameat2,link,linkat,write,writev,pwrite64"


@dataclass
class Call:
    """A system call that had its effect."""

    name: str
    path: str
    """The file of the descriptor, or the first path."""
    target: str = ""


def calls_of(trace: str) -> list[Call]:
    """The calls in the order in which they were done: an fsync where it returned, everything else where it began."""
    unfinished: dict[str, str] = {}
    calls = []
    for line in trace.splitlines():
        thread, _, text = line.partition(" ")
        text = text.strip()
        if "<unfinished ...>" in text:
            unfinished[thread] = text.removesuffix("<unfinished ...>").strip()
            if text.startswith(("fsync", "fdatasync")):
                continue
            text = unfinished.pop(thread) + ") = 0"
        elif resumed := re.match(r"<\.\.\. (\w+) resumed>(.*)", text):
            if thread not in unfinished:
                continue
            text = unfinished.pop(thread) + resumed[2]
        call = _parsed(text)
        if call is not None:
            calls.append(call)
    return calls


def _parsed(text: str) -> Call | None:
    name = text.partition("(")[0]
    if re.search(r"= -1 E", text):
        return None
    descriptors = re.findall(r"\d+<([^>]*)>", text)
    paths = re.findall(r'"([^"]*)"', text)
    if name.startswith(("rename", "link")) and len(paths) >= 2:
        return Call(name, paths[0], paths[1])
    if descriptors and name in ("fsync", "fdatasync", "write", "writev", "pwrite64"):
        return Call(name, descriptors[0])
    return None


@pytest.mark.parametrize("mode", ["at once", "background"])
def test_files_and_directory_are_synced_before_the_rename_and_the_parent_after_it(tmp_path: Path, mode: str) -> None:
    """Every commit of a real run, shared files included; metric rows are synced before the commit that counts them."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    # -y names the files of descriptors.
    command = [strace, "-f", "-y", "-s", "4096", "-e", f"trace={TRACED}", "-o", str(trace)]
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "run"), mode]
    result = subprocess.run([*command, *program], capture_output=True, text=True, check=False)
    if "PTRACE" in result.stderr or "ptrace" in result.stderr:
        pytest.skip(f"strace is not allowed here: {result.stderr.strip()}")
    assert result.returncode == 0, result.stderr

    calls = calls_of(trace.read_text())
    commits = [at for at, call in enumerate(calls) if call.name.startswith("rename") and "/.staging." in call.path]
    assert [Path(calls[at].target).name for at in commits] == [f"step_{number:010d}" for number in range(4)]
    for at in commits:
        check_commit(calls, at)
    rows = [at for at, call in enumerate(calls) if call.name == "write" and call.path.endswith("/metrics.jsonl")]
    assert len(rows) == 3
    for row, commit in zip(rows, commits[1:], strict=True):
        assert any(call.name == "fsync" and call.path.endswith("/metrics.jsonl") for call in calls[row:commit])


def check_commit(calls: list[Call], at: int) -> None:
    """The order around one rename that commits."""
    staging, final = calls[at].path, calls[at].target
    written: dict[str, int] = {}
    synced: dict[str, list[int]] = defaultdict(list)
    linked = set()
    for number, call in enumerate(calls[:at]):
        if call.name in ("write", "writev") and call.path.startswith(f"{staging}/"):
            written[call.path] = number
        if call.name.startswith("link") and call.target.startswith(f"{staging}/"):
            linked.add(call.target)
            written[staging] = number
        if call.name == "fsync":
            synced[call.path].append(number)
    files = {Path(path).name for path in written.keys() | linked} - {Path(staging).name}
    assert files == {"MANIFEST.json", "fixed.safetensors", "moving.safetensors", "process_rng.safetensors"}
    assert linked >= {f"{staging}/fixed.safetensors"} or final.endswith("0000000000")
    last = max(written.values())
    for path, number in written.items():
        if path != staging:
            assert max(synced[path]) > number, f"{path} was not synced after its last write"
            assert max(synced[staging]) > max(synced[path]), "the directory was synced before its files"
    assert max(synced[staging]) > last, "the directory was not synced after the last file came in"
    following = [call for call in calls[at + 1 :] if call.path == str(Path(final).parent) or final in call.path]
    assert following, "the parent was not synced"
    assert (following[0].name, following[0].path) == ("fsync", str(Path(final).parent))


def test_the_reader_of_traces_reads_calls_that_threads_cut_in_two() -> None:
    trace = """1 openat(AT_FDCWD, "/a", O_RDONLY) = 3</a>
1 fsync(3</a> <unfinished ...>
2 rename("/a", "/b") = 0
1 <... fsync resumed>)            = 0
2 fsync(4</c>) = -1 EIO (Input/output error)
2 linkat(AT_FDCWD, "/x", AT_FDCWD, "/y", 0) = 0"""

    assert calls_of(trace) == [Call("rename", "/a", "/b"), Call("fsync", "/a"), Call("linkat", "/x", "/y")]
