"""Train CartPole, kill the training three times with SIGKILL, resume it, and compare with the run that was left alone.

    python examples/demo.py [DIRECTORY] [--seed 1] [--kill-seed N]

Everything goes through the command-line tool, and each command is printed, so that you can type it yourself. Exit
code 0: both runs are bit-identical and reached the wanted return. JAX's compilation cache cannot suffer from the
kills: each falls after a commit, when all was compiled, and what only comes later the first run has compiled already.
"""

import argparse
import json
import os
import random
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOTAL_STEPS = 307_200
EPISODES = 100
WANTED_RETURN = 475.0
KILLS = 3
ATTEMPTS = 5
LONGEST_DELAY_S = 0.15
RETURN = "eval/episode_reward_mean"

OPTIONS = {
    "--env": "CartPole-v1",
    "--total-steps": TOTAL_STEPS,
    "--n-envs": 64,
    "--rollout-length": 32,
    "--learning-rate": 2e-3,
    "--eval.every-steps": 10_240,
    "--eval.n-envs": EPISODES,
    "--eval.max-episode-length": 500,
    "--checkpoint-every-steps": 10_240,
}


@dataclass(frozen=True)
class Kill:
    """When to kill, drawn beforehand."""

    after_steps: int
    """The first new checkpoint at or past this many steps is awaited."""
    delay_s: float
    """Then this long."""


class TooLateError(Exception):
    """The training had finished before it could be killed."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", nargs="?", type=Path, help="where the runs go; default: a new temporary directory")
    parser.add_argument("--seed", type=int, default=1, help="of the training")
    parser.add_argument("--kill-seed", type=int, default=None, help="of the instants at which it is killed")
    options = parser.parse_args(argv)
    directory = (options.directory or Path(tempfile.mkdtemp(prefix="perdure-demo-"))).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    if any((directory / name).exists() for name in ("straight", "killed")):
        parser.error(f"{directory} holds runs of an earlier demo; choose another directory.")
    kill_seed = secrets.randbelow(10**6) if options.kill_seed is None else options.kill_seed
    say(f"Training seed {options.seed}; the kills are drawn from --kill-seed {kill_seed}.\n$ cd {directory}")
    return demonstrate(Tool(directory), options.seed, random.Random(kill_seed))


def demonstrate(tool: "Tool", seed: int, draws: random.Random) -> int:
    say("\n1. A training that nothing interrupts.")
    tool.run(*train("straight", seed))
    say(f"\n2. The same training, killed {KILLS} times without warning.")
    killed_at = train_and_kill(tool, seed, draws)
    curves = {name: learning_curve(tool.directory / name) for name in ("straight", "killed")}
    say(f"\n3. Both learning curves: mean return of {EPISODES} episodes.\n")
    say(plot(curves["straight"], curves["killed"], killed_at))
    say("\n4. Can anybody tell which run was killed?")
    differ = tool.run("diff", "straight", "killed", may_fail=True)
    lowest = min(curve[TOTAL_STEPS] for curve in curves.values())
    reached = f"{lowest:.1f} over {EPISODES} episodes at the end; {WANTED_RETURN:.0f} is wanted."
    say(f"\n{'The runs differ!' if differ else 'Not one bit differs.'} Return {reached}")
    return int(bool(differ) or lowest < WANTED_RETURN)


def train(run: str, seed: int) -> list[str]:
    words = [str(word) for pair in OPTIONS.items() for word in pair]
    return ["train", "ppo", "--run", run, "--seed", str(seed), *words]


def train_and_kill(tool: "Tool", seed: int, draws: random.Random) -> list[int]:
    """Trains to the end through `KILLS` kills; returns the steps at which they came."""
    for attempt in range(ATTEMPTS):
        run = tool.directory / "killed"
        try:
            kills = [draw_kill(at, draws) for at in range(KILLS)]
            commands = [train(run.name, seed), *[["resume", run.name]] * KILLS]
            killed_at = [tool.run_and_kill(run, kill, *command) for command, kill in zip(commands, kills, strict=False)]
        except TooLateError:
            say("  finished before it was killed; once more from the beginning.")
            run.rename(run.with_name(f"too-late-{attempt}"))
            continue
        tool.run(*commands[-1])
        return killed_at
    raise SystemExit(f"the training finished before it could be killed, {ATTEMPTS} times")


def draw_kill(number: int, draws: random.Random) -> Kill:
    """The kills are spread over the training, so that each one has a new piece of it to destroy."""
    share = (number + 1 + draws.uniform(-0.4, 0.4)) / (KILLS + 1)
    return Kill(int(share * TOTAL_STEPS), draws.uniform(0.0, LONGEST_DELAY_S))


class Tool:
    """The command-line tool, run in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        defaults = {
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(directory / "jax-cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        self._environment = {**defaults, **os.environ}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Starts a command, whose output is ours."""
        say(f"$ {wrap(['perdure', *words])}")
        command = [sys.executable, "-m", "perdure", *words]
        return subprocess.Popen(command, cwd=self.directory, env=self._environment)

    def run(self, *words: str, may_fail: bool = False) -> int:
        """Runs a command; returns its exit code."""
        with self.start(*words) as process:
            code = process.wait()
        if code and not may_fail:
            raise SystemExit(f"perdure {words[0]} ended with exit code {code}")
        return code

    def run_and_kill(self, run: Path, kill: Kill, *words: str) -> int:
        """Runs a command and kills it; returns how many steps the training had taken by then."""
        before = newest_checkpoint(run)
        with self.start(*words) as process:
            while newest_checkpoint(run) < max(before + 1, kill.after_steps) and process.poll() is None:
                time.sleep(0.001)
            time.sleep(kill.delay_s)
            process.kill()
            code = process.wait()
        if code == 0:
            raise TooLateError
        if code != -signal.SIGKILL:
            raise SystemExit(f"perdure {words[0]} ended with exit code {code}")
        reached, saved = rows(run)[-1]["env_steps"], newest_checkpoint(run)
        erase = "\r\x1b[K" if sys.stderr.isatty() and sys.stdout.isatty() else ""
        say(f"{erase}  kill -9 at {reached:,} steps; the last checkpoint holds {saved:,}")
        return reached


def newest_checkpoint(run: Path) -> int:
    """Steps of the newest committed checkpoint; -1 if there is none."""
    return max((int(path.name.removeprefix("step_")) for path in run.glob("checkpoints/step_*")), default=-1)


def rows(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def learning_curve(run: Path) -> dict[int, float]:
    """Steps -> mean return of the evaluation there."""
    return {row["env_steps"]: row[RETURN] for row in rows(run) if RETURN in row}


def plot(straight: dict[int, float], killed: dict[int, float], killed_at: Iterable[int]) -> str:
    """Both curves in one picture of 12 lines; the kills on the axis."""
    width, height, top = 60, 10, 500.0

    def column(steps: int) -> int:
        return min(width - 1, width * steps // TOTAL_STEPS)

    grid = [[" "] * width for _ in range(height + 1)]
    for mark, curve in (("s", straight), ("k", killed)):
        for steps, mean in curve.items():
            row = grid[height - round(height * min(mean, top) / top)]
            row[column(steps)] = mark if row[column(steps)] in (" ", mark) else "*"
    axis = ["-"] * width
    for steps in killed_at:
        axis[column(steps)] = "X"
    labels = [f"{top * (height - at) / height:5.0f} |" if at % 5 == 0 else "      |" for at in range(height + 1)]
    lines = ["".join([label, *row]).rstrip() for label, row in zip(labels, grid, strict=True)]
    legend = f"       0{f'{TOTAL_STEPS:,} steps':>{width - 1}}\n       * both runs   s straight   k killed   X kill -9"
    return "\n".join([*lines, f"      +{''.join(axis)}", legend])


def wrap(words: Sequence[str]) -> str:
    """A command as it can be typed, in lines of at most 100 characters."""
    lines = [""]
    for at, word in enumerate(words):
        glue = "" if at == 0 else " "
        starts_flag = word.startswith("--") and len(lines[-1]) + len(word) > 80
        if starts_flag:
            lines[-1] += " \\"
            lines.append("    ")
            glue = ""
        lines[-1] += glue + shlex.quote(word)
    return "\n".join(lines)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
