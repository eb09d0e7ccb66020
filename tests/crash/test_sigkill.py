"""A run that is killed at any instant, again and again, ends exactly like the run that was never stopped."""

import itertools
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "resume" / "numpy_loop.py"
UPDATES = 40
KILLS = 5
"""A run; the seeds below make 30 in `./dev test`, and 500 more in `./dev test slow`."""
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
def straight(tmp_path_factory: pytest.TempPathFactory, numpy_loop: ModuleType) -> Path:
    """The run that was never stopped."""
    directory = tmp_path_factory.mktemp("straight") / "run"
    numpy_loop.train(directory, updates=UPDATES)
    return directory


def live(directory: Path, lines: int | None, delay_s: float) -> Life:
    """Starts the loop and kills it `delay_s` after it has printed so many lines; lets it end if that is None."""
    command = [*COMMAND, str(directory), *FLAGS]
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


def live_through(directory: Path, draw: random.Random, kills: int) -> History:
    """Kills the run that often at random instants, resuming it each time, and lets it end."""
    history = History()
    while True:
        before = leftovers(directory)
        life = live(directory, draw.randint(1, 6) if history.kills < kills else None, draw.uniform(0, LONGEST_DELAY_S))
        if life.restored:
            for name in before:
                assert f"removed {name}, an unfinished checkpoint that a stopped process left behind" in life.said
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
    print(f"seed {seed}")
    draw, kills = random.Random(seed), 0
    while kills < KILLS:
        directory = tmp_path / f"run after {kills} kills"
        history = live_through(directory, draw, KILLS - kills)
        print(f"{history.kills} kills left {len(history.leftovers)} unfinished checkpoints")
        kills += history.kills

        assert leftovers(directory) == []
        assert comparing.state_digests(directory) == comparing.state_digests(straight)
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


def operations(directory: Path) -> list[str]:
    """Every change that three saved updates make to the store's part of the disk."""
    command = [sys.executable, str(HERE / "killed_at_operation.py"), str(directory)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


def test_the_operations_are_all_those_of_a_commit(tmp_path: Path) -> None:
    """What the next test counts on: four commits, each of writes, then syncs, then one rename, then the last sync."""
    done = operations(tmp_path / "run")
    renames = [at for at, line in enumerate(done) if line.startswith("rename ")]

    assert len(renames) == 4
    for begin, end in itertools.pairwise([-2, *renames]):
        kinds = [re.sub(r" \S*$", "", line) for line in done[begin + 2 : end + 2]]
        in_order = [kind for kind, _ in itertools.groupby(kinds) if "make" not in kind]
        assert in_order[-4:] == ["sync_file", "sync_directory", "rename", "sync_directory"]
        assert kinds.count("write") == kinds.count("write the rest of") == kinds.count("sync_file") == 10
        assert done[end + 1] == "sync_directory checkpoints"


def check_operations(numbers: Sequence[int], done: Sequence[str], tmp_path: Path, tools: Tools) -> None:
    """Kills a run before each of these operations and resumes it."""
    for number in numbers:
        directory = tmp_path / f"killed-{number}"
        command = [sys.executable, str(HERE / "killed_at_operation.py"), str(directory), str(number)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        committed = sum(line.startswith("rename ") for line in done[:number])
        assert sorted(tools.comparing.checkpoints(directory)) == list(range(committed)), done[number]

        resumed = tools.numpy_loop.train(directory, updates=3)

        assert resumed.resumed == (committed > 0)
        assert leftovers(directory) == []
        assert tools.comparing.differences(tmp_path / "straight", directory) == [], done[number]


@pytest.mark.full
def test_killed_before_an_operation_of_a_commit_a_run_ends_exactly(tmp_path: Path, tools: Tools) -> None:
    """Around each rename of the first two commits, and every seventh operation: the newest is whole, and goes on."""
    done = operations(tmp_path / "straight")
    renames = [at for at, line in enumerate(done) if line.startswith("rename ")][:2]
    near_renames = {at + near for at in renames for near in (-1, 0, 1, 2)}

    check_operations(sorted({*near_renames, *range(0, renames[-1], 7)}), done, tmp_path, tools)


@pytest.mark.slow
def test_killed_before_any_operation_of_a_commit_a_run_ends_exactly(tmp_path: Path, tools: Tools) -> None:
    """The same for every single operation of a run of three updates."""
    done = operations(tmp_path / "straight")

    check_operations(range(len(done)), done, tmp_path, tools)
