"""A run that is killed at any instant, again and again, ends exactly like the run that was never stopped."""

import inspect
import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

import perdure

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "resume" / "numpy_loop.py"
UPDATES = 40
KILLS = 5
"""A run; the seeds below make 30 in `./dev test`, and 500 more in `./dev test slow`."""
MANNERS = {"default": ("--keep-last", "2"), "keep all": (), "synchronous": ("--synchronous",)}
"""How the runs save: as a `Run` does by itself, with every checkpoint to look at, and without the background writer."""
LONGEST_DELAY_S = 0.015
"""A little more than one boundary takes, so that kills fall anywhere in it."""
COMMAND = (sys.executable, str(SCRIPT))
FLAGS = ("--updates", str(UPDATES), "--every-updates", "1")


@dataclass
class Life:
    """One process of a run, from its start to its end."""

    killed: bool
    """Whether it was killed before it was done."""
    restored: bool
    """Whether it came as far as a boundary, or to its end: everything that `restore` has to say was said."""
    said: str
    """Its stderr."""


@dataclass
class History:
    """What happened to one run."""

    kills: int = 0
    """Processes killed before they were done."""
    leftovers: list[str] = field(default_factory=list)
    """Unfinished checkpoints that kills left behind."""


@dataclass(frozen=True)
class Tools:
    """The modules that stand beside the tests."""

    comparing: ModuleType
    """`tests/resume/comparing.py`."""
    numpy_loop: ModuleType
    """`tests/resume/numpy_loop.py`."""


@pytest.fixture
def tools(comparing: ModuleType, numpy_loop: ModuleType) -> Tools:
    """Both in one."""
    return Tools(comparing, numpy_loop)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that was never stopped, in a process like those that are killed: PyTorch, if loaded, is part of a run."""
    directory = tmp_path_factory.mktemp("straight") / "run"
    subprocess.run([*COMMAND, str(directory), *FLAGS], check=True, capture_output=True)
    return directory


def live(directory: Path, lines: int | None, delay_s: float, flags: Sequence[str]) -> Life:
    """Starts the loop and kills it `delay_s` after it has printed so many lines; lets it end if that is None."""
    command = [*COMMAND, str(directory), *FLAGS, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = []
        if lines is not None:
            seen = [process.stdout.readline() for _ in range(lines)]
            time.sleep(delay_s)
            process.send_signal(signal.SIGKILL)
        rest, said = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), said
    restored = process.returncode == 0 or "boundary" in "".join(seen) + rest
    return Life(process.returncode != 0, restored, said)


def live_through(directory: Path, draw: random.Random, kills: int, flags: Sequence[str]) -> History:
    """Kills the run that often at random instants, resuming it each time, and lets it end."""
    history = History()
    while True:
        before = leftovers(directory)
        lines, delay_s = draw.randint(1, 6) if history.kills < kills else None, draw.uniform(0, LONGEST_DELAY_S)
        life = live(directory, lines, delay_s, flags)
        if life.restored:
            for name in before:
                kind = "a half-removed" if name.startswith(".removed.") else "an unfinished"
                assert f"removed {name}, {kind} checkpoint that a stopped process left behind" in life.said
            assert not set(before) & set(leftovers(directory))
        if not life.killed:
            return history
        history.kills += 1
        history.leftovers += [name for name in leftovers(directory) if name not in before]


def leftovers(directory: Path) -> list[str]:
    """Unfinished checkpoints in a run."""
    return sorted(path.name for path in (directory / "checkpoints").glob(".*"))


def check_kills(seed: int, straight: Path, tmp_path: Path, comparing: ModuleType) -> None:
    """The property itself, for one seed: in one run, or in more should one have ended before its kill came."""
    manner = list(MANNERS)[seed % len(MANNERS)]
    print(f"seed {seed}, {manner}")
    draw, kills = random.Random(seed), 0
    expected = comparing.state_digests(straight)
    while kills < KILLS:
        directory = tmp_path / f"run after {kills} kills"
        history = live_through(directory, draw, KILLS - kills, MANNERS[manner])
        print(f"{history.kills} kills left {len(history.leftovers)} unfinished checkpoints")
        kills += history.kills

        assert leftovers(directory) == []
        found = comparing.state_digests(directory)
        assert found == {boundary: expected[boundary] for boundary in found}
        # A run killed between its last commit and the retention after it has nothing more to commit.
        assert sorted(found)[-2:] == [UPDATES - 1, UPDATES]
        assert len(found) in ((2, 3) if manner == "default" else (UPDATES + 1,))
        assert comparing.differences(straight, directory) == []
        assert (directory / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
        assert not (directory / "damaged").exists()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_random_instants_a_run_ends_exactly(
    seed: int, straight: Path, tmp_path: Path, comparing: ModuleType
) -> None:
    """Five SIGKILLs at random instants: the same checkpoints, the same metrics file, no leftovers, no damage."""
    check_kills(seed, straight, tmp_path, comparing)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_killed_at_many_more_random_instants_a_run_ends_exactly(
    seed: int, straight: Path, tmp_path: Path, comparing: ModuleType
) -> None:
    """The same, 500 times."""
    check_kills(seed, straight, tmp_path, comparing)


def test_the_runs_above_save_as_a_run_does_by_itself(numpy_loop: ModuleType) -> None:
    """The manner that is called default is the one of a `Run` that is told nothing."""
    parameters = inspect.signature(perdure.Run).parameters
    (of_loop,) = [inspect.signature(numpy_loop.train).parameters["background"]]

    assert MANNERS["default"] == ("--keep-last", str(parameters["keep"].default.last))
    assert parameters["keep"].default == perdure.Keep(last=2)
    assert parameters["background"].default is of_loop.default is True


COMMIT = "rename .staging."


def operations(directory: Path, *flags: str) -> list[str]:
    """Every change that three saved updates make to the store's part of the disk."""
    command = [sys.executable, str(HERE / "killed_at_operation.py"), str(directory), *flags]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


def test_the_operations_are_all_those_of_a_commit(tmp_path: Path) -> None:
    """What the next tests count on: four commits, each of files written, then synced, or linked; then one rename.

    Files are synced while the next are written, and all are before the directory is; the parent is after the rename.
    """
    done = operations(tmp_path / "run")
    renames = [at for at, line in enumerate(done) if line.startswith(COMMIT)]

    assert len(renames) == len([line for line in done if line.startswith("rename ")]) == 4
    for begin, end in itertools.pairwise([-2, *renames]):
        commit = done[begin + 2 : end + 2]
        written = [line.removeprefix("write ") for line in commit if line.startswith("write ") and " the " not in line]
        linked = [line.removeprefix("link ") for line in commit if line.startswith("link ")]
        assert len(written) + len(linked) == 10
        assert linked == ([] if begin < 0 else ["legacy.safetensors"])  # the one that updates leave as it is
        for file in written:
            rest, sync = commit.index(f"write the rest of {file}"), commit.index(f"sync_file {file}")
            assert commit.index(f"write {file}") < rest < sync
        kinds = [line.split()[0] for line in commit]
        assert kinds.count("write") == 2 * kinds.count("sync_file") == 2 * len(written)
        assert kinds[-3:] == ["sync_directory", "rename", "sync_directory"]
        assert max(at for at, kind in enumerate(kinds) if kind in ("sync_file", "link")) == len(kinds) - 4
        assert done[end + 1] == "sync_directory checkpoints"


def test_the_operations_of_retention_follow_those_of_a_commit(tmp_path: Path) -> None:
    """An older checkpoint is renamed away, durably, and then removed, when the newer one is there for good."""
    done = operations(tmp_path / "run", "--keep-last", "1")
    renames = [at for at, line in enumerate(done) if line.startswith(COMMIT)]

    for number, at in enumerate(renames[1:]):
        assert done[at + 1] == "sync_directory checkpoints"
        assert done[at + 2] == f"rename step_{15 * number:010d}"
        assert done[at + 3] == "sync_directory checkpoints"
        assert done[at + 4].startswith("remove_tree .removed.")


def check_operations(
    numbers: Sequence[int], done: Sequence[str], tmp_path: Path, tools: Tools, keep_last: int | None = None
) -> None:
    """Kills a run before each of these operations and resumes it."""
    flags = [] if keep_last is None else ["--keep-last", str(keep_last)]
    for number in numbers:
        directory = tmp_path / f"killed-{number}"
        assert killed_before(number, directory, flags) == -signal.SIGKILL
        committed = sum(line.startswith(COMMIT) for line in done[:number])
        removed = sum(line.startswith("rename step_") for line in done[:number])
        assert sorted(tools.comparing.checkpoints(directory)) == list(range(removed, committed)), done[number]

        resumed = tools.numpy_loop.train(directory, updates=3, keep_last=keep_last)

        assert resumed.resumed == (committed > 0)
        assert leftovers(directory) == []
        # A run killed between its last commit and the retention after it has nothing more to commit.
        kept = range(4) if keep_last is None else range(min(removed, 3) if committed == 4 else 3, 4)
        assert sorted(tools.comparing.checkpoints(directory)) == list(kept)
        assert tools.comparing.differences(tmp_path / "straight", directory) == [], done[number]


def killed_before(number: int, directory: Path, flags: Sequence[str]) -> int:
    """The exit code of a run that was to kill itself before an operation."""
    command = [sys.executable, str(HERE / "killed_at_operation.py"), str(directory), "--kill-before", str(number)]
    return subprocess.run([*command, *flags], check=False).returncode


def near(done: Sequence[str], prefix: str, width: int) -> set[int]:
    """The operations from one before each of a kind to `width` after it."""
    kind = [at for at, line in enumerate(done) if line.startswith(prefix)]
    return {at + step for at in kind for step in range(-1, width + 1)} & set(range(len(done)))


@pytest.mark.full
def test_killed_before_an_operation_of_a_commit_a_run_ends_exactly(tmp_path: Path, tools: Tools) -> None:
    """Around each rename of the first two commits, and every seventh operation: the newest is whole, and goes on."""
    done = operations(tmp_path / "straight")
    end = [at for at, line in enumerate(done) if line.startswith(COMMIT)][1]

    numbers = {at for at in near(done, COMMIT, 2) if at <= end + 2} | set(range(0, end, 7))
    check_operations(sorted(numbers), done, tmp_path, tools)


@pytest.mark.full
def test_killed_before_an_operation_of_retention_a_run_ends_exactly(tmp_path: Path, tools: Tools) -> None:
    """With one checkpoint to keep: whenever the older one goes, the newer one is there and whole."""
    tools.numpy_loop.train(tmp_path / "straight", updates=3)
    done = operations(tmp_path / "kept", "--keep-last", "1")

    check_operations(sorted(near(done, "rename step_", 2)), done, tmp_path, tools, keep_last=1)


@pytest.mark.slow
@pytest.mark.parametrize("keep_last", [None, 1])
def test_killed_before_any_operation_of_a_commit_a_run_ends_exactly(
    keep_last: int | None, tmp_path: Path, tools: Tools
) -> None:
    """The same for every single operation of a run of three updates."""
    tools.numpy_loop.train(tmp_path / "straight", updates=3)
    done = operations(tmp_path / "kept", *([] if keep_last is None else ["--keep-last", str(keep_last)]))

    check_operations(range(len(done)), done, tmp_path, tools, keep_last)
