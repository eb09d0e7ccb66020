"""`audit` on scripts as people write them: the right loop, several runs, odd containers, and what cannot be audited."""

import os
import sys
import time
from pathlib import Path

import pytest

from perdure import UsageError
from perdure.proof.audit import audit
from perdure.proof.audit_findings import Audit

pytestmark = pytest.mark.full

HEAD = "import collections, itertools, os, subprocess, sys, time\nfrom typing import NamedTuple\n"
HEAD += "import numpy as np, perdure\n"

LOOP = """
def main(name="runs/x", horizon=9, terms=None):
    rng, weights, eps = np.random.default_rng(1), np.zeros(3), 1.0
    run = perdure.Run(name, horizon=horizon, boundary_reset=terms)
    weights = run.restore(rng=rng, weights=weights).weights
    while not run.is_finished:
        {turn}
        run.boundary(env_steps=run.env_steps + 1, weights=weights)
    run.finish()

main()
"""

CALLBACKS = """
class Trainer:
    def __init__(self):
        self.rng, self.weights, self.eps, self.steps = np.random.default_rng(1), np.zeros(3), 1.0, 0
        self.callbacks = [print, Save(self), print]
    def learn(self):
        for step in range(self.steps, 9):
            self.eps *= 0.9
            self.weights = self.weights + self.eps * self.rng.normal(size=3)
            self.steps += 1
            self.notify()
    def notify(self):
        for callback in self.callbacks:
            callback(self)

class Save:
    def __init__(self, trainer):
        self.run = perdure.Run("runs/x", horizon=9)
        s = self.run.restore(rng=trainer.rng, weights=trainer.weights, steps=trainer.steps)
        trainer.weights, trainer.steps = s.weights, s.steps
    def __call__(self, trainer):
        self.run.boundary(env_steps=trainer.steps, weights=trainer.weights, steps=trainer.steps)

Trainer().learn()
"""

OF_SEVERAL_LINES = LOOP.format(
    turn="""weights = (
            weights
            - eps * rng.normal(size=3)
        )
        eps *= 0.9"""
)

NAMED_TUPLE = LOOP.replace("eps = np", "moments = np").replace(", 1.0\n", ", Moments(np.zeros(3), 0)\n")
NAMED_TUPLE = "class Moments(NamedTuple):\n    mean: np.ndarray\n    count: int\n" + NAMED_TUPLE.format(
    turn="""gradient = rng.normal(size=3)
        moments = Moments(0.9 * moments.mean + gradient, moments.count + 1)
        weights = weights - moments.mean / moments.count"""
)

SUBCLASS = LOOP.replace("eps = np", "returns = np").replace(", 1.0\n", ", Returns(maxlen=50)\n")
SUBCLASS = "class Returns(collections.deque):\n    def mean(self): return sum(self) / len(self)\n" + SUBCLASS.format(
    turn="""returns.append(float(rng.normal()))
        weights = weights + returns.mean()"""
)

ITERATOR = LOOP.replace(", 1.0\n", ", itertools.cycle([1.0, 2.0])\n").format(turn="weights = weights + next(eps)")

CLOSURE = """
def counter():
    count = 0
    def bump():
        nonlocal count
        count += 1
        return count
    return bump
""" + LOOP.replace(", 1.0\n", ", counter()\n").format(turn="weights = weights + eps()")

FAULTS = {
    "callbacks": (CALLBACKS, "frame learn: self.eps", "self.eps *= 0.9", "restore(..., eps=self.eps)"),
    "of several lines": (OF_SEVERAL_LINES, "frame main: eps", "eps *= 0.9", "restore(..., eps=eps)"),
    "a named tuple": (NAMED_TUPLE, "frame main: moments", "moments = Moments(", "boundary(..., moments=moments)"),
    "a subclass": (SUBCLASS, "frame main: returns", "returns.append", "boundary(..., returns=returns)"),
    "an iterator": (ITERATOR, "frame main: eps", "next(eps)", "count what eps has given"),
    "a closure": (CLOSURE, "frame main: eps.<count>", "count += 1", "count is bound by a closure"),
}
"""Script -> access path of what it forgets, the line that changes it, and what to add."""


def audited(folder: Path, text: str, **options: float) -> Audit:
    (folder / "train.py").write_text(HEAD + text, encoding="utf-8")
    return audit([sys.executable, str(folder / "train.py")], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_forgotten_is_confirmed_and_no_victim_of_it(name: str, tmp_path: Path):
    text, place, changed_by, remedy = FAULTS[name]

    found = audited(tmp_path, text)

    assert [each.place for each in found.confirmed] == [place]
    assert found.explained
    lines = [at for at, line in enumerate((HEAD + text).splitlines(), start=1) if changed_by in line]
    assert f"train.py:{lines[-1]}" in found.confirmed[0].assigned
    assert remedy in found.confirmed[0].advice


DECAY = "weights = weights + eps * rng.normal(size=3)\n        eps *= 0.9"
ONE_AFTER_THE_OTHER = LOOP.format(turn=DECAY).replace("\nmain()\n", "\nmain('runs/a', 5)\nmain('runs/b', {second})\n")


@pytest.mark.parametrize("second", [2, 9])
def test_runs_one_after_the_other_are_told_apart(tmp_path: Path, second: int):
    """The second run is not interrupted: its equal components say nothing of the first one's."""
    found = audited(tmp_path, ONE_AFTER_THE_OTHER.format(second=second))

    assert [each.place for each in found.confirmed] == ["frame main: eps"]
    assert found.confirmed[0].why.endswith("/weights at boundary 4")
    assert (found.exact, found.explained) == (False, True)


def test_a_process_wide_generator_that_is_seeded_beside_one_that_is_not(tmp_path: Path):
    turn = "eps += 1\n        weights = weights + np.random.random(int(eps))[-1]"
    found = audited(tmp_path, "np.random.seed(1)\n" + LOOP.format(turn=turn))

    assert found.undetermined == ("process_rng/python",)
    assert found.confirmed[0].why == "put right, it changes process_rng/numpy, weights at boundary 4"


def test_a_script_that_ends_well_when_it_is_stopped_can_be_audited(tmp_path: Path):
    text = LOOP.format(turn=DECAY).replace("\nmain()\n", "\ntry:\n    main()\nexcept SystemExit:\n    pass\n")

    assert [each.place for each in audited(tmp_path, text).confirmed] == ["frame main: eps"]


TERMS = "perdure.BoundaryReset(seed=1, every=perdure.Every(updates=4))"
RESETS = (
    LOOP.format(turn=DECAY)
    .replace("rng=rng", "rng=rng, envs=envs")
    .replace("\nmain()", f"\nimport gymnasium\nenvs = gymnasium.make('CartPole-v1')\nmain(terms={TERMS})")
)


def test_checkpoints_that_stand_elsewhere(tmp_path: Path):
    pytest.importorskip("gymnasium")
    with pytest.raises(UsageError, match=r"^the resumed run: it went on from boundary 0, not 3: ") as caught:
        audited(tmp_path, RESETS)
    assert str(caught.value).endswith("checkpoints stand elsewhere (boundary_reset); others stand at 4: --at 4.")

    assert [each.place for each in audited(tmp_path, RESETS, at=4, until=6).confirmed] == ["frame main: eps"]


def test_a_script_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path):
    file = str(tmp_path / "pid")
    child = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(99)"
    text = f"subprocess.Popen([sys.executable, '-c', {child!r}, {file!r}])\n"
    text += f"while not os.path.exists({file!r}): time.sleep(0.01)\nprint('waits', flush=True)\ntime.sleep(99)\n"

    with pytest.raises(
        UsageError, match=r"train\.py: took longer than 3 s\. Give it more with --timeout, or (.*\n)*waits$"
    ):
        audited(tmp_path, text, timeout_s=3)

    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 20
    while _is_running(pid):
        assert time.monotonic() < deadline, "the script's child is still there"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()  # nobody has waited for it yet
