"""`audit` names the variable that a run forgot and its line, confirmed; what was repaired has no confirmed finding."""

import sys
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT

from perdure import UsageError
from perdure.proof.audit import audit
from perdure.proof.audit_findings import Audit

pytestmark = pytest.mark.full

SCRIPTS = Path(__file__).with_name("audited")

FAULTS = {
    "python_random": ("frame main: noise", "noise.gauss", "restore(..., noise=noise)"),
    "cached_rate": ("component agent.lr_cached", "self.lr_cached *= 0.9", "Put 'lr_cached' into the class's"),
    "normaliser_count": ("frame train: norm.count", "self.count += 1", "boundary(..., count=norm.count)"),
    "coefficient_deque": ("module coefficient_deque: recent", "recent.append", "boundary(..., recent=recent)"),
    "episode_stream": ("frame main: stream", "next(stream)", "count what stream has given"),
    "evaluation_rng": ("frame main: eval_rng", "eval_rng.normal", "restore(..., eval_rng=eval_rng)"),
    "action_space": ("frame main: space", "space.sample()", "restore(..., space=space)"),
    "forgotten_scheduler": ("frame main: scheduler", "scheduler.step()", "restore(..., scheduler=scheduler)"),
    "module_tensor": ("module module_tensor: BASELINE", "BASELINE.mul_", "and assign what restore returns."),
    "target_network": ("frame main: target", "target.load_state_dict(net", "restore(..., target=target)"),
}
"""Script -> access path of what it forgets, the line that changes it, and what to add."""

NEEDS = {
    "action_space": "gymnasium",
    "forgotten_scheduler": "torch",
    "module_tensor": "torch",
    "target_network": "torch",
}
NAMES = [pytest.param(name, marks=pytest.mark.slow if NEEDS.get(name) == "torch" else []) for name in FAULTS]


def audited(name: str, *words: str, monkeypatch: pytest.MonkeyPatch) -> Audit:
    pytest.importorskip(NEEDS.get(name, "numpy"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return audit([sys.executable, str(SCRIPTS / f"{name}.py"), "runs/x", *words], until=7)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_script_forgets_is_confirmed_with_variable_line_and_remedy(name: str, monkeypatch: pytest.MonkeyPatch):
    place, changed_by, remedy = FAULTS[name]

    found = audited(name, monkeypatch=monkeypatch)

    assert [each.place for each in found.confirmed] == [place]
    source = (SCRIPTS / f"{name}.py").read_text("utf-8").splitlines()
    lines = [at for at, line in enumerate(source, start=1) if changed_by in line]
    assert lines
    assert f"{name}.py:{lines[-1]}" in found.confirmed[0].assigned
    assert remedy in found.confirmed[0].advice
    assert not found.exact
    assert found.explained, "with it put right, nothing else is missing"


@pytest.mark.parametrize("name", NAMES)
def test_twin_once_repaired_there_is_nothing_to_confirm(name: str, monkeypatch: pytest.MonkeyPatch):
    found = audited(name, "--repaired", monkeypatch=monkeypatch)

    assert found.confirmed == ()
    assert found.exact
    assert FAULTS[name][0] not in [each.place for each in found.suspects if "exact all the same" not in each.why]


SCRIPT = """
import sys, time
import numpy as np, perdure
sys.path.insert(0, {learner!r})
from learner import Learner

def main():
    learner, rng, scale, loss, started = Learner(), np.random.default_rng(1), 1.0, None, time.time()
    bias, fps, seen = 0.0, 0.0, 0
    run = perdure.Run(sys.argv[1], horizon=9, every=perdure.Every(updates=100), audit_ignore={ignore!r})
    s = run.restore(learner=learner, rng=rng, mean=np.zeros(3))
    mean = initial = s.mean  # in a resumed process these are one array
    for update in range(s.env_steps + 1, 10):
        loss = learner.learn(scale * rng.normal(size=3) + bias - mean)
        mean = mean * 0.9 + 0.1 * learner.weights
        scale, bias, seen = scale * 0.9, bias + 0.25, seen + 1
        fps = update / (time.time() - started)
        run.boundary(env_steps=update, mean=mean, metrics={{"loss": loss}})
    run.finish()

main()
"""


def run_script(folder: Path, **ignore: str) -> Audit:
    path = folder / "train.py"
    places = {f"frame main: {name}": why for name, why in ignore.items()}
    path.write_text(SCRIPT.format(learner=str(SCRIPTS), ignore=places), encoding="utf-8")
    return audit([sys.executable, str(path), "runs/x"])


def test_two_faults_at_once_are_both_confirmed_and_clocks_and_losses_are_not(tmp_path: Path):
    found = run_script(tmp_path)

    assert [each.place for each in found.confirmed] == ["frame main: bias", "frame main: scale"]
    assert [(each.straight, each.resumed) for each in found.confirmed] == [
        ("0.75", "0.0"),
        ("0.7290000000000001", "1.0"),
    ]
    assert found.explained
    suspects = {each.place: each.why for each in found.suspects}
    assert {"frame main: initial", "frame main: loss", "frame main: seen"} <= suspects.keys()
    assert suspects["frame main: seen"] == "it differs after the resume, but putting it right changed nothing"
    assert "two straight runs disagree on it" in suspects["frame main: fps"]


REFERENCE = SCRIPT.replace("- mean)", "- initial)")
"""The variable is needed that a resumed process takes from what was restored."""


def test_a_reference_to_what_was_restored_is_confirmed_where_the_straight_run_has_kept_the_old_value(tmp_path: Path):
    path = tmp_path / "train.py"
    path.write_text(REFERENCE.format(learner=str(SCRIPTS), ignore={}), encoding="utf-8")

    found = audit([sys.executable, str(path), "runs/x"])

    places = [each.place for each in found.confirmed]
    assert places == ["frame main: bias", "frame main: initial", "frame main: scale"]
    assert found.explained


def test_what_the_contract_says_to_leave_alone_is_left_alone(tmp_path: Path):
    found = run_script(tmp_path, bias="an experiment", scale="the same", fps="a clock")

    assert found.confirmed == ()
    assert found.ignored["frame main: bias"] == "an experiment"
    assert "frame main: fps" not in [each.place for each in found.suspects]
    assert not found.exact
    assert not found.explained


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise ValueError('no')", r"^the straight run ended with exit code 1\. It said last:\n(.*\n)*ValueError: no$"),
        ("print('nothing')", r"^the straight run opened no run: the script must use perdure\.Run"),
    ],
)
def test_a_script_that_cannot_be_audited(tmp_path: Path, source: str, problem: str):
    (tmp_path / "train.py").write_text(source, encoding="utf-8")

    with pytest.raises(UsageError, match=problem):
        audit([sys.executable, str(tmp_path / "train.py")])


def test_a_boundary_that_never_comes_and_one_that_cannot_be(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match=r"it ended at boundary 9, and no turn begins after boundary 50"):
        audit([sys.executable, str(SCRIPTS / "python_random.py"), "runs/x"], at=50, until=60)
    with pytest.raises(UsageError, match=r"^--at 3 --until 3: --at is from 1, and --until is greater\.$"):
        audit(["true"], at=3, until=3)


TRAINERS = {
    "examples/torch_ppo.py": ["--run", "runs/x", "--total-steps", "4000"],
    "examples/torch_dqn.py": ["--run", "runs/x", "--total-steps", "2000"],
    "examples/torch_sac.py": ["--run", "runs/x", "--total-steps", "2000"],
    "tests/resume/torch_ppo.py": ["runs/x"],
    "tests/resume/nnx_ppo.py": ["runs/x", "--updates", "8"],
}
BOUNDARIES = {"examples/torch_dqn.py": (700, 760), "examples/torch_sac.py": (340, 360)}
"""Where these learn already."""


@pytest.mark.slow
@pytest.mark.parametrize("script", TRAINERS)
def test_trainers_and_examples_have_no_confirmed_finding(script: str, monkeypatch: pytest.MonkeyPatch):
    for module in ("torch", "gymnasium") if "torch" in script else ("jax", "gymnax"):
        pytest.importorskip(module)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    at, until = BOUNDARIES.get(script, (3, 6))

    found = audit([sys.executable, str(ROOT / script), *TRAINERS[script]], at=at, until=until)

    assert (found.confirmed, found.exact) == ((), True)
    assert {name.partition("/")[0] for name in found.undetermined} <= {"process_rng", "envs"}
